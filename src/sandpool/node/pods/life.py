"""The life of a pod: everything that is decided about its sandbox and its containers. Pure: no I/O, no clock, no logging.

There are two questions, and one set of rules for both.

`orders` and `phase_of` answer the kubelet, which knows the pod's policies: which containers that exited are restarted, and when
(restarts.py has the rules); which ones must stop; whether the pod has ended. `next_step` answers the pod's worker (pod.py), which
carries it out: the sandbox is made (with volumes and an address), init containers run one after the other, then the
other containers start. A pod that is stopped gets its signal and its grace period, and is removed. A pod that is over keeps its logs
and nothing else. Every step may be repeated; one that failed is planned again after its delay. No step needs the API to go on.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Protocol

from msgspec import Struct

from sandpool.model.metadata import Uid
from sandpool.model.pod import Phase
from sandpool.node.backend import Exit, PodStatus, Started, State, Waiting, WorkloadSpec
from sandpool.node.pods.context import PodsOptions
from sandpool.node.pods.restarts import RestartPace, due_at, policy_of, restarts

# The containers of a pod that runs, as its policies want them

OVER = (Phase.SUCCEEDED, Phase.FAILED)


class RestartContainer(Struct, frozen=True):
    uid: Uid
    container: str

    def __str__(self) -> str:
        return f"restart {self.container}"


class StopContainer(Struct, frozen=True):
    """Stops one container; the pod stays."""

    uid: Uid
    container: str
    grace: float

    def __str__(self) -> str:
        return f"end {self.container} within {self.grace:g} s"


Order = RestartContainer | StopContainer


def orders(
    seen: PodStatus, spec: WorkloadSpec, failed: Mapping[str, float], grace: float, pace: RestartPace, now: datetime
) -> tuple[list[Order], list[datetime]]:
    """What is due for the containers of a pod, and when more will be. `failed` are the containers whose probes want them
    stopped, with their grace periods; `grace` is the pod's."""
    found: list[Order] = []
    moments: list[datetime] = []
    if seen.stopping:
        return found, moments
    if aim_of(seen, spec) in OVER:
        found += [StopContainer(seen.uid, name, grace) for name in running_sidecars(seen, spec)]
        return found, moments
    found += [StopContainer(seen.uid, name, its_grace) for name, its_grace in failed.items()]
    for container in (*seen.init, *seen.containers):
        state = container.state
        if isinstance(state, Exit) and restarts(policy_of(spec, container.name), state):
            due = due_at(container, state, pace)
            if due <= now:
                found.append(RestartContainer(seen.uid, container.name))
            else:
                moments.append(due)
    return found, moments


def phase_of(seen: PodStatus, spec: WorkloadSpec) -> Phase:
    """The phase of a pod; it has ended only when its sidecars have exited, too."""
    phase = aim_of(seen, spec)
    if phase in OVER and running_sidecars(seen, spec):
        return Phase.RUNNING
    return phase


def aim_of(seen: PodStatus, spec: WorkloadSpec) -> Phase:
    """The phase without regard to sidecars that still run."""
    if incomplete(seen, spec):
        ends = [(c.name, c.state) for c in seen.init if isinstance(c.state, Exit)]
        failed = any(end.code and not restarts(policy_of(spec, name), end) for name, end in ends)
        return Phase.FAILED if failed else Phase.PENDING
    ended: list[Exit] = []
    for container in seen.containers:
        if isinstance(container.state, Exit):
            ended.append(container.state)
        elif not isinstance(container.state, Started):
            return Phase.PENDING
    if len(ended) < len(seen.containers) or any(restarts(spec.restart_policy, end) for end in ended):
        return Phase.RUNNING
    return Phase.FAILED if any(end.code for end in ended) else Phase.SUCCEEDED


def running_sidecars(seen: PodStatus, spec: WorkloadSpec) -> list[str]:
    if not spec.init_containers:
        return []
    sidecars = {init.name for init in spec.init_containers if init.sidecar}
    return [init.name for init in seen.init if init.name in sidecars and isinstance(init.state, Started)]


def incomplete(seen: PodStatus | None, spec: WorkloadSpec, starting: Container[str] = ()) -> list[str]:
    """The init containers that have not succeeded, and the sidecars that have never started. `starting`: containers that run and
    have not passed their startup probe or hook."""
    if not spec.init_containers:
        return []
    begun = seen is not None and any(isinstance(c.state, Started | Exit) for c in seen.containers)
    states = {c.name: c.state for c in seen.init} if seen is not None else {}
    found = []
    for init in spec.init_containers:
        state = states.get(init.name)
        if init.sidecar:
            done = begun or (isinstance(state, Started) and init.name not in starting)
        else:
            done = isinstance(state, Exit) and state.code == 0
        if not done:
            found.append(init.name)
    return found


