"""The backend for real pods: one worker per pod (pod.py), on one runtime. Implements the contract of node/backend.py."""

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
    PodStatus,
    Probe,
    Stats,
    Streams,
    UnknownPod,
    Waiting,
    Workload,
)
from sandpool.node.disk.usage import Occupant
from sandpool.node.images.image import Images
from sandpool.node.network.contract import Network
from sandpool.node.pods import notes
from sandpool.node.pods.containers import exit_of
from sandpool.node.pods.context import PodContext, PodsOptions, RunContext
from sandpool.node.pods.directories import LeftoverPods, PodDirectories
from sandpool.node.pods.logs import files
from sandpool.node.pods.logs.reading import Wanted, read_log
from sandpool.node.pods.pod import Pod
from sandpool.node.pods.security import check_pod
from sandpool.node.pods.takeover import close_files, take_over
from sandpool.node.pods.threads import Threads
from sandpool.node.runtimes.contract import FoundSandbox, Runtime, Sandbox
from sandpool.node.volumes.spec import Volumes, VolumeSpec
from sandpool.telemetry.log import logger

log = logger(__name__)
_THREADS = 5  # of which one namespace has at most four


class PodsBackend:
    """Images, volumes and the network are shared with others and closed by the caller."""

    revives = False  # what `open` has not found running is started again

    def __init__(
        self,
        runtime: Runtime,
        images: Images,
        volumes: Volumes,
        network: Network,
        clock: Clock,
        directory: Path,
        options: PodsOptions = PodsOptions(),
    ) -> None:
        self.runtime = runtime
        self._images = images
        self._volumes = volumes
        self._network = network
        self._clock = clock
        self._options = options
        self._directories = PodDirectories(directory)
        self._changed: Changed = _nobody
        self.pods: dict[Uid, Pod] = {}
        self._tasks: dict[Uid, asyncio.Task[None]] = {}
        self._leftovers: LeftoverPods | None = None
        self._run_context: RunContext | None = None

    @property
    def name(self) -> str:
        return self.runtime.name

    async def probe(self) -> Probe:
        return await self.runtime.probe()

    async def open(self, changed: Changed) -> None:
        threads = Threads("pods", _THREADS)
        self._run_context = RunContext(
            self._clock, threads, Threads("logs", _THREADS), Threads("searches", _THREADS), self._options
        )
        self._changed = changed
        try:
            await self.runtime.open()
            for found in await self.runtime.find():
                await self._restore(found)
            self._leftovers = LeftoverPods(self._directories, self._volumes, self._clock, threads)
            await self._leftovers.find(self._options.kept, self.pods)
        except OSError as error:
            await self.close()
            raise BackendError(
                "DirectoryUnusable", f"files of pods of an earlier process cannot be removed: {error}"
            ) from error
        except BaseException:
            await self.close()
            raise

    async def _restore(self, found: FoundSandbox[Sandbox]) -> None:
        """Takes over a pod that runs since an earlier process, or ends what is left of it: then it is started anew."""
        try:
            workload = notes.workload_of(found.notes.get(notes.POD, {}))
            known = notes.known_pod(found.notes.get(notes.STATE, {}))
        except notes.NotUnderstood:
            close_files(found.containers)
            await self._give_up(found, "its notes are missing, or of another version")
            return
        context = self._context(workload.key.namespace)
        pod = Pod(workload, context)
        try:
            await take_over(pod, found, known, context)
        except NodeError as error:
            await self._give_up(found, error.message)
            return
        self.pods[workload.uid] = pod
        self._tasks[workload.uid] = asyncio.create_task(self._run_pod(pod))

    async def _give_up(self, found: FoundSandbox[Sandbox], why: str) -> None:
        log.warning("a running pod cannot be taken over, and is ended", uid=found.plan.id, error=why)
        try:
            await found.sandbox.destroy()
        except NodeError as error:
            log.warning("a sandbox was not removed completely", uid=found.plan.id, error=error.message)

    async def close(self) -> None:
        self._changed = _nobody
        if self._leftovers is not None:
            await self._leftovers.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.gather(*(self._end_pod(pod) for pod in self.pods.values()))
        self.pods.clear()
        self._tasks.clear()
        await self.runtime.close()
        if self._run_context is not None:
            self._run_context.close()
            self._run_context = None

    async def _end_pod(self, pod: Pod) -> None:
        try:
            await pod.end_all()
        except Exception as error:  # closing the runtime comes next and must not be skipped
            log.warning("pod not ended", pod=str(pod.workload.key), error=str(error))
            await pod.sandbox.detach()
        self._images.release(pod.workload.holder)

    def pod_status(self, uid: Uid) -> PodStatus | None:
        pod = self.pods.get(uid)
        return None if pod is None else pod.seen

    def list_pods(self) -> Collection[PodStatus]:
        return [pod.seen for pod in self.pods.values()]

    def occupants(self) -> Iterable[Occupant]:
        """The pods of this backend, for the disk guard."""
        return [pod.storage for pod in self.pods.values()]

    async def start_pod(self, workload: Workload) -> None:
        if (pod := self.pods.get(workload.uid)) is not None:
            await pod.complete(workload)
            return
        check_pod(workload.spec)
        await self._take_over(Pod(workload, self._context(workload.key.namespace)))

    async def reclaim(self, workload: Workload) -> None:
        known = self.pods.get(workload.uid)
        if known is not None:
            known.reclaim()
        else:
            await self._take_over(Pod(workload, self._context(workload.key.namespace), over=True))

    async def _take_over(self, pod: Pod) -> None:
        uid = pod.workload.uid
        if self._leftovers is not None:
            await self._leftovers.take(uid)
        if uid in self.pods:  # accepted meanwhile by a concurrent call
            return
        self.pods[uid] = pod
        self._tasks[uid] = asyncio.create_task(self._run_pod(pod))
        self._changed(uid)

    async def _run_pod(self, pod: Pod) -> None:
        uid = pod.workload.uid
        await pod.run()
        del self.pods[uid], self._tasks[uid]
        self._changed(uid)

    async def restart_container(self, uid: Uid, container: str) -> None:
        self._known(uid).restart(container)

    async def stop_container(self, uid: Uid, container: str, grace: float) -> None:
        self._known(uid).end(container, grace)

    async def stop_pod(self, uid: Uid, grace: float) -> None:
        pod = self.pods.get(uid)
        if pod is not None:
            pod.stop(grace)

    async def pause(self, uid: Uid) -> None:
        await self._known(uid).pause()

    async def resume(self, uid: Uid) -> None:
        await self._known(uid).resume()

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        pod = self._known(uid)
        run = pod.run_of(container)
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
        run = self._known(uid).run_of(container)
        began = self._clock.now()
        return exit_of(await run.attach(streams), began, self._clock.now(), "")

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        pod = self._known(uid)
        try:
            return await pod.sandbox.require().dial(port)
        except BackendError:
            raise
        except NodeError as error:
            raise BackendError(error.reason, error.message) from error

    async def connect(self, uid: Uid, container: str) -> socket.socket:
        run = self._known(uid).run_of(container)
        try:
            return await run.container.connect()
        except BackendError:
            raise
        except NodeError as error:
            raise BackendError(error.reason, error.message) from error

    def relabel(self, uid: Uid, labels: Mapping[str, str]) -> None:
        pod = self.pods.get(uid)
        if pod is not None:
            pod.relabel(labels)

    async def refresh(self, uid: Uid, volumes: Sequence[VolumeSpec]) -> None:
        pod = self.pods.get(uid)
        if pod is not None:
            await pod.sandbox.refresh(volumes)

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
        found = pod.container(container)
        directory = pod.sandbox.directory.log(container)
        threads = pod.log_threads
        run = found.restarts - 1 if previous else found.restarts
        known = await threads.run(partial(files.runs, directory))
        growth = found.run.output.growth if found.run is not None and not previous else None
        if not previous and not found.ran and known:
            run = known[-1]  # the next run has not begun: use the last one
        if run not in known:
            raise BackendError("BadRequest", _no_log(pod, container, previous=previous))
        wanted = Wanted(follow, tail, since, timestamps, limit)
        async for text in read_log(directory, run, wanted, growth, threads):
            yield text

    async def stats(self, uid: Uid) -> Stats:
        pod = self._known(uid)
        return await pod.sandbox.require().stats() if pod.sandbox.made else Stats()

    def _context(self, tenant: str) -> PodContext:
        run_context = self._run_context
        assert run_context is not None, "opened first"
        return PodContext(
            self.runtime,
            self._images,
            self._volumes,
            self._network,
            self._directories,
            run_context.of(tenant),
            self._notify,
        )

    def _notify(self, uid: Uid) -> None:
        self._changed(uid)

    def _known(self, uid: Uid) -> Pod:
        pod = self.pods.get(uid)
        if pod is None:
            raise UnknownPod(uid)
        return pod


def _no_log(pod: Pod, container: str, *, previous: bool) -> str:
    name = pod.workload.key.name
    if previous:
        return f'previous terminated container "{container}" in pod "{name}" not found'
    found = pod.container(container)
    why = found.state.reason if isinstance(found.state, Waiting) else "it has no log"
    return f'container "{container}" in pod "{name}" is waiting to start: {why}'


def _nobody(uid: Uid) -> None:
    return None
