"""The volumes of this machine's pods (Volumes, see port.py). Everything that touches the disk runs in threads of its own.

What concerns one pod, or one claim, happens in the order in which it was asked for, and to its end even if the asker is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sandpool.base.errors import NodeError
from sandpool.node.volumes import kinds
from sandpool.node.volumes.folders import private
from sandpool.node.volumes.memory import candidates, memory_folder
from sandpool.node.volumes.names import folder_name, usable
from sandpool.node.volumes.options import VolumeOptions
from sandpool.node.volumes.removal import Trash, empty
from sandpool.node.volumes.spec import Claim, Content, Volume, VolumeSpec
from sandpool.telemetry.log import logger

log = logger(__name__)
T = TypeVar("T")
P = ParamSpec("P")
_THREADS = 4
_STEPS = 200  # files removed before others have their turn
_TRASH = ".trash"


class VolumeStore:
    """`folder` is ours alone; it is made if it is not there, and must be the same after a restart."""

    def __init__(self, folder: Path, options: VolumeOptions = VolumeOptions()) -> None:
        self._folder = folder
        self._options = options
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sandpool-volumes")
        places = options.memory if options.memory is not None else candidates(os.environ)
        self._places = kinds.Places(folder / "pods", folder / "claims", memory_folder(places, folder))
        self._made: dict[str, dict[str, Volume]] = {}
        self._groups: dict[str, int | None] = {}
        self._reaping: asyncio.Task[None] | None = None
        self._last: dict[str, asyncio.Task[Any]] = {}  # by pod or claim: what was asked for last

    async def make(self, uid: str, specs: Sequence[VolumeSpec], *, group: int | None = None) -> Mapping[str, Volume]:
        pod = folder_name(uid, "the uid of a pod")
        return await self._in_turn(pod, lambda: self._make(pod, specs, group)) if specs else {}

    async def refresh(self, uid: str, specs: Sequence[VolumeSpec]) -> None:
        if uid in self._made:
            await self._in_turn(uid, lambda: self._refresh(uid, specs))

    async def remove(self, uid: str) -> None:
        pod = folder_name(uid, "the uid of a pod")
        await self._in_turn(pod, lambda: self._remove(pod))

    async def remove_claim(self, uid: str) -> None:
        claim = folder_name(uid, "the uid of a claim")
        await self._in_turn(f"claim {claim}", lambda: self._take_away(self._places.claims / claim))

    async def claims(self) -> Collection[str]:
        """The uids of the claims that have a folder here."""
        return await self._run(_names, self._places.claims)

    async def reap(self, pods: Collection[str], claims: Collection[str] | None = None) -> None:
        """Moved away at once, and emptied beside everything else: there may be millions of files."""
        roots = [root for root in (self._places.pods, self._places.memory) if root is not None]
        stale = [root / uid for root in roots for uid in set(await self._run(_names, root)) - set(pods)]
        if claims is not None:
            found = set(await self._run(_names, self._places.claims))
            stale += [self._places.claims / uid for uid in found - set(claims)]
        for folder in stale:
            await self._run(self._move_away, folder)
        trash = [Trash(root / _TRASH) for root in (*roots, self._places.claims)]
        left = [folder for each in trash for folder in await self._run(each.left)]
        await self._stop_reaping()
        self._reaping = asyncio.create_task(self._empty_all(left))

    async def _stop_reaping(self) -> None:
        if self._reaping is not None:
            self._reaping.cancel()
            await asyncio.gather(self._reaping, return_exceptions=True)

    async def _empty_all(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            try:
                await self._emptied(folder)
            except NodeError as error:
                log.warning("what was moved away is not removed; the next start tries again", cause=str(error))

    async def close(self) -> None:
        await self._stop_reaping()  # the next start goes on with it
        await asyncio.gather(*self._last.values(), return_exceptions=True)
        try:
            await self._let_go()
        except NodeError as error:
            log.warning("volumes are not let go of", cause=str(error))
        self._threads.shutdown(wait=True)

    async def _let_go(self) -> None:
        """Nothing stays mounted, and nothing in memory: the API has it, and `make` writes it again."""
        memory = self._places.memory
        if memory is not None:
            for uid in await self._run(_names, memory):
                await self._take_away(memory / uid)
            await self._run(_tidy, memory)
        await self._run(self._unmount_all)

    def _unmount_all(self) -> None:
        pods = self._places.pods
        volumes = [pods / uid / name for uid in _names(pods) for name in _names(pods / uid)]
        for folder in (*volumes, *(self._places.claims / uid for uid in _names(self._places.claims))):
            kinds.unmade(folder, forever=False)

    async def _make(self, uid: str, specs: Sequence[VolumeSpec], group: int | None) -> Mapping[str, Volume]:
        for spec in specs:
            if isinstance(spec.source, Claim):  # one that is just being removed must be gone first
                await self._settled(f"claim {spec.source.uid}")
        self._groups[uid] = group
        volumes = await self._run(self._make_all, uid, specs, group)
        self._made.setdefault(uid, {}).update(volumes)
        return volumes

    async def _refresh(self, uid: str, specs: Sequence[VolumeSpec]) -> None:
        """In its turn the pod may be gone, and then nothing of it must come back."""
        known = self._made.get(uid, {})
        contents = [spec for spec in specs if isinstance(spec.source, Content) and spec.name in known]
        if contents:
            await self._run(self._make_all, uid, contents, self._groups.get(uid))

    def _make_all(self, uid: str, specs: Sequence[VolumeSpec], group: int | None) -> dict[str, Volume]:
        secret = any(isinstance(spec.source, Content) and spec.source.secret for spec in specs)
        memory = self._places.memory if secret else None
        for folder in (self._folder, self._places.pods, self._places.pods / uid, self._places.claims):
            private(folder)
        for folder in (memory, memory / uid) if memory is not None else ():
            private(folder)
        return {spec.name: kinds.made(self._places, self._options, uid, spec, group) for spec in specs}

    async def _remove(self, uid: str) -> None:
        for folder in self._places.of_pod(uid):
            await self._take_away(folder)
        self._made.pop(uid, None)
        self._groups.pop(uid, None)

    async def _take_away(self, folder: Path) -> None:
        """A pod's folder, or a claim's: at once out of sight, and then bit by bit."""
        moved = await self._run(self._move_away, folder)
        if moved is not None:
            await self._emptied(moved)

    def _move_away(self, folder: Path) -> Path | None:
        claim = folder.parent == self._places.claims
        for volume in (folder,) if claim else (folder / name for name in _names(folder)):
            kinds.unmade(volume, forever=True)
        return Trash(folder.parent / _TRASH).take(folder)

    async def _emptied(self, folder: Path) -> None:
        while not await self._run(empty, folder, Steps(_STEPS)):
            pass

    async def _settled(self, key: str) -> None:
        last = self._last.get(key)
        if last is not None:
            await asyncio.wait({last})

    async def _in_turn(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """After what was asked for the same key before, whatever became of that."""
        before = self._last.get(key)

        async def turn() -> T:
            if before is not None:
                await asyncio.wait({before})
            return await work()

        task = asyncio.ensure_future(turn())
        self._last[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))
        try:
            return await asyncio.shield(task)
        finally:
            del task  # else a failure and this frame hold each other, and what was to be written with them

    def _forget(self, key: str, done: asyncio.Task[Any]) -> None:
        if self._last.get(key) is done:
            del self._last[key]
        if not done.cancelled():
            done.exception()  # looked at, also when whoever asked is gone

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In a thread. What the machine says becomes a NodeError."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args, **kwargs))
        except OSError as error:
            raise failed(error) from error


class Steps:
    """Enough after so many questions."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


def failed(error: OSError) -> NodeError:
    says = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NodeError("DiskFull", f"a volume could not be written: {says}; free space on this machine")
    return NodeError("VolumeFailed", f"a volume could not be made or removed: {says}; look at the disk of this machine")


def _tidy(memory: Path) -> None:
    for folder in (memory / _TRASH, memory):
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()


def _names(folder: Path) -> list[str]:
    """The pods, claims or volumes in a folder of ours; nothing else that is there is ours to touch."""
    try:
        return [name for name in os.listdir(folder) if usable(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
