"""Evaluates the results of a container's probes. Pure: a `ProbeState` describes one run of a container, and each result gives a new one.

The postStart hook runs first, once; then the startup probe until it succeeds; then liveness and readiness concurrently. If a hook or
probe fails for good, the container must be stopped, and nothing more is probed. Until startup or readiness first succeeds, there are
extra probes between the periods, at growing intervals, so that a container that is up after 80 ms is reported soon and not after ten
seconds. Failures of extra probes do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sandpool.node.kubelet.pods import Handler, NodeContainer, ProbeSpec

NEVER = float("inf")
EAGER = 0.05
"""Seconds until the first extra probe between two periods. Each following one waits twice as long."""


class Which(StrEnum):
    POST_START = "PostStart"
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


class Result(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"  # the probe could not be run; counts neither as success nor as failure
    UNSUPPORTED = "unsupported"  # it can never be run here; only the backend's state counts


@dataclass(frozen=True, slots=True)
class ProbeProgress:
    """One probe: its results so far, and when it is due."""

    spec: Handler
    holds: bool
    due: float  # monotonic
    tick: float  # the end of its current period; `due` may be earlier
    streak: int = 0  # consecutive successes; if negative, failures
    eager: int | None = None  # extra probes between two periods so far; None: there are none

    @property
    def regular(self) -> bool:
        """Whether the probe that is due counts, whatever its result."""
        return self.due >= self.tick

    @property
    def reports(self) -> bool:
        """Whether a failure deserves an Event: a single failure is normal while a container starts."""
        return self.regular and (self.eager is None or self.streak < 0)

    @property
    def probe(self) -> ProbeSpec:
        return self.spec if isinstance(self.spec, ProbeSpec) else ProbeSpec(failure_threshold=1)


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """Which probe requires the container to be stopped, and its own grace period, if it has one."""

    which: Which
    grace: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    started: bool = True
    ready: bool = True
    failure: ProbeFailure | None = None


@dataclass(frozen=True, slots=True)
class ProbeState:
    probes: Mapping[Which, ProbeProgress] = field(default_factory=dict)
    failure: ProbeFailure | None = None

    @property
    def started(self) -> bool:
        return all(self.probes[which].holds for which in (Which.POST_START, Which.STARTUP) if which in self.probes)

    @property
    def health(self) -> Health:
        readiness = self.probes.get(Which.READINESS)
        ready = self.started and (readiness is None or readiness.holds)
        return Health(self.started, ready and self.failure is None, self.failure)

    @property
    def moments(self) -> dict[Which, float]:
        """When each active probe is due."""
        if self.failure is not None:
            return {}
        for first in (Which.POST_START, Which.STARTUP):
            progress = self.probes.get(first)
            if progress is not None and not progress.holds:
                return {first: progress.due}
        turn = ((which, self.probes[which].due) for which in (Which.LIVENESS, Which.READINESS) if which in self.probes)
        return {which: due for which, due in turn if due < NEVER}


def begin(container: NodeContainer, now: float, *, started: bool = False, ready: bool = False) -> ProbeState:
    """The state of a container that has started. After a restart of the kubelet, `started` and `ready` are those of the same run in the API."""
    probes: dict[Which, ProbeProgress] = {}
    if container.post_start is not None:
        probes[Which.POST_START] = ProbeProgress(container.post_start, started, now, now)
    specs = (
        (Which.STARTUP, container.startup_probe, started),
        (Which.LIVENESS, container.liveness_probe, True),
        (Which.READINESS, container.readiness_probe, ready),
    )
    for which, probe, holds in specs:
        if probe is not None:
            due = now + max(0, probe.initial_delay_seconds)
            probes[which] = ProbeProgress(probe, holds, due, due, eager=None if holds else 0)
    return ProbeState(probes)


def record(probe_state: ProbeState, which: Which, result: Result, now: float) -> ProbeState:
    progress = _after(probe_state.probes[which], result, now)
    failure = probe_state.failure
    if (
        failure is None
        and which is not Which.READINESS
        and progress.streak <= -max(1, progress.probe.failure_threshold)
    ):
        grace = progress.probe.termination_grace_period_seconds
        failure = ProbeFailure(which, None if grace is None else float(grace))
    return ProbeState({**probe_state.probes, which: progress}, failure)


def _after(progress: ProbeProgress, result: Result, now: float) -> ProbeProgress:
    probe = progress.probe
    tick = max(now, progress.tick + max(1, probe.period_seconds)) if progress.regular else progress.tick
    if result is Result.UNSUPPORTED:
        return replace(progress, holds=True, due=NEVER, tick=NEVER, eager=None)
    if result is Result.SUCCESS:
        streak = max(0, progress.streak) + 1
        holds = progress.holds or streak >= max(1, probe.success_threshold)
        return replace(
            progress, due=tick, tick=tick, streak=streak, holds=holds, eager=None if holds else progress.eager
        )
    if result is Result.FAILURE and progress.regular:
        streak = min(0, progress.streak) - 1
        progress = replace(progress, streak=streak, holds=progress.holds and streak > -max(1, probe.failure_threshold))
    if progress.eager is None:
        return replace(progress, due=tick, tick=tick)
    return replace(
        progress, due=min(tick, now + EAGER * 2.0 ** min(progress.eager, 16)), tick=tick, eager=progress.eager + 1
    )
