"""A backend that starts no process: pods take some time, get an address and become ready. Used by the simulation, by fake nodes in real
clusters, and by `--backend fake`.

Every delay and failure is derived from the seed, the pod's uid and the attempt, so a run does not depend on the order of events, and the
same uids give the same run. Annotations make a single pod behave differently, for tests. Nothing survives the process; a pod that ran before
(`Workload.was`) is restored at once as it was.

It implements the whole backend contract instead of being a Runtime below node/pods: a pod here costs a timer or two and no task, and
readiness, restoration and delays belong to the pod, which a Runtime knows nothing of.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from math import isfinite

from sandpool.base.clock import Clock, Timer
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.backend import (
    BackendError,
    Changed,
    Command,
    ContainerStatus,
    Exit,
    PodStatus,
    Probe,
    Started,
    Stats,
    Streams,
    UnknownPod,
    Unsupported,
    Waiting,
    Workload,
)
from sandpool.node.network.addresses import AddressPool
from sandpool.node.volumes.spec import VolumeSpec

NEVER_READY = "hollow.sandpool.dev/never-ready"
"""`true`: the pod starts and never becomes ready."""
EXIT_AFTER = "hollow.sandpool.dev/exit-after"
"""Seconds after its start at which each container exits, with EXIT_CODE."""
EXIT_CODE = "hollow.sandpool.dev/exit-code"
INIT_FAILURES = "hollow.sandpool.dev/init-failures"
"""How many times the first init container fails before it succeeds."""
START_ERROR = "hollow.sandpool.dev/start-error"
"""The pod fails to start with this reason."""
_CREATING, _INITIALIZING = Waiting(), Waiting("PodInitializing")


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """Ranges in seconds from which the delays of each pod are drawn."""

    seed: int = 0
    start: tuple[float, float] = (0.005, 0.05)  # from `start_pod` until the containers run
    ready: tuple[float, float] = (0.005, 0.05)  # from then until they are ready
    stop: tuple[float, float] = (
        0.001,
        0.02,
    )  # from `stop_pod` until nothing is left; never longer than the grace period
    failure_rate: float = 0.0  # the share of starts that exit with code 1 instead of becoming ready
    network: str = "10.200.0.0/16"


@dataclass(slots=True)
class _Pod:
    workload: Workload
    seen: PodStatus
    timers: dict[str, Timer] = field(default_factory=dict)  # by container, or "" for the pod
    ends_at: float = float("inf")  # monotonic, when stopping


class FakeBackend:
    name = "hollow"
    revives = True  # there is no process to lose

    def __init__(self, clock: Clock, options: FakeOptions = FakeOptions()) -> None:
        self._clock = clock
        self._options = options
        self._pods: dict[Uid, _Pod] = {}
        self._addresses = AddressPool(options.network)
        self._changed: Changed = _nobody

    async def probe(self) -> Probe:
        return Probe(available=True, message="pods are only pretended: nothing runs, so nothing needs to be enforced")

    async def open(self, changed: Changed) -> None:
        self._changed = changed

    async def close(self) -> None:
        self._changed = _nobody
        for uid in list(self._pods):
            self._remove(uid)

    def pod_status(self, uid: Uid) -> PodStatus | None:
        pod = self._pods.get(uid)
        return None if pod is None else pod.seen

    def list_pods(self) -> Collection[PodStatus]:
        return [pod.seen for pod in self._pods.values()]

    async def start_pod(self, workload: Workload) -> None:
        if workload.uid in self._pods:
            return
        reason = workload.annotations.get(START_ERROR)
        if reason:
            raise BackendError(reason, f"pod {workload.key} asks for this failure by its annotation {START_ERROR}")
        workload = replace(workload, env={}, volumes=(), credentials=())  # no process needs them
        was = workload.was
        if was is not None:
            back = replace(was, address=self._addresses.take(was.address), stopping=False)
            self._pods[workload.uid] = pod = _Pod(workload, back)
            for container in back.containers:
                self._schedule_next(pod, container)
            self._changed(workload.uid)
            return
        seen = PodStatus(
            workload.uid,
            workload.key,
            init=tuple([ContainerStatus(c.name, _INITIALIZING) for c in workload.spec.init_containers]),
            containers=tuple([ContainerStatus(c.name, _CREATING) for c in workload.spec.containers]),
        )
        self._pods[workload.uid] = pod = _Pod(workload, seen)
        self._later(pod, "", self._draw(workload.uid, "start", self._options.start), lambda: self._begin(pod))
        self._changed(workload.uid)

    async def restart_container(self, uid: Uid, container: str) -> None:
        pod = self._known(uid)
        ended = self._container(pod, container)
        if not isinstance(ended.state, Exit) or pod.seen.stopping or pod.seen.reclaimed:
            return
        begun = Started(self._clock.now(), ready=self._sidecar(pod, container))
        again = replace(ended, state=begun, restarts=ended.restarts + 1, last=ended.state)
        self._put(pod, self._named(pod, again))
        if all(init.name != container for init in pod.seen.init):
            self._schedule_next(pod, again)
        elif not self._sidecar(pod, container):
            self._later(pod, "", self._draw(uid, "start", self._options.start), lambda: self._begin(pod))

    async def stop_container(self, uid: Uid, container: str, grace: float) -> None:
        pod = self._known(uid)
        running = self._container(pod, container)
        if isinstance(running.state, Started) and not pod.seen.stopping:
            delay = max(0.0, min(grace, self._draw(uid, f"end/{container}/{running.restarts}", self._options.stop)))
            self._later(pod, f"{container} ends", delay, lambda: self._terminated(pod, container))

    async def reclaim(self, workload: Workload) -> None:
        pod = self._pods.get(workload.uid)
        if pod is None:
            known = workload.was or PodStatus(workload.uid, workload.key)
            self._pods[workload.uid] = _Pod(workload, replace(known, address="", reclaimed=True))
            self._changed(workload.uid)
        elif not pod.seen.stopping and not pod.seen.reclaimed:
            self._cancel(pod)
            self._addresses.give_back(pod.seen.address)
            self._put(pod, replace(self._ended(pod.seen), address="", paused=False, reclaimed=True))

    def _ended(self, seen: PodStatus) -> PodStatus:
        """The status after running containers were killed."""

        def killed(one: ContainerStatus) -> ContainerStatus:
            if not isinstance(one.state, Started):
                return one
            return replace(one, state=Exit(137, self._clock.now(), one.state.at, signal=9))

        return replace(seen, init=tuple(map(killed, seen.init)), containers=tuple(map(killed, seen.containers)))

    async def stop_pod(self, uid: Uid, grace: float) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        delay = max(0.0, min(grace, self._draw(uid, "stop", self._options.stop)))
        ends_at = self._clock.monotonic() + delay
        if pod.seen.stopping and ends_at >= pod.ends_at:
            return
        self._cancel(pod)
        pod.ends_at = ends_at
        self._later(pod, "", delay, lambda: self._end(uid))
        self._put(pod, replace(pod.seen, stopping=True))

    async def pause(self, uid: Uid) -> None:
        pod = self._known(uid)
        self._put(pod, replace(pod.seen, paused=True))

    async def resume(self, uid: Uid) -> None:
        pod = self._known(uid)
        self._put(pod, replace(pod.seen, paused=False))

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        self._container(self._known(uid), container)
        raise Unsupported(self.name, "run commands")

    async def attach(self, uid: Uid, container: str, streams: Streams) -> Exit:
        self._container(self._known(uid), container)
        raise Unsupported(self.name, "attach to containers")

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        self._known(uid)
        raise Unsupported(self.name, "be connected to")

    async def connect(self, uid: Uid, container: str) -> socket.socket:
        self._container(self._known(uid), container)
        raise Unsupported(self.name, "be connected to")

    def relabel(self, uid: Uid, labels: Mapping[str, str]) -> None:
        return None  # there is no network

    async def refresh(self, uid: Uid, volumes: Sequence[VolumeSpec]) -> None:
        return None  # there are no files

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
        self._container(self._known(uid), container)
        nothing: tuple[bytes, ...] = ()  # no process, no output
        for line in nothing:
            yield line

    async def stats(self, uid: Uid) -> Stats:
        self._known(uid)
        return Stats()

    # Timed steps

    def _begin(self, pod: _Pod) -> None:
        """Runs all init containers and then, unless one fails, starts all containers."""
        now = self._clock.now()
        ended = self._initialize(pod, now) if pod.seen.init else ()
        if any(isinstance(c.state, Exit) and c.state.code for c in ended):
            self._put(pod, replace(pod.seen, init=ended))
            return
        try:
            address = self._addresses.take()
        except NodeError as error:
            waiting = tuple(replace(c, state=Waiting(error.reason, error.message)) for c in pod.seen.containers)
            self._later(pod, "", 1.0, lambda: self._begin(pod))
            self._put(pod, replace(pod.seen, containers=waiting))
            return
        state, uid = Started(now), pod.seen.uid
        started = tuple([replace(c, state=state, id=f"hollow://{uid}/{c.name}") for c in pod.seen.containers])
        self._put(pod, replace(pod.seen, address=address, init=ended, containers=started))
        for container in started:
            self._schedule_next(pod, container)

    def _initialize(self, pod: _Pod, now: datetime) -> tuple[ContainerStatus, ...]:
        """The init containers after a run; sidecars keep running. After a failure, the following ones stay waiting."""
        found: list[ContainerStatus] = []
        for index, init in enumerate(pod.seen.init):
            state: Started | Exit = Exit(0, now, now)
            if self._sidecar(pod, init.name):
                state = init.state if isinstance(init.state, Started) else Started(now, ready=True)
            elif index == 0 and init.restarts < (_number(pod.workload.annotations.get(INIT_FAILURES)) or 0):
                state = Exit(1, now, now)
            found.append(replace(init, state=state, id=f"hollow://{pod.seen.uid}/{init.name}"))
            if isinstance(state, Exit) and state.code:
                return (*found, *pod.seen.init[index + 1 :])
        return tuple(found)

    def _sidecar(self, pod: _Pod, name: str) -> bool:
        return any(c.name == name and c.sidecar for c in pod.workload.spec.init_containers)

    def _terminated(self, pod: _Pod, name: str) -> None:
        state = self._container(pod, name).state
        if isinstance(state, Started):
            self._become(pod, name, Exit(143, self._clock.now(), state.at, signal=15))

    def _schedule_next(self, pod: _Pod, container: ContainerStatus) -> None:
        """Schedules what happens next to a running container."""
        state, notes = container.state, pod.workload.annotations
        if not isinstance(state, Started):
            return
        attempt = f"{container.name}/{container.restarts}"
        ends_after = _number(notes.get(EXIT_AFTER))
        rate = self._options.failure_rate
        if rate > 0 and not state.ready and self._chance(pod.seen.uid, f"fail/{attempt}") < rate:
            self._step(pod, container, f"ready/{attempt}", lambda now: Exit(1, now, state.at))
            return
        if not state.ready and notes.get(NEVER_READY) != "true":
            self._step(pod, container, f"ready/{attempt}", lambda now: replace(state, ready=True))
        if ends_after is not None:
            left = ends_after - (self._clock.now() - state.at).total_seconds()
            code = int(_number(notes.get(EXIT_CODE)) or 0)
            self._later(
                pod,
                f"{container.name} ends",
                left,
                lambda: self._become(pod, container.name, Exit(code, self._clock.now(), state.at)),
            )

    def _step(
        self, pod: _Pod, container: ContainerStatus, what: str, state: Callable[[datetime], Started | Exit]
    ) -> None:
        delay = self._draw(pod.seen.uid, what, self._options.ready)
        self._later(pod, container.name, delay, lambda: self._become(pod, container.name, state(self._clock.now())))

    def _become(self, pod: _Pod, name: str, state: Started | Exit) -> None:
        container = self._container(pod, name)
        if not isinstance(container.state, Exit):
            self._put(pod, self._named(pod, replace(container, state=state)))

    def _end(self, uid: Uid) -> None:
        self._remove(uid)
        self._changed(uid)

    # Memory

    def _known(self, uid: Uid) -> _Pod:
        pod = self._pods.get(uid)
        if pod is None:
            raise UnknownPod(uid)
        return pod

    def _container(self, pod: _Pod, name: str) -> ContainerStatus:
        seen = pod.seen
        for container in (*seen.containers, *seen.init) if seen.init else seen.containers:
            if container.name == name:
                return container
        raise UnknownPod(pod.seen.uid, name)

    def _named(self, pod: _Pod, container: ContainerStatus) -> PodStatus:
        """The pod's status with this container replaced."""
        name, seen = container.name, pod.seen
        init = tuple([container if c.name == name else c for c in seen.init])
        containers = tuple([container if c.name == name else c for c in seen.containers])
        return replace(seen, init=init, containers=containers)

    def _put(self, pod: _Pod, seen: PodStatus) -> None:
        if seen != pod.seen:
            pod.seen = seen
            self._changed(seen.uid)

    def _remove(self, uid: Uid) -> None:
        pod = self._pods.pop(uid)
        self._cancel(pod)
        self._addresses.give_back(pod.seen.address)

    def _cancel(self, pod: _Pod) -> None:
        for timer in pod.timers.values():
            timer.cancel()
        pod.timers.clear()

    def _later(self, pod: _Pod, about: str, seconds: float, then: Callable[[], object]) -> None:
        def due() -> None:
            del pod.timers[about]
            then()

        known = pod.timers.get(about)
        if known is not None:
            known.cancel()
        pod.timers[about] = self._clock.call_later(max(0.0, seconds), due)

    def _chance(self, uid: Uid, what: str) -> float:
        """A pseudo-random number from 0 to 1, always the same for the same arguments."""
        words = f"{self._options.seed}/{uid}/{what}".encode()
        return int.from_bytes(blake2b(words, digest_size=6).digest(), "big") / 2**48

    def _draw(self, uid: Uid, what: str, between: tuple[float, float]) -> float:
        low, high = between
        return low + (high - low) * self._chance(uid, what)


def _number(text: str | None) -> float | None:
    """The number in an annotation, if it is one."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) else None


def _nobody(uid: Uid) -> None:
    return None
