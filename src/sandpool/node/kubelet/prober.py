"""Asks the probes of running containers when they are due. What the answers mean is in course.py.

A probe that is due waits for its turn: only so many begin at once, commands fewer than connections, so that thousands of pods cannot
swamp the loop. One that takes long gives its place back after a second and goes on without it, and namespaces take turns, so that pods
which let us wait, however many they are, cannot keep those of others from being asked. Hooks wait for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from sandpool.base.clock import Clock, Timer
from sandpool.base.rotation import Rotation
from sandpool.model import times
from sandpool.model.metadata import Uid
from sandpool.node.backend import Running, RunningContainer, Started
from sandpool.node.kubelet.pods import NodeContainer, NodePod
from sandpool.node.kubelet.probe_runner import Answer, Asked
from sandpool.node.kubelet.probe_spec import Handler
from sandpool.node.kubelet.probe_state import Course, Health, Result, Which, answered, begin
from sandpool.telemetry.log import logger

log = logger(__name__)

Ask = Callable[[Asked, Handler, float | None], Awaitable[Answer]]
Told = Callable[[Asked, Which, Answer, bool], object]
"""Who, which probe, what it said, and whether that dooms the container."""
HEALTHY: Mapping[str, Health] = {}


@dataclass(frozen=True, slots=True)
class Widths:
    """How many are asked at once, and for how many seconds one keeps its place."""

    commands: int = 16
    connections: int = 128
    patience: float = 1.0


@dataclass(slots=True, eq=False)
class _Run:
    """One run of one container."""

    namespace: str
    asked: Asked
    began: tuple[datetime, int]
    course: Course
    timers: dict[Which, Timer] = field(default_factory=dict)
    asking: dict[Which, asyncio.Task[None]] = field(default_factory=dict)
    over: bool = False


class _Lane:
    def __init__(self, width: float) -> None:
        self.free = width
        self.waiting: Rotation[tuple[_Run, Which]] = Rotation()  # by namespace


@dataclass(slots=True, eq=False)
class _Place:
    lane: _Lane
    held: bool = True


class Prober:
    def __init__(
        self, ask: Ask, clock: Clock, changed: Callable[[Uid], object], told: Told, widths: Widths = Widths()
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._changed = changed
        self._told = told
        self._runs: dict[Uid, dict[str, _Run]] = {}
        self._patience = widths.patience
        self._commands, self._connections = _Lane(widths.commands), _Lane(widths.connections)
        self._hooks = _Lane(float("inf"))
        self._group: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        """How many pods are looked after."""
        return len(self._runs)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            for lane in (self._hooks, self._commands, self._connections):
                self._pump(lane)
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None
                for uid in tuple(self._runs):
                    self.forget(uid)

    def follow(self, pod: NodePod, seen: Running | None) -> Mapping[str, Health]:
        """Sees to it that the containers that run now, and only they, are asked; how each of those with probes is."""
        uid = pod.metadata.uid
        if seen is None or seen.stopping or pod.metadata.leaving or pod.finished:
            self.forget(uid)
            return HEALTHY
        tended = [container for container in pod.spec.lasting if container.tended]
        if not tended:
            return HEALTHY
        states = {container.name: container for container in (*seen.init, *seen.containers)}
        if seen.paused:  # nobody could answer: what was known stays
            self.forget(uid)
            return {one.name: _known(pod, states[one.name]) for one in tended if one.name in states}
        health: dict[str, Health] = {}
        for container in tended:
            there = states.get(container.name)
            if there is not None and isinstance(there.state, Started):
                health[container.name] = self._current(pod, container, there, there.state).course.health
            else:
                self._drop(uid, container.name)
        return health

    def forget(self, uid: Uid) -> None:
        for name in tuple(self._runs.get(uid, ())):
            self._drop(uid, name)

    def _current(self, pod: NodePod, container: NodeContainer, there: RunningContainer, state: Started) -> _Run:
        uid, began = pod.metadata.uid, (state.at, there.restarts)
        known = self._runs.get(uid, {}).get(container.name)
        if known is not None and known.began == began:
            return known
        self._drop(uid, container.name)
        before = _known(pod, there)
        course = begin(container, self._clock.monotonic(), started=before.started, ready=before.ready)
        run = _Run(pod.metadata.namespace, Asked(uid, container), began, course)
        self._runs.setdefault(uid, {})[container.name] = run
        self._arrange(run)
        return run

    def _drop(self, uid: Uid, name: str) -> None:
        runs = self._runs.get(uid)
        run = runs.pop(name, None) if runs is not None else None
        if run is None:
            return
        if not runs:
            del self._runs[uid]
        run.over = True
        for timer in run.timers.values():
            timer.cancel()
        for task in run.asking.values():
            task.cancel()

    def _arrange(self, run: _Run) -> None:
        """A timer for each probe that has its turn and is not being asked."""
        now = self._clock.monotonic()
        for which, due in run.course.moments.items():
            if which not in run.timers and which not in run.asking:
                run.timers[which] = self._clock.call_later(max(0.0, due - now), partial(self._due, run, which))

    def _due(self, run: _Run, which: Which) -> None:
        lane = self._commands if run.course.lines[which].spec.exec is not None else self._connections
        lane = self._hooks if which is Which.POST_START else lane
        lane.waiting.push(run.namespace, (run, which))
        self._pump(lane)

    def _pump(self, lane: _Lane) -> None:
        while self._group is not None and lane.free and lane.waiting:
            _, (run, which) = lane.waiting.pop()
            if run.over:
                continue
            lane.free -= 1
            place = _Place(lane)
            timer = self._clock.call_later(self._patience, partial(self._give_back, place))
            run.asking[which] = task = self._group.create_task(self._turn(run, which))
            task.add_done_callback(partial(self._done, place, timer))

    def _done(self, place: _Place, timer: Timer, task: asyncio.Task[None]) -> None:
        timer.cancel()
        self._give_back(place)

    def _give_back(self, place: _Place) -> None:
        if place.held:
            place.held = False
            place.lane.free += 1
            self._pump(place.lane)

    async def _turn(self, run: _Run, which: Which) -> None:
        line = run.course.lines[which]
        timeout = None if which is Which.POST_START else float(max(1, line.probe.timeout_seconds))
        try:
            answer = await self._ask(run.asked, line.spec, timeout)
        except Exception as error:  # a bug of ours must cost one answer, not the kubelet
            log.error("probe broke", container=run.asked.container.name, exc=error)
            answer = Answer(Result.UNKNOWN)
        del run.asking[which]
        run.timers.pop(which, None)
        if run.over:
            return
        before = run.course.health
        run.course = answered(run.course, which, answer.result, self._clock.monotonic())
        health = run.course.health
        doomed = health.doom is not None and before.doom is None
        if answer.result in (Result.FAILURE, Result.UNKNOWN) and (line.tells or doomed):
            self._told(run.asked, which, answer, doomed)
        if health != before:
            self._changed(run.asked.uid)
        self._arrange(run)


def _known(pod: NodePod, there: RunningContainer) -> Health:
    """What the API says of this very run of a container, if it does: we may have been restarted."""
    statuses = (*(pod.status.get("containerStatuses") or ()), *(pod.status.get("initContainerStatuses") or ()))
    began = times.seconds(there.state.at) if isinstance(there.state, Started) else ""
    for status in statuses:
        since = ((status.get("state") or {}).get("running") or {}).get("startedAt")
        if status.get("name") == there.name and (since, status.get("restartCount")) == (began, there.restarts):
            return Health(bool(status.get("started")), bool(status.get("ready")))
    return Health(started=False, ready=False)
