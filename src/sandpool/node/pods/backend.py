"""Real pods on any runtime: the contract of node/backend.py. What becomes of a pod is in pod.py, decided by life.py."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.backend import (
    BackendError,
    Changed,
    Command,
    Exit,
    Probe,
    Running,
    Stats,
    Streams,
    UnknownPod,
    Waiting,
    Workload,
)
from sandpool.node.disk.port import Occupant
from sandpool.node.images.port import Images
from sandpool.node.network.port import Network
from sandpool.node.pods.ends import exit_of
from sandpool.node.pods.folders import Folders
from sandpool.node.pods.left import Left
from sandpool.node.pods.logs import files
from sandpool.node.pods.logs.reading import Wanted, read_log
from sandpool.node.pods.options import PodsOptions
from sandpool.node.pods.parts import Parts
from sandpool.node.pods.pod import Pod
from sandpool.node.pods.run import Around
from sandpool.node.pods.security import check_pod
from sandpool.node.pods.threads import Threads
from sandpool.node.runtimes.contract import Runtime
from sandpool.node.volumes.port import Volumes
from sandpool.node.volumes.spec import VolumeSpec
from sandpool.telemetry.log import logger

log = logger(__name__)
_THREADS = 4


class PodsBackend:
    """Images, volumes and the network are shared with others: whoever made them closes them."""

    revives = False  # processes end with this one; the pod is started anew

    def __init__(
        self,
        runtime: Runtime,
        images: Images,
        volumes: Volumes,
        network: Network,
        clock: Clock,
        folder: Path,
        options: PodsOptions = PodsOptions(),
    ) -> None:
        self._runtime = runtime
        self._images = images
        self._volumes = volumes
        self._network = network
        self._clock = clock
        self._options = options
        self._folders = Folders(folder)
        self._changed: Changed = _nobody
        self._pods: dict[Uid, Pod] = {}
        self._tasks: dict[Uid, asyncio.Task[None]] = {}
        self._left: Left | None = None
        self._around: Around | None = None

    @property
    def name(self) -> str:
        return self._runtime.name

    async def probe(self) -> Probe:
        return await self._runtime.probe()

    async def open(self, changed: Changed) -> None:
        threads = Threads("pods", _THREADS)
        self._around = Around(self._clock, threads, Threads("logs", _THREADS), self._options)
        self._changed = changed
        try:
            await self._runtime.open()
            self._left = Left(self._folders, self._volumes, self._clock, threads)
            await self._left.find(self._options.kept)
        except OSError as error:
            await self.close()
            raise BackendError("FolderUnusable", f"what an earlier process left cannot be removed: {error}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._changed = _nobody
        if self._left is not None:
            await self._left.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.gather(*(self._leave(pod) for pod in self._pods.values()))
        self._pods.clear()
        self._tasks.clear()
        await self._runtime.close()
        if self._around is not None:
            self._around.threads.close()
            self._around.log_threads.close()
            self._around = None

    async def _leave(self, pod: Pod) -> None:
        try:
            await pod.leave()
        except Exception as error:  # the runtime's own end comes after this one
            log.warning("pod not ended", pod=str(pod.workload.key), error=str(error))
            await pod.room.detach()
        self._images.release(pod.workload.holder)

    def look(self, uid: Uid) -> Running | None:
        pod = self._pods.get(uid)
        return None if pod is None else pod.seen

    def running(self) -> Collection[Running]:
        return [pod.seen for pod in self._pods.values()]

    def occupants(self) -> Iterable[Occupant]:
        """Its pods, for whoever watches the disk."""
        return [pod.storage for pod in self._pods.values()]

    async def start(self, workload: Workload) -> None:
        if workload.uid in self._pods:
            return
        check_pod(workload.spec)
        await self._take_over(Pod(workload, self._parts()))

    async def reclaim(self, workload: Workload) -> None:
        known = self._pods.get(workload.uid)
        if known is not None:
            known.reclaim()
        else:
            await self._take_over(Pod(workload, self._parts(), over=True))

    async def _take_over(self, pod: Pod) -> None:
        uid = pod.workload.uid
        if self._left is not None:
            await self._left.take(uid)
        if uid in self._pods:  # by somebody who waited for the same
            return
        self._pods[uid] = pod
        self._tasks[uid] = asyncio.create_task(self._live(pod))
        self._changed(uid)

    async def _live(self, pod: Pod) -> None:
        uid = pod.workload.uid
        await pod.run()
        del self._pods[uid], self._tasks[uid]
        self._changed(uid)

    async def restart(self, uid: Uid, container: str) -> None:
        self._known(uid).restart(container)

    async def end(self, uid: Uid, container: str, grace: float) -> None:
        self._known(uid).end(container, grace)

    async def stop(self, uid: Uid, grace: float) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            pod.stop(grace)

    async def pause(self, uid: Uid) -> None:
        await self._known(uid).pause()

    async def resume(self, uid: Uid) -> None:
        await self._known(uid).resume()

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        pod = self._known(uid)
        run = pod.running(container)
        if pod.paused:
            raise BackendError("Paused", f"pod {pod.workload.key} is paused; resume it first")
        if not command.argv:
            raise BackendError("BadRequest", "you must specify at least one command for the container")
        began = self._clock.now()
        try:
            return exit_of(await run.exec(command, streams), began, self._clock.now(), "")
        except NodeError as error:
            raise BackendError(error.reason, error.message) from error

    async def attach(self, uid: Uid, container: str, streams: Streams) -> Exit:
        run = self._known(uid).running(container)
        began = self._clock.now()
        return exit_of(await run.attach(streams), began, self._clock.now(), "")

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        pod = self._known(uid)
        try:
            return await pod.room.there().dial(port)
        except BackendError:
            raise
        except NodeError as error:
            raise BackendError(error.reason, error.message) from error

    async def connect(self, uid: Uid, container: str) -> socket.socket:
        run = self._known(uid).running(container)
        try:
            return await run.container.connect()
        except BackendError:
            raise
        except NodeError as error:
            raise BackendError(error.reason, error.message) from error

    def relabel(self, uid: Uid, labels: Mapping[str, str]) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            pod.relabel(labels)

    async def refresh(self, uid: Uid, volumes: Sequence[VolumeSpec]) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            await pod.room.refresh(volumes)

    async def logs(
        self,
        uid: Uid,
        container: str,
        *,
        previous: bool = False,
        follow: bool = False,
        tail: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[bytes]:
        pod = self._known(uid)
        slot = pod.slot(container)
        folder = pod.room.folder.log(container)
        threads = self._parts().around.log_threads
        run = slot.restarts - 1 if previous else slot.restarts
        known = await threads.run(partial(files.runs, folder))
        growth = slot.run.output.growth if slot.run is not None and not previous else None
        if not previous and not slot.ran and known:
            run = known[-1]  # the next run has not begun: the last one is what there is
        if run not in known:
            raise BackendError("BadRequest", _no_log(pod, container, previous=previous))
        wanted = Wanted(follow, tail, since, timestamps, limit)
        async for text in read_log(folder, run, wanted, growth, threads):
            yield text

    async def stats(self, uid: Uid) -> Stats:
        pod = self._known(uid)
        return await pod.room.there().stats() if pod.room.made else Stats()

    def _parts(self) -> Parts:
        around = self._around
        assert around is not None, "opened first"
        return Parts(self._runtime, self._images, self._volumes, self._network, self._folders, around, self._tell)

    def _tell(self, uid: Uid) -> None:
        self._changed(uid)

    def _known(self, uid: Uid) -> Pod:
        pod = self._pods.get(uid)
        if pod is None:
            raise UnknownPod(uid)
        return pod


def _no_log(pod: Pod, container: str, *, previous: bool) -> str:
    name = pod.workload.key.name
    if previous:
        return f'previous terminated container "{container}" in pod "{name}" not found'
    slot = pod.slot(container)
    why = slot.state.reason if isinstance(slot.state, Waiting) else "it has no log"
    return f'container "{container}" in pod "{name}" is waiting to start: {why}'


def _nobody(uid: Uid) -> None:
    return None
