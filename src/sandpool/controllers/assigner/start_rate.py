"""Measures at what rate the starts of one pool succeed, and how many at once its cluster can take. Pure: times are arguments.

A start is a member that warms, or a sandbox that a claim starts for itself: both need the same machines. How many make sense at once is
estimated as BBR does for packets: the best recent rate times the shortest start. More than that only wait for each other. A little
more is allowed, so that spare capacity is discovered.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

SPAN: Final = 10.0
"""Seconds over which a rate is measured."""
STEP: Final = 0.25
"""Seconds that are counted together."""
FIRST, LEAST, MOST = 8.0, 2.0, 4096.0
"""Concurrent starts: while they do not slow each other down, at least, and at most."""
STRETCHED: Final = 2.0
"""Starts slow each other down when they take this many times as long, on average, as they did at best."""
ENOUGH: Final = 5
"""Starts after which averages are used."""
GAIN: Final = 1.25
"""Factor by which the estimate is exceeded to discover spare capacity."""
WEIGHT: Final = 0.2
"""Weight of the latest start in the moving average of how long a start takes."""
SHORT, LONG = 30.0, 300.0
"""Seconds of one epoch for the best rate and the best duration. Values of the previous epoch count, too."""


class Began(NamedTuple):
    """A start: when it began, and how many had ended by then."""

    at: float
    ended: int


class _Best:
    """The greatest value of this epoch and the previous one."""

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


class StartRate:
    """The measured starts of one pool."""

    __slots__ = ("_counts", "_ended", "_fastest", "_quickest", "_seen", "last", "took")

    def __init__(self) -> None:
        self.took: float | None = None  # seconds that a start takes, as a moving average
        self.last: float | None = None  # when one last succeeded
        self._ended = self._seen = 0  # successful starts, and those of them whose beginning was observed
        self._counts: deque[tuple[float, int]] = deque()
        self._fastest = _Best(SHORT)  # starts a second
        self._quickest = _Best(LONG)  # seconds that a start takes on average, below zero: the greatest is the best

    def begin(self, now: float) -> Began:
        return Began(now, self._ended)

    def ended(self, now: float, began: Began | None) -> None:
        """A start has succeeded. None: its beginning was not observed, so its duration is unknown."""
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
        """How many concurrent starts the cluster can take."""
        fastest, quickest = self._fastest.value, self._quickest.value
        if self.took is None or fastest is None or quickest is None:
            return FIRST
        least = LEAST if self.took > STRETCHED * -quickest else FIRST
        return min(MOST, max(least, GAIN * fastest * -quickest))

    def rate(self, now: float) -> float:
        """Successful starts per second."""
        counts = self._counts
        while counts and counts[0][0] < now - SPAN:
            counts.popleft()
        if not counts:
            return 0.0
        return sum(count for _, count in counts) / min(SPAN, max(1.0, now - counts[0][0]))

    def moving(self, now: float) -> bool:
        """Whether any start has succeeded recently."""
        return self.last is not None and now - self.last < SPAN

    def _count(self, now: float) -> None:
        counts = self._counts
        if counts and now - counts[-1][0] < STEP:
            counts[-1] = (counts[-1][0], counts[-1][1] + 1)
            return
        counts.append((now, 1))
        if counts[0][0] < now - SPAN:
            counts.popleft()
