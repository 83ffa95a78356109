"""What a pod's worker knows of each container, from run to run, and the snapshot of the pod that others see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from sandpool.node.backend import (
    SANDBOX_LOST,
    ContainerSpec,
    ContainerStatus,
    Exit,
    PodStatus,
    Started,
    State,
    Waiting,
    Workload,
)
from sandpool.node.pods.life import PodState, Trouble, waiting
from sandpool.node.pods.run import Run


@dataclass(slots=True)
class ContainerState:
    spec: ContainerSpec
    init: bool
    state: State
    id: str = ""
    image_id: str = ""
    restarts: int = 0
    last: Exit | None = None
    uncounted: int = 0
    ran: bool = False  # the run with the number `restarts` has begun
    again: bool = False
    trouble: Trouble | None = None
    progress: str = ""  # of the image pull
    run: Run | None = None
    ends_at: float = inf  # monotonic: when the run, which is being stopped, is killed

    @classmethod
    def of(
        cls, spec: ContainerSpec, before: ContainerStatus | None, *, init: bool, initializing: bool
    ) -> ContainerState:
        """The container of a pod that starts, or starts again after an earlier process. Init containers all run again, because the
        sandbox is new; any other that had exited stays so until it is restarted."""
        state: State = Waiting("PodInitializing" if initializing else "ContainerCreating")
        if before is None:
            return cls(spec, init, state)
        if isinstance(before.state, Exit) and not init:
            ended = before.state
            known = (ended, before.id, before.image_id, before.restarts, before.last, before.uncounted)
            return cls(spec, init, *known, ran=True)
        return cls(spec, init, state, "", "", before.restarts, before.last, before.uncounted)

    @classmethod
    def kept(cls, spec: ContainerSpec, before: ContainerStatus | None, *, init: bool) -> ContainerState:
        """The container of a pod that has ended, as last known: only its logs are left."""
        if before is None:
            return cls(spec, init, Waiting())
        known = (before.state, before.id, before.image_id, before.restarts, before.last, before.uncounted)
        return cls(spec, init, *known, ran=isinstance(before.state, Exit))

    @property
    def attempt(self) -> int:
        """The number of the run that comes next."""
        return self.restarts + 1 if self.ran else self.restarts

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def sidecar(self) -> bool:
        return self.init and self.spec.sidecar

    def seen(self, now: float) -> ContainerStatus:
        state, last = self.state, self.last
        if self.trouble is not None and not isinstance(state, Started):
            if isinstance(state, Exit):
                last = state
            state = waiting(self.trouble, self.spec.image, now)
        elif self.progress and isinstance(state, Waiting):
            state = Waiting(state.reason, f'Pulling image "{self.spec.image}": {self.progress}')
        return ContainerStatus(self.spec.name, state, self.id, self.restarts, last, self.image_id, self.uncounted)

    def started(self, run: Run, state: Started, container_id: str) -> None:
        self._next()
        self.run, self.state, self.id = run, state, container_id

    def ended(self, end: Exit) -> None:
        self.run, self.state, self.ends_at = None, end, inf

    def failed(self, end: Exit, container_id: str) -> None:
        """Its command could not be started: this counts as a run that began and ended."""
        self._next()
        self.state, self.id = end, container_id

    def _next(self) -> None:
        self.restarts = self.attempt
        if isinstance(self.state, Exit):
            self.last = self.state
            self.uncounted += self.state.reason == SANDBOX_LOST
        self.ran, self.again, self.trouble = True, False, None


def snapshot(
    workload: Workload,
    containers: Iterable[ContainerState],
    pod: PodState,
    address: str,
    notes: tuple[str, ...],
    now: float,
) -> PodStatus:
    """The pod as others see it."""
    init: list[ContainerStatus] = []
    others: list[ContainerStatus] = []
    for one in containers:
        (init if one.init else others).append(one.seen(now))
    if pod.trouble is not None and not pod.made and not pod.stopping:
        first = init or others
        first[:] = [_held_up(one, pod.trouble, now) for one in first]
    return PodStatus(
        workload.uid,
        workload.key,
        address,
        tuple(init),
        tuple(others),
        pod.stopping,
        pod.paused,
        notes,
        pod.evicted,
        pod.reclaimed,
        pod.found,
    )


def _held_up(container: ContainerStatus, trouble: Trouble, now: float) -> ContainerStatus:
    """Shows a failure of the sandbox as the waiting state of the containers that would start first."""
    return replace(container, state=waiting(trouble, "", now)) if isinstance(container.state, Waiting) else container