# The steps of a pod's worker


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something failed. It is tried again at `retry_at`; times are monotonic."""

    reason: str
    message: str
    since: float
    retry_at: float
    count: int = 1


class ContainerView(Protocol):
    """A container as `next_step` reads it; `state.ContainerState` is one."""

    @property
    def name(self) -> str: ...

    @property
    def init(self) -> bool: ...

    @property
    def sidecar(self) -> bool: ...

    @property
    def state(self) -> State: ...

    @property
    def again(self) -> bool:
        """Whether it has exited and its restart was requested."""
        ...

    @property
    def trouble(self) -> Trouble | None: ...


@dataclass(slots=True)
class PodState:
    """What a worker knows of its pod beside the containers. Times are monotonic."""

    made: bool = False  # there is a sandbox, with volumes and an address
    initialized: bool = False  # all init containers have succeeded; not checked again
    over: bool = False  # nothing is started any more
    reclaimed: bool = False  # nothing is left of it but its logs
    ends_at: float = inf  # end of the grace period; finite: the pod is being stopped
    signalled: bool = False  # the containers were sent their stop signals
    paused: bool = False
    evicted: str = ""
    found: bool = False  # it runs since an earlier process; what the API knows of it, without which nothing can be started, is not here yet
    trouble: Trouble | None = None

    @property
    def stopping(self) -> bool:
        return self.ends_at < inf


@dataclass(frozen=True, slots=True)
class RunSandbox:
    """Makes volumes, sandbox and address."""


@dataclass(frozen=True, slots=True)
class StartContainer:
    container: str


@dataclass(frozen=True, slots=True)
class SignalContainers:
    """Sends each running container its stop signal."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Releases everything but the logs of a pod that has ended. Quotas do not count such a pod, so it may not hold anything that they
    limit."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Kills what still runs and removes everything."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something changes, or until then."""

    until: float = inf


Step = RunSandbox | StartContainer | SignalContainers | Reclaim | Remove | Wait


def next_step(pod: PodState, containers: Collection[ContainerView], now: float) -> Step:
    if pod.ends_at < inf:
        return _stop(pod, containers, now)
    if pod.over:
        return Wait() if pod.reclaimed else _after(pod.trouble, now) or Reclaim()
    if pod.found:
        return Wait()
    if not pod.made:
        return _after(pod.trouble, now) or RunSandbox()
    if pod.paused:
        return Wait()  # a process started in a frozen sandbox would freeze, too
    if not pod.initialized:
        for one in containers:
            if one.init and not _passed(one):
                return _start((one,), now)
    return _start([one for one in containers if not one.init or one.sidecar], now)


def _stop(pod: PodState, containers: Iterable[ContainerView], now: float) -> Step:
    if now < pod.ends_at and any(isinstance(one.state, Started) for one in containers):
        return Wait(pod.ends_at) if pod.signalled else SignalContainers()
    return _after(pod.trouble, now) or Remove()


def _passed(init: ContainerView) -> bool:
    """Whether the containers after this init container may start."""
    state = init.state
    if init.sidecar:
        return not isinstance(state, Waiting)
    return isinstance(state, Exit) and state.code == 0 and not init.again


def _start(containers: Iterable[ContainerView], now: float) -> Step:
    """Starts the first container that is due; one that failed to start does not delay those after it."""
    waits = []
    for one in containers:
        if isinstance(one.state, Waiting) or (isinstance(one.state, Exit) and one.again):
            wait = _after(one.trouble, now)
            if wait is None:
                return StartContainer(one.name)
            waits.append(wait.until)
    return Wait(min(waits, default=inf))


def _after(trouble: Trouble | None, now: float) -> Wait | None:
    if trouble is None or trouble.retry_at <= now:
        return None
    changes = _message_changes(trouble)
    return Wait(changes if changes > now else trouble.retry_at)


# Failures and their delays

_PULLS = ("ErrImagePull", "ImagePullBackOff")
_SHOWN = 2.0  # seconds for which a failed pull is shown as such, before it is shown as waiting for the next attempt


def troubled(
    before: Trouble | None, reason: str, message: str, now: float, options: PodsOptions = PodsOptions()
) -> Trouble:
    """Records one more failure; the delay doubles."""
    count = 1 if before is None else before.count + 1
    first = options.first_pull_retry if reason in _PULLS else options.first_retry
    delay = min(options.longest_retry, first * 2.0 ** min(count - 1, 32))
    return Trouble(reason, message, now, now + delay, count)


def waiting(trouble: Trouble, image: str, now: float) -> Waiting:
    """The waiting state of a container whose start failed."""
    if trouble.reason in _PULLS and _message_changes(trouble) <= now:
        return Waiting("ImagePullBackOff", f'Back-off pulling image "{image}": {trouble.message}')
    return Waiting(trouble.reason, trouble.message)


def _message_changes(trouble: Trouble) -> float:
    return min(trouble.retry_at, trouble.since + _SHOWN) if trouble.reason in _PULLS else trouble.retry_at
