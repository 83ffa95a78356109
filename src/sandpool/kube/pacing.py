"""How many writes may be in flight at once, learned from the answers of the server. Pure: a view and an answer in, a view out.

The limit follows three signals:

- *Latency.* A server with room answers as fast when it is asked for much as when it is asked for little. Once it has more than it can do at
  once, answers take longer and nothing gets done sooner. So first of all, and every so often while there is much to do, a few writes go with an
  eighth of the limit (a probe); the limit shrinks while answers take longer than twice what they took then, and grows by its square root while they do not.
- *429.* The limit is halved, once for all writes that were under way, and comes back to where it was refused only slowly. When a
  whole round is refused, no write is sent before Retry-After.
- *503, 504 and no answer.* The limit shrinks by a third, once for all writes that were under way.

It grows only while at least half of it is in use: what was not tried proves nothing. Kinds of writes take different times, so each answer is
measured by the floor of its kind, the least time that it took lately. The probe matters because that alone would blame our own writes for whatever
makes a server slow: neighbours, a network, a webhook. What does not get better with fewer writes is no reason to send fewer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import inf, sqrt
from typing import Final

TOLERATED: Final = 2.0
"""Factor by which the average latency may exceed that of the last probe before the limit shrinks."""
OUTLIER: Final = 10.0
"""A single answer counts for at most this many times the latency of the last probe: one pause of the server is not its rate."""
SHORTEST_ROUND: Final = 4
"""Answers, at least, before the latency is judged."""
RISE: Final = 60.0
"""Seconds in which a floor doubles if no answer is as fast."""
LEAST_FLOOR: Final = 0.002
"""Seconds. Below this, differences are those of our own event loop."""
PROBE_EVERY: Final = 15.0
"""Seconds under load between two probes."""
PROBED: Final = 12
"""Answers that a probe waits for, besides those of writes that were in flight when it began."""
LONGEST_PROBE: Final = 0.25
"""Seconds after which two answers are enough: probing must not keep a slow server idle."""
WIDENING: Final = 5.0
"""Seconds in which a ceiling that was found by a refusal doubles."""
SHORTEST_HOLD, LONGEST_HOLD = 1.0, 30.0


class Outcome(Enum):
    """What the answer to a write says about the server."""

    SERVED = "served"
    THROTTLED = "throttled"  # 429
    FAILED = "failed"  # the server could not, or did not answer


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of one write."""

    outcome: Outcome
    sent: float  # when
    slowness: float = 1.0  # its time divided by the floor of its kind, if it was served
    busy: bool = True  # whether at least half of the limit was in use
    retry_after: float = 0.0  # seconds, if it was throttled


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the limit of writes in flight starts, and between which values it stays."""

    most: int = 50
    start: int = 20
    least: int = 1


@dataclass(frozen=True, slots=True)
class View:
    """What has been learned about the server so far."""

    limit: float
    lowered: float = -inf  # when; what was sent until then says nothing about the limit since
    count: int = 0  # answers of this round
    slowness: float = 0.0  # their sum
    busy: bool = False  # whether the limit was in use in this round
    refused: int = 0  # throttled in a row
    ceiling: float = inf  # a little less than what was refused last
    ceiling_at: float = 0.0  # when that was
    held_until: float = -inf  # no write before
    probing: bool = False
    probe_sent: float = inf  # when the first write of this probe was
    probed: float = -inf  # when the last probe was over, or much to do began
    judged: float = -inf  # when the last round was over in which the limit was in use
    base: float = 1.0  # how slow answers were then

    def allowed(self, now: float) -> int:
        """How many writes may be under way now."""
        if now < self.held_until:
            return 0
        return max(1, int(self.limit / 8 if self.probing else self.limit))


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time that one kind of write took lately."""

    seconds: float
    at: float


def first_view(bounds: Bounds) -> View:
    return View(float(max(bounds.least, min(bounds.start, bounds.most))))


def next_floor(floor: Floor | None, seconds: float, now: float) -> Floor:
    """The floor after an answer that took this long."""
    seconds = max(seconds, LEAST_FLOOR)
    if floor is None:
        return Floor(seconds, now)
    risen = floor.seconds * 2.0 ** (min(600.0, max(0.0, now - floor.at)) / RISE)
    return Floor(min(seconds, risen), now)


