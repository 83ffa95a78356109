"""How often something happened lately, and how long to wait before it may happen again: at first not at all, then doubling.

For what is right to do at once and wrong to do again and again: to make what has vanished, to put right what somebody else
wrote. Two who undo each other's work never rest otherwise. Times are of the monotonic clock, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

RESPITE = 30.0
"""What happened longer ago than this, and not again since, counts as over."""
LONGEST = 16.0


@dataclass(slots=True)
class Streak:
    at: float | None = None  # the last time; None: never
    times: int = 0  # how often it followed closely upon another time

    def count(self, now: float) -> None:
        """It happens."""
        recent = self.at is not None and now - self.at <= RESPITE
        self.at, self.times = now, self.times + 1 if recent else 0

    def delay(self, first: float) -> float:
        """Seconds to wait after the last time; `first` when it was the second."""
        return min(LONGEST, first * 2.0 ** (self.times - 1)) if self.times else 0.0

    def end(self) -> None:
        self.at, self.times = None, 0
