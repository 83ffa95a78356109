"""The volumes of this machine's pods: implements `Volumes` (spec.py). Everything that touches the disk runs in a separate thread pool.

Operations on one pod, or one claim, run in the order of the calls, and to their end even if the caller is cancelled. Namespaces take turns
for the threads, and none gets all of them: removing or writing thousands of files delays only pods of the same namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sandpool.base.errors import NodeError
from sandpool.base.offload import FairThreads
from sandpool.node.volumes import kinds
from sandpool.node.volumes.directories import candidates, directory_name, make_private, memory_directory, usable
from sandpool.node.volumes.spec import Claim, Content, Volume, VolumeOptions, VolumeSpec
from sandpool.node.volumes.trash import Steps, Trash, empty
from sandpool.telemetry.log import logger

log = logger(__name__)
T = TypeVar("T")
P = ParamSpec("P")
_THREADS = 5  # of which one namespace has at most four
_STEPS = 200  # files removed in one turn
_TRASH = ".trash"
_NOBODYS = ""  # the tenant of claims without an object and of leftovers of earlier processes


class VolumeStore:
    """`directory` is private to this store, created if missing, and must be the same after a restart."""

    def __init__(self, directory: Path, options: VolumeOptions = VolumeOptions()) -> None:
        self._directory = directory
        self._options = options
        self._threads = FairThreads("sandpool-volumes", _THREADS)
        roots = options.memory if options.memory is not None else candidates(os.environ)
        self._roots = kinds.VolumeRoots(directory / "pods", directory / "claims", memory_directory(roots, directory))
        self._made: dict[str, dict[str, Volume]] = {}
        self._groups: dict[str, int | None] = {}
        self._tenants: dict[str, str] = {}  # by pod uid; unknown for volumes of an earlier process
        self._reaping: asyncio.Task[None] | None = None
        self._last: dict[str, asyncio.Task[Any]] = {}  # by pod or claim: its latest operation

    async def make(
        self, uid: str, specs: Sequence[VolumeSpec], *, group: int | None = None, tenant: str = ""
    ) -> Mapping[str, Volume]:
        pod = directory_name(uid, "the uid of a pod")
        return await self._serialized(pod, lambda: self._make(pod, specs, group, tenant)) if specs else {}

    async def refresh(self, uid: str, specs: Sequence[VolumeSpec]) -> None:
        if uid in self._made:
            await self._serialized(uid, lambda: self._refresh(uid, specs))

    async def remove(self, uid: str) -> None:
        pod = directory_name(uid, "the uid of a pod")
        await self._serialized(pod, lambda: self._remove(pod))

    async def remove_claim(self, uid: str) -> None:
        claim = directory_name(uid, "the uid of a claim")
        await self._serialized(f"claim {claim}", lambda: self._remove_directory(_NOBODYS, self._roots.claims / claim))

    async def claims(self) -> Collection[str]:
        """The uids of the claims that have a directory here."""
        return await self._run(_NOBODYS, _names, self._roots.claims)

    async def reap(self, pods: Collection[str], claims: Collection[str] | None = None) -> None:
        """Moves directories away at once and deletes them in the background: there may be millions of files."""
        roots = [root for root in (self._roots.pods, self._roots.memory) if root is not None]
        stale = [root / uid for root in roots for uid in set(await self._run(_NOBODYS, _names, root)) - set(pods)]
        if claims is not None:
            found = set(await self._run(_NOBODYS, _names, self._roots.claims))
            stale += [self._roots.claims / uid for uid in found - set(claims)]
        for directory in stale:
            await self._run(_NOBODYS, self._move_away, directory)
        trash = [Trash(root / _TRASH) for root in (*roots, self._roots.claims)]
        leftovers = [directory for each in trash for directory in await self._run(_NOBODYS, each.leftovers)]
        await self._stop_reaping()
        self._reaping = asyncio.create_task(self._empty_all(leftovers))

    async def _stop_reaping(self) -> None:
        if self._reaping is not None:
            self._reaping.cancel()
            await asyncio.gather(self._reaping, return_exceptions=True)

    async def _empty_all(self, directories: Sequence[Path]) -> None:
        for directory in directories:
            try:
                await self._empty(_NOBODYS, directory)
            except NodeError as error:
                log.warning("what was moved away is not removed; the next start tries again", cause=str(error))

    async def close(self) -> None:
        await self._stop_reaping()  # the next start resumes it
        await asyncio.gather(*self._last.values(), return_exceptions=True)
        try:
            await self._release_all()
        except NodeError as error:
            log.warning("volumes could not be released", cause=str(error))
        self._threads.close()

    async def _release_all(self) -> None:
        """Unmounts everything and removes secrets from memory. The API still has them, and `make` writes them again."""
        memory = self._roots.memory
        if memory is not None:
            for uid in await self._run(_NOBODYS, _names, memory):
                await self._remove_directory(_NOBODYS, memory / uid)
            await self._run(_NOBODYS, _tidy, memory)
        await self._run(_NOBODYS, self._unmount_all)

    def _unmount_all(self) -> None:
        pods = self._roots.pods
        volumes = [pods / uid / name for uid in _names(pods) for name in _names(pods / uid)]
        for directory in (*volumes, *(self._roots.claims / uid for uid in _names(self._roots.claims))):
            kinds.detach_volume(directory, forever=False)

    async def _make(
        self, uid: str, specs: Sequence[VolumeSpec], group: int | None, tenant: str
    ) -> Mapping[str, Volume]:
        for spec in specs:
            if isinstance(spec.source, Claim):  # if it is being removed, wait for that
                await self._settled(f"claim {spec.source.uid}")
        self._groups[uid], self._tenants[uid] = group, tenant
        volumes = await self._run(tenant, self._make_all, uid, specs, group)
        self._made.setdefault(uid, {}).update(volumes)
        return volumes

    async def _refresh(self, uid: str, specs: Sequence[VolumeSpec]) -> None:
        """Updates content volumes that still exist: when this runs the pod may be gone, and then nothing may be created."""
        known = self._made.get(uid, {})
        contents = [spec for spec in specs if isinstance(spec.source, Content) and spec.name in known]
        if contents:
            await self._run(self._tenant(uid), self._make_all, uid, contents, self._groups.get(uid))

    def _make_all(self, uid: str, specs: Sequence[VolumeSpec], group: int | None) -> dict[str, Volume]:
        secret = any(isinstance(spec.source, Content) and spec.source.secret for spec in specs)
        memory = self._roots.memory if secret else None
        for directory in (self._directory, self._roots.pods, self._roots.pods / uid, self._roots.claims):
            make_private(directory)
        for directory in (memory, memory / uid) if memory is not None else ():
            make_private(directory)
        return {spec.name: kinds.make_volume(self._roots, self._options, uid, spec, group) for spec in specs}

    async def _remove(self, uid: str) -> None:
        for directory in self._roots.of_pod(uid):
            await self._remove_directory(self._tenant(uid), directory)
        self._made.pop(uid, None)
        self._groups.pop(uid, None)
        self._tenants.pop(uid, None)

    def _tenant(self, uid: str) -> str:
        return self._tenants.get(uid, _NOBODYS)

    async def _remove_directory(self, tenant: str, directory: Path) -> None:
        """Moves the directory of a pod or a claim to the trash at once, then deletes it in small steps."""
        moved = await self._run(tenant, self._move_away, directory)
        if moved is not None:
            await self._empty(tenant, moved)

    def _move_away(self, directory: Path) -> Path | None:
        claim = directory.parent == self._roots.claims
        for volume in (directory,) if claim else (directory / name for name in _names(directory)):
            kinds.detach_volume(volume, forever=True)
        return Trash(directory.parent / _TRASH).take(directory)

    async def _empty(self, tenant: str, directory: Path) -> None:
        while not await self._run(tenant, empty, directory, Steps(_STEPS)):
            pass

    async def _settled(self, key: str) -> None:
        last = self._last.get(key)
        if last is not None:
            await asyncio.wait({last})

    async def _serialized(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` after all earlier operations on the same key, whether they succeeded or not."""
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
            del task  # else a failure's traceback and this frame keep each other, and the content to write, alive

    def _forget(self, key: str, done: asyncio.Task[Any]) -> None:
        if self._last.get(key) is done:
            del self._last[key]
        if not done.cancelled():
            done.exception()  # marks it as retrieved, in case the caller was cancelled

    async def _run(self, tenant: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work` in a thread. An OSError becomes a NodeError."""
        try:
            return await self._threads.run(tenant, partial(work, *args, **kwargs))
        except OSError as error:
            raise failed(error) from error


def failed(error: OSError) -> NodeError:
    says = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NodeError("DiskFull", f"a volume could not be written: {says}; free space on this machine")
    return NodeError("VolumeFailed", f"a volume could not be made or removed: {says}; look at the disk of this machine")


def _tidy(memory: Path) -> None:
    for directory in (memory / _TRASH, memory):
        with contextlib.suppress(FileNotFoundError):
            directory.rmdir()


def _names(directory: Path) -> list[str]:
    """The names of pods, claims or volumes in one of our directories. Everything else there is left alone."""
    try:
        return [name for name in os.listdir(directory) if usable(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