def next_view(view: View, answer: Answer, bounds: Bounds, now: float) -> View:
    """The view after one more answer."""
    if answer.outcome is Outcome.THROTTLED:
        return _throttled(view, answer, bounds, now)
    if answer.outcome is Outcome.FAILED:
        return _lowered(view, answer, 2 / 3, bounds, now)
    if answer.sent <= view.lowered:
        return replace(view, refused=0) if view.refused else view
    count, slowness = view.count + 1, view.slowness + min(answer.slowness, OUTLIER * view.base)
    busy = view.busy or answer.busy
    since = min(view.probe_sent, answer.sent) if view.probing else inf
    if count < max(SHORTEST_ROUND, PROBED if view.probing else view.limit) and (
        count < 2 or now - since < LONGEST_PROBE
    ):
        return replace(view, count=count, slowness=slowness, busy=busy, refused=0, probe_sent=since)
    view = replace(view, count=0, slowness=0.0, busy=False, refused=0)
    if view.probing:  # half of what was known before stays: these are few answers
        base = max(1.0, (view.base + slowness / count) / 2)
        return replace(view, probing=False, probe_sent=inf, probed=now, judged=now, lowered=now, base=base)
    return _judged(view, slowness / count, bounds, now) if busy else view


def _judged(view: View, slowness: float, bounds: Bounds, now: float) -> View:
    """Adjusts the limit at the end of a round, which is as many answers as writes may be in flight."""
    kept = max(0.5, min(1.0, TOLERATED * view.base / max(slowness, 1e-9)))
    ceiling = max(view.limit, min(float(bounds.most), _widened(view, now)))
    limit = max(float(bounds.least), min(view.limit * kept + sqrt(view.limit), ceiling))
    probed = now if -inf < view.judged < now - PROBE_EVERY else view.probed
    probing = limit >= 2 and now - probed >= PROBE_EVERY
    lowered = now if probing or limit < view.limit else view.lowered
    return replace(view, limit=limit, probing=probing, probed=probed, judged=now, lowered=lowered)


def _widened(view: View, now: float) -> float:
    """How far the limit may have grown since the last 429."""
    widened: float = 2.0 ** min(50.0, (now - view.ceiling_at) / WIDENING)
    return view.ceiling * widened


def _throttled(view: View, answer: Answer, bounds: Bounds, now: float) -> View:
    if answer.sent > view.lowered:
        view = replace(view, ceiling=0.9 * view.limit, ceiling_at=now)
    view = replace(_lowered(view, answer, 1 / 2, bounds, now), refused=view.refused + 1)
    if view.refused < int(view.limit):
        return view
    hold = min(LONGEST_HOLD, max(SHORTEST_HOLD, answer.retry_after))
    return replace(view, held_until=max(view.held_until, now + hold), refused=0)


def _lowered(view: View, answer: Answer, factor: float, bounds: Bounds, now: float) -> View:
    if answer.sent <= view.lowered:
        return view
    limit = max(float(bounds.least), view.limit * factor)
    return replace(view, limit=limit, lowered=now, count=0, slowness=0.0, busy=False)


class Pacer:
    """Holds the view and the floors, and counts for metrics."""

    def __init__(self, bounds: Bounds = Bounds()) -> None:
        self._bounds = bounds
        self._floors: dict[str, Floor] = {}
        self.view = first_view(bounds)
        self.throttled = 0  # answers of 429
        self.lowered = dict.fromkeys(("throttled", "failed", "slow"), 0)

    def record(
        self,
        kind: str,
        outcome: Outcome,
        *,
        sent: float,
        now: float,
        busy: bool,
        retry_after: float = 0.0,
        own: bool = False,
    ) -> None:
        """One write of a kind (verb and resource: few) has ended. `own`: a refusal of this one says nothing about the others."""
        slowness = 1.0
        if outcome is Outcome.SERVED:
            took = now - sent
            self._floors[kind] = floor = next_floor(self._floors.get(kind), took, now)
            slowness = took / floor.seconds
        elif outcome is Outcome.THROTTLED:
            self.throttled += 1
            if own:
                return
        before = self.view
        self.view = next_view(before, Answer(outcome, sent, slowness, busy, retry_after), self._bounds, now)
        if self.view.limit < before.limit:
            self.lowered["slow" if outcome is Outcome.SERVED else outcome.value] += 1
