"""A container's place in a pod: what is known of it, from run to run."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from sandpool.node.backend import SANDBOX_LOST, ContainerSpec, Exit, RunningContainer, Started, State, Waiting
from sandpool.node.pods.life import Part, Stage, Trouble, waiting
from sandpool.node.pods.run import Run


@dataclass(slots=True)
class Slot:
    spec: ContainerSpec
    init: bool
    state: State
    id: str = ""
    image_id: str = ""
    restarts: int = 0
    last: Exit | None = None
    spared: int = 0
    ran: bool = False  # the run with the number `restarts` has begun
    again: bool = False
    trouble: Trouble | None = None
    progress: str = ""  # of its image, while it is being pulled
    run: Run | None = None
    ends_at: float = inf  # monotonic: the run was told to end, by force from then on

    @classmethod
    def of(cls, spec: ContainerSpec, before: RunningContainer | None, *, init: bool, initializing: bool) -> Slot:
        """As it begins, or begins again where an earlier process left it. Init containers all run again, because the sandbox is a
        new one; another one that had ended stays so until it is restarted."""
        state: State = Waiting("PodInitializing" if initializing else "ContainerCreating")
        if before is None:
            return cls(spec, init, state)
        if isinstance(before.state, Exit) and not init:
            ended = before.state
            known = (ended, before.id, before.image_id, before.restarts, before.last, before.spared)
            return cls(spec, init, *known, ran=True)
        return cls(spec, init, state, "", "", before.restarts, before.last, before.spared)

    @classmethod
    def kept(cls, spec: ContainerSpec, before: RunningContainer | None, *, init: bool) -> Slot:
        """Of a pod that is over, as it was last known: only its logs are asked for."""
        if before is None:
            return cls(spec, init, Waiting())
        known = (before.state, before.id, before.image_id, before.restarts, before.last, before.spared)
        return cls(spec, init, *known, ran=isinstance(before.state, Exit))

    @property
    def attempt(self) -> int:
        """The number of the run that comes next."""
        return self.restarts + 1 if self.ran else self.restarts

    @property
    def part(self) -> Part:
        sidecar = self.init and self.spec.restart_policy == "Always"
        match self.state:
            case Started():
                return Part(self.spec.name, Stage.RUNS, sidecar=sidecar)
            case Exit(code=code):
                return Part(self.spec.name, Stage.ENDED, code, self.again, sidecar, self.trouble)
            case Waiting():
                return Part(self.spec.name, sidecar=sidecar, trouble=self.trouble)

    def seen(self, now: float) -> RunningContainer:
        state, last = self.state, self.last
        if self.trouble is not None and not isinstance(state, Started):
            if isinstance(state, Exit):
                last = state
            state = waiting(self.trouble, self.spec.image, now)
        elif self.progress and isinstance(state, Waiting):
            state = Waiting(state.reason, f'Pulling image "{self.spec.image}": {self.progress}')
        return RunningContainer(self.spec.name, state, self.id, self.restarts, last, self.image_id, self.spared)

    def started(self, run: Run, state: Started, container_id: str) -> None:
        self._next()
        self.run, self.state, self.id = run, state, container_id

    def ended(self, end: Exit) -> None:
        self.run, self.state, self.ends_at = None, end, inf

    def failed(self, end: Exit, container_id: str) -> None:
        """Its command could not be started at all: a run that began and ended."""
        self._next()
        self.state, self.id = end, container_id

    def _next(self) -> None:
        self.restarts = self.attempt
        if isinstance(self.state, Exit):
            self.last = self.state
            self.spared += self.state.reason == SANDBOX_LOST
        self.ran, self.again, self.trouble = True, False, None
