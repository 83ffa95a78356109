"""Schedules the probes of running containers. probe_runner.py runs one, probe_state.py evaluates its result.

The number of probes that start at once is limited, and lower for commands than for connections, so that thousands of pods cannot overload
the event loop. A slow probe gives its slot back after a second and continues without it, and namespaces take turns. So a tenant's slow
pods, however many, do not delay the probes of others. Hooks never wait for a slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from sandpool.base.clock import Clock, Timer
from sandpool.base.fairness import RoundRobin
from sandpool.model import times
from sandpool.model.metadata import Uid
from sandpool.node.backend import ContainerStatus, PodStatus, Started
from sandpool.node.kubelet.pods import Handler, NodeContainer, NodePod
from sandpool.node.kubelet.probe_runner import ProbeOutcome, ProbeTarget
from sandpool.node.kubelet.probe_state import Health, ProbeState, Result, Which, begin, record
from sandpool.telemetry.log import logger

log = logger(__name__)

RunProbe = Callable[[ProbeTarget, Handler, float | None], Awaitable[ProbeOutcome]]
Notify = Callable[[ProbeTarget, Which, ProbeOutcome, bool], object]
"""Called with the container, the probe, its outcome, and whether the container must be stopped because of it."""
HEALTHY: Mapping[str, Health] = {}


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """How many probes run at once, and for how many seconds one keeps its slot."""

    commands: int = 16
    connections: int = 128
    patience: float = 1.0


@dataclass(slots=True, eq=False)
class _Run:
    """One run of one container."""

    namespace: str
    target: ProbeTarget
    began: tuple[datetime, int]
    probe_state: ProbeState
    timers: dict[Which, Timer] = field(default_factory=dict)
    running: dict[Which, asyncio.Task[None]] = field(default_factory=dict)
    over: bool = False


class _ProbePool:
    def __init__(self, width: float) -> None:
        self.free = width
        self.waiting: RoundRobin[tuple[_Run, Which]] = RoundRobin()  # by namespace


@dataclass(slots=True, eq=False)
class _ProbeSlot:
    pool: _ProbePool
    held: bool = True


class Prober:
    def __init__(
        self,
        run: RunProbe,
        clock: Clock,
        changed: Callable[[Uid], object],
        notify: Notify,
        limits: ProbeLimits = ProbeLimits(),
    ) -> None:
        self._run_probe = run
        self._clock = clock
        self._changed = changed
        self._notify = notify
        self._runs: dict[Uid, dict[str, _Run]] = {}
        self._patience = limits.patience
        self._commands, self._connections = _ProbePool(limits.commands), _ProbePool(limits.connections)
        self._hooks = _ProbePool(float("inf"))
        self._group: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        """How many pods are probed."""
        return len(self._runs)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            for pool in (self._hooks, self._commands, self._connections):
                self._pump(pool)
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None
                for uid in tuple(self._runs):
                    self.forget(uid)

    def follow(self, pod: NodePod, seen: PodStatus | None) -> Mapping[str, Health]:
        """Starts probing the containers that run now, and stops probing others. Returns the health of each that has probes."""
        uid = pod.metadata.uid
        if seen is None or seen.stopping or pod.metadata.leaving or pod.finished:
            self.forget(uid)
            return HEALTHY
        probed = [container for container in pod.spec.lasting if container.probed]
        if not probed:
            return HEALTHY
        states = {container.name: container for container in (*seen.init, *seen.containers)}
        if seen.paused:  # a paused pod cannot answer probes: keep the last results
            self.forget(uid)
            return {one.name: _known(pod, states[one.name]) for one in probed if one.name in states}
        health: dict[str, Health] = {}
        for container in probed:
            there = states.get(container.name)
            if there is not None and isinstance(there.state, Started):
                health[container.name] = self._current(pod, container, there, there.state).probe_state.health
            else:
                self._drop(uid, container.name)
        return health

    def forget(self, uid: Uid) -> None:
        for name in tuple(self._runs.get(uid, ())):
            self._drop(uid, name)

    def _current(self, pod: NodePod, container: NodeContainer, there: ContainerStatus, state: Started) -> _Run:
        uid, began = pod.metadata.uid, (state.at, there.restarts)
        known = self._runs.get(uid, {}).get(container.name)
        if known is not None and known.began == began:
            return known
        self._drop(uid, container.name)
        before = _known(pod, there)
        probe_state = begin(container, self._clock.monotonic(), started=before.started, ready=before.ready)
        run = _Run(pod.metadata.namespace, ProbeTarget(uid, container), began, probe_state)
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
        for task in run.running.values():
            task.cancel()

    def _arrange(self, run: _Run) -> None:
        """Sets a timer for each active probe that is not running."""
        now = self._clock.monotonic()
        for which, due in run.probe_state.moments.items():
            if which not in run.timers and which not in run.running:
                run.timers[which] = self._clock.call_later(max(0.0, due - now), partial(self._due, run, which))

    def _due(self, run: _Run, which: Which) -> None:
        pool = self._commands if run.probe_state.probes[which].spec.exec is not None else self._connections
        pool = self._hooks if which is Which.POST_START else pool
        pool.waiting.push(run.namespace, (run, which))
        self._pump(pool)

    def _pump(self, pool: _ProbePool) -> None:
        while self._group is not None and pool.free and pool.waiting:
            _, (run, which) = pool.waiting.pop()
            if run.over:
                continue
            pool.free -= 1
            slot = _ProbeSlot(pool)
            timer = self._clock.call_later(self._patience, partial(self._give_back, slot))
            run.running[which] = task = self._group.create_task(self._turn(run, which))
            task.add_done_callback(partial(self._done, slot, timer))

    def _done(self, slot: _ProbeSlot, timer: Timer, task: asyncio.Task[None]) -> None:
        timer.cancel()
        self._give_back(slot)

    def _give_back(self, slot: _ProbeSlot) -> None:
        if slot.held:
            slot.held = False
            slot.pool.free += 1
            self._pump(slot.pool)

    async def _turn(self, run: _Run, which: Which) -> None:
        progress = run.probe_state.probes[which]
        timeout = None if which is Which.POST_START else float(max(1, progress.probe.timeout_seconds))
        try:
            outcome = await self._run_probe(run.target, progress.spec, timeout)
        except Exception as error:  # a bug must cost one result, not the kubelet
            log.error("probe failed with a bug", container=run.target.container.name, exc=error)
            outcome = ProbeOutcome(Result.UNKNOWN)
        del run.running[which]
        run.timers.pop(which, None)
        if run.over:
            return
        before = run.probe_state.health
        run.probe_state = record(run.probe_state, which, outcome.result, self._clock.monotonic())
        health = run.probe_state.health
        fatal = health.failure is not None and before.failure is None
        if outcome.result in (Result.FAILURE, Result.UNKNOWN) and (progress.reports or fatal):
            self._notify(run.target, which, outcome, fatal)
        if health != before:
            self._changed(run.target.uid)
        self._arrange(run)


def _known(pod: NodePod, there: ContainerStatus) -> Health:
    """The health of this run of a container according to the API, in case the kubelet was restarted."""
    statuses = (*(pod.status.get("containerStatuses") or ()), *(pod.status.get("initContainerStatuses") or ()))
    began = times.seconds(there.state.at) if isinstance(there.state, Started) else ""
    for status in statuses:
        since = ((status.get("state") or {}).get("running") or {}).get("startedAt")
        if status.get("name") == there.name and (since, status.get("restartCount")) == (began, there.restarts):
            return Health(bool(status.get("started")), bool(status.get("ready")))
    return Health(started=False, ready=False)
