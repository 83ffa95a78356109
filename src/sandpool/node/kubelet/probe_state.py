"""What the answers to a container's probes mean. Pure: one run of a container is a `Course`, each answer makes another one.

A postStart hook is asked first and once; the startup probe comes next and, once it holds, not again; then liveness and readiness
side by side. A hook or probe that fails for good dooms the run: it is to be ended, and nothing more is asked.
Until startup or readiness first hold they are also asked between their periods, first soon and then ever later, so that a container
that is up after 80 ms need not wait ten seconds to be seen. Failures in between do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sandpool.node.kubelet.pods import NodeContainer
from sandpool.node.kubelet.probe_spec import Handler, ProbeSpec

NEVER = float("inf")
KEEN = 0.05
"""Seconds until the first question between two periods; each next one waits twice as long."""


class Which(StrEnum):
    POST_START = "PostStart"
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


class Result(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"  # nobody could be asked: it counts neither way
    UNSUPPORTED = "unsupported"  # nor ever will be: what the backend says of the container counts


@dataclass(frozen=True, slots=True)
class Line:
    """One probe: how it stands and when it is next asked."""

    spec: Handler
    holds: bool
    due: float  # monotonic
    tick: float  # when its period next comes round; `due` may be earlier
    streak: int = 0  # successes in a row; below zero, failures
    keen: int | None = None  # questions in between so far; None: none is asked

    @property
    def regular(self) -> bool:
        """Whether the question that is due counts, whatever the answer."""
        return self.due >= self.tick

    @property
    def tells(self) -> bool:
        """Whether a failure is trouble: once is nothing unusual for what is just starting."""
        return self.regular and (self.keen is None or self.streak < 0)

    @property
    def probe(self) -> ProbeSpec:
        return self.spec if isinstance(self.spec, ProbeSpec) else ProbeSpec(failure_threshold=1)


@dataclass(frozen=True, slots=True)
class Doom:
    """Why a container must be ended, and within how many seconds if not the pod's own."""

    which: Which
    grace: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    started: bool = True
    ready: bool = True
    doom: Doom | None = None


@dataclass(frozen=True, slots=True)
class Course:
    lines: Mapping[Which, Line] = field(default_factory=dict)
    doom: Doom | None = None

    @property
    def started(self) -> bool:
        return all(self.lines[which].holds for which in (Which.POST_START, Which.STARTUP) if which in self.lines)

    @property
    def health(self) -> Health:
        readiness = self.lines.get(Which.READINESS)
        ready = self.started and (readiness is None or readiness.holds)
        return Health(self.started, ready and self.doom is None, self.doom)

    @property
    def moments(self) -> dict[Which, float]:
        """When each probe that has its turn is next asked."""
        if self.doom is not None:
            return {}
        for first in (Which.POST_START, Which.STARTUP):
            line = self.lines.get(first)
            if line is not None and not line.holds:
                return {first: line.due}
        turn = ((which, self.lines[which].due) for which in (Which.LIVENESS, Which.READINESS) if which in self.lines)
        return {which: due for which, due in turn if due < NEVER}


def begin(container: NodeContainer, now: float, *, started: bool = False, ready: bool = False) -> Course:
    """A container has begun to run. `started` and `ready` are what was known of the same run before we forgot it."""
    lines: dict[Which, Line] = {}
    if container.post_start is not None:
        lines[Which.POST_START] = Line(container.post_start, started, now, now)
    probes = (
        (Which.STARTUP, container.startup_probe, started),
        (Which.LIVENESS, container.liveness_probe, True),
        (Which.READINESS, container.readiness_probe, ready),
    )
    for which, probe, holds in probes:
        if probe is not None:
            due = now + max(0, probe.initial_delay_seconds)
            lines[which] = Line(probe, holds, due, due, keen=None if holds else 0)
    return Course(lines)


def answered(course: Course, which: Which, result: Result, now: float) -> Course:
    line = _after(course.lines[which], result, now)
    doom = course.doom
    if doom is None and which is not Which.READINESS and line.streak <= -max(1, line.probe.failure_threshold):
        grace = line.probe.termination_grace_period_seconds
        doom = Doom(which, None if grace is None else float(grace))
    return Course({**course.lines, which: line}, doom)


def _after(line: Line, result: Result, now: float) -> Line:
    probe = line.probe
    tick = max(now, line.tick + max(1, probe.period_seconds)) if line.regular else line.tick
    if result is Result.UNSUPPORTED:
        return replace(line, holds=True, due=NEVER, tick=NEVER, keen=None)
    if result is Result.SUCCESS:
        streak = max(0, line.streak) + 1
        holds = line.holds or streak >= max(1, probe.success_threshold)
        return replace(line, due=tick, tick=tick, streak=streak, holds=holds, keen=None if holds else line.keen)
    if result is Result.FAILURE and line.regular:
        streak = min(0, line.streak) - 1
        line = replace(line, streak=streak, holds=line.holds and streak > -max(1, probe.failure_threshold))
    if line.keen is None:
        return replace(line, due=tick, tick=tick)
    return replace(line, due=min(tick, now + KEEN * 2.0 ** min(line.keen, 16)), tick=tick, keen=line.keen + 1)
