"""How fast the starts of one pool end well, measured, and how many at once its cluster bears. Pure: moments are arguments.

A start is a member that warms, or a sandbox that a claim starts for itself: both need the same machines. How many of them make sense at once is
what BBR does for packets: the best rate at which they ended lately, times the time that one takes at best. Any more only wait for each other. A little
more than that is allowed, so that a cluster that bears more is found out.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

SPAN: Final = 10.0
"""Seconds over which a rate is measured."""
STEP: Final = 0.25
"""Seconds that are counted together."""
FIRST, LEAST, MOST = 8.0, 2.0, 4096.0
"""Starts at once: as long as they are not seen to get in each other's way, at least, and at most."""
STRETCHED: Final = 2.0
"""Starts that take on average so many times what they took at best do."""
ENOUGH: Final = 5
"""Starts after which averages say something."""
GAIN: Final = 1.25
"""By how much more at once than were seen to make sense it is tried."""
WEIGHT: Final = 0.2
"""Of the latest start in what a start takes."""
SHORT, LONG = 30.0, 300.0
"""Seconds after which the best rate, and the best time, are measured anew; those before count for as long again."""


class Began(NamedTuple):
    """A start: when it began, and how many had ended by then."""

    at: float
    ended: int


class _Best:
    """The greatest value of late: of this epoch and the one before."""

    __slots__ = ("_before", "_epoch", "_now", "_since")

    def __init__(self, epoch: float) -> None:
        self._epoch = epoch
        self._since = 0.0
        self._now: float | None = None
        self._before: float | None = None

    def put(self, value: float, now: float) -> None:
        if now - self._since >= self._epoch:
            self._before, self._now, self._since = self._now, value, now
        elif self._now is None or value > self._now:
            self._now = value

    @property
    def value(self) -> float | None:
        return max((one for one in (self._now, self._before) if one is not None), default=None)


class Tempo:
    __slots__ = ("_counts", "_ended", "_fastest", "_quickest", "_seen", "last", "took")

    def __init__(self) -> None:
        self.took: float | None = None  # seconds that a start takes, of late
        self.last: float | None = None  # when one ended well
        self._ended = self._seen = 0  # those of the latter were seen to begin
        self._counts: deque[tuple[float, int]] = deque()
        self._fastest = _Best(SHORT)  # starts a second
        self._quickest = _Best(LONG)  # seconds that a start takes on average, below zero: the greatest is the best

    def begin(self, now: float) -> Began:
        return Began(now, self._ended)

    def ended(self, now: float, began: Began | None) -> None:
        """A start has ended well. None: nobody saw it begin, so it says nothing of how long they take."""
        self.last = now
        self._ended += 1
        self._count(now)
        if began is None:
            return
        took = max(now - began.at, 0.001)
        self._seen += 1
        self.took = took if self.took is None else self.took + WEIGHT * (took - self.took)
        if self._seen >= ENOUGH:
            self._fastest.put((self._ended - began.ended) / max(took, self.took), now)
            self._quickest.put(-self.took, now)

    @property
    def bearable(self) -> float:
        """Starts at once."""
        fastest, quickest = self._fastest.value, self._quickest.value
        if self.took is None or fastest is None or quickest is None:
            return FIRST
        least = LEAST if self.took > STRETCHED * -quickest else FIRST
        return min(MOST, max(least, GAIN * fastest * -quickest))

    def rate(self, now: float) -> float:
        """Starts that ended well, a second."""
        counts = self._counts
        while counts and counts[0][0] < now - SPAN:
            counts.popleft()
        if not counts:
            return 0.0
        return sum(count for _, count in counts) / min(SPAN, max(1.0, now - counts[0][0]))

    def moving(self, now: float) -> bool:
        """Whether any start has ended well lately."""
        return self.last is not None and now - self.last < SPAN

    def _count(self, now: float) -> None:
        counts = self._counts
        if counts and now - counts[-1][0] < STEP:
            counts[-1] = (counts[-1][0], counts[-1][1] + 1)
            return
        counts.append((now, 1))
        if counts[0][0] < now - SPAN:
            counts.popleft()
