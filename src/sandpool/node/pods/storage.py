"""A pod's use of ephemeral storage, and its eviction: the pod as the disk guard sees it (Occupant in disk/usage.py).

Counted as Kubernetes does: the writable layers and logs of its containers, and its emptyDirs on disk. Deleted files count while a
process holds them open; a volume that is a file system in a file counts as that file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.disk.usage import Limits, Used, nearest_limit
from sandpool.node.pods.directories import LOGS, MESSAGES
from sandpool.node.pods.hidden import TOO_MANY, hidden, written
from sandpool.node.pods.limits import storage_limits
from sandpool.node.runtimes.contract import Sandbox
from sandpool.node.volumes.loop_image import disk_usage
from sandpool.node.volumes.spec import Claim, EmptyDir

if TYPE_CHECKING:
    from sandpool.node.pods.pod import Pod

_TRIES, _MOMENT = 3, 0.05  # seconds
_REST = ""  # the pod's own directory beside those of its containers


class PodStorage:
    def __init__(self, pod: Pod, clock: Clock) -> None:
        self._pod = pod
        self._clock = clock
        self.uid: Uid = pod.workload.uid
        self.limits = storage_limits(pod.workload)
        volumes = pod.workload.volumes
        self._promised = {spec.name: spec.source.size or 0 for spec in volumes if isinstance(spec.source, Claim)}
        self.over = False
        self.began_empty = pod.workload.was is None
        self._last = Used()
        self._unstopped = False
        # The last measurement while frozen: what the pod used, and what each process had written.
        self._sure: tuple[Used, Mapping[int, int]] = (Used(), {})

    async def measure(self, *, thorough: bool) -> Used:
        pod = self._pod
        if not pod.sandbox.made or self.over:
            return self._last  # no process that could write
        sandbox, directory = pod.sandbox.require(), pod.sandbox.directory
        layers = await pod.threads.run(partial(layer_directories, directory.path, tuple(pod.containers)))
        volumes = self._paths(EmptyDir)
        claims = self._paths(Claim) if thorough else {}
        # Volumes first: a file of theirs that is mounted has a name beside its container's layers, too.
        paths = [*volumes.values(), *claims.values(), *(path for paths in layers.values() for path in paths)]
        walk = asyncio.ensure_future(sandbox.measure(paths))
        try:
            if self._unstopped and await self._outrun(sandbox, walk):
                return replace(self._last, hidden=TOO_MANY)
        except BaseException:
            walk.cancel()
            raise
        sizes = dict(zip(paths, await walk, strict=True))
        unnamed = await self._hidden(sandbox, directory.path)
        images = await pod.threads.run(partial(self._images, volumes))
        besides = await self._hidden_in_claims(sandbox, directory.path) if thorough else 0
        if self.over:  # meanwhile
            return self._last
        self._last = Used(
            {name: sum(sizes[path][0] for path in paths) for name, paths in layers.items()},
            {name: max(sizes[path][0], images.get(name, 0)) for name, path in volumes.items()},
            unnamed,
            besides + sum(max(0, sizes[path][0] - self._size(name)) for name, path in claims.items()),
            sum(inodes for _, inodes in sizes.values()),
        )
        if not self._unstopped:
            self._sure = self._last, await self._written(sandbox)
        return self._last

    async def keep_logs(self) -> None:
        """Only logs are left, and the limits of a running pod do not apply to them."""
        pod, self.over, self.limits = self._pod, True, Limits()
        logs = await pod.threads.run(partial(log_sizes, pod.sandbox.directory.path / LOGS, tuple(pod.containers)))
        self._last = Used(
            {name: size for name, (size, _) in logs.items()}, inodes=sum(found for _, found in logs.values())
        )

    async def _outrun(self, sandbox: Sandbox, walk: asyncio.Future[list[tuple[int, int]]]) -> bool:
        """Whether a pod that cannot be frozen, because it is in the middle of system calls that write gigabytes, has written more than it may
        while its files are still being measured: some of them may have no name and be in no file table."""
        used, before = self._sure
        slack, allowance = nearest_limit(used, self.limits)
        while slack is not None:
            now = await self._written(sandbox)
            if sum(max(0, size - before.get(pid, 0)) for pid, size in now.items()) > slack + allowance // 2:
                walk.add_done_callback(lambda done: done.cancelled() or done.exception())
                return True
            if walk.done():
                break
            await asyncio.wait({walk}, timeout=_MOMENT)
        return False

    async def _hidden(self, sandbox: Sandbox, directory: Path) -> int:
        """Retries what cannot be inspected: a moment later the connection may be accepted or the message read. If not, it counts as more
        than any limit, so that nothing can be hidden there."""
        for again in range(_TRIES):
            if again:
                with contextlib.suppress(NodeError):  # it is measured anyway
                    await self.thaw()
                    await self._clock.sleep(_MOMENT)
                    await self.freeze()
            pids = await sandbox.processes()
            found = await self._pod.search_threads.run(partial(hidden, pids, self.uid, directory))
            if found is not None:
                return found
        return TOO_MANY

    async def _hidden_in_claims(self, sandbox: Sandbox, directory: Path) -> int:
        """Counted here, because otherwise other pods would be evicted for it."""
        pids = await sandbox.processes()
        return await self._pod.search_threads.run(partial(hidden, pids, self.uid, directory, claims=True)) or 0

    async def _written(self, sandbox: Sandbox) -> Mapping[int, int]:
        """Not in the threads of searches: those of other pods of the namespace may take long, while this one writes on."""
        return await self._pod.threads.run(partial(written, await sandbox.processes()))

    def _paths(self, kind: type[EmptyDir] | type[Claim]) -> Mapping[str, Path]:
        """The paths of its volumes of one kind on disk."""
        made = self._pod.sandbox.volumes or {}
        named = [spec.name for spec in self._pod.workload.volumes if isinstance(spec.source, kind)]
        return {name: made[name].path for name in named if name in made and made[name].path is not None}  # type: ignore[misc]

    def _images(self, volumes: Mapping[str, Path]) -> dict[str, int]:
        """What those of them take that are file systems of their own: no walk finds what has no name there. Their own tables alone are
        never past a limit. Blocks."""
        made = self._pod.sandbox.volumes or {}
        found = {}
        for name, directory in volumes.items():
            if name in made and (image := made[name].image) is not None:
                with contextlib.suppress(OSError):  # just being removed
                    size = disk_usage(image, directory)
                    found[name] = min(size, self.limits.volumes.get(name, size))
        return found

    def _size(self, volume: str) -> int:
        """The requested size of a persistent volume."""
        return self._promised.get(volume, 0)

    async def freeze(self) -> None:
        self._unstopped = True
        await self._pod.freeze()
        self._unstopped = False

    async def thaw(self) -> None:
        await self._pod.thaw()

    def evict(self, message: str) -> None:
        self._pod.evict(message)


def layer_directories(directory: Path, containers: tuple[str, ...]) -> dict[str, list[Path]]:
    """The directories of a pod by container: its writable layers and its logs. The rest counts for the pod. Blocks."""
    found: dict[str, list[Path]] = {name: [directory / LOGS / name] for name in containers}
    found[_REST] = [directory / MESSAGES]
    try:
        names = os.listdir(directory / "sandbox")
    except OSError:
        names = []
    for name in names:
        owner, _, number = name.rpartition("-")
        found[owner if number.isdigit() and owner in found else _REST].append(directory / "sandbox" / name)
    return found


def log_sizes(directory: Path, containers: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """The bytes and inodes that the logs of a pod take, by container. Only we write there. Blocks."""
    found = {}
    for name in containers:
        with contextlib.suppress(FileNotFoundError), os.scandir(directory / name) as entries:
            sizes = [entry.stat(follow_symlinks=False).st_blocks * 512 for entry in entries]
            found[name] = sum(sizes), len(sizes) + 1
    return found
