"""A token bucket. Time is an argument: it never looks at a clock."""

from __future__ import annotations


class TokenBucket:
    """At most `burst` at once and `qps` a second in the long run. `qps` of 0 or less means no limit."""

    __slots__ = ("_at", "_burst", "_qps", "_tokens")

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = float(max(1, burst))
        self._tokens = self._burst
        self._at = float("-inf")

    @property
    def unlimited(self) -> bool:
        return self._qps <= 0

    def take(self, now: float) -> bool:
        """Take one if there is one."""
        if self._qps <= 0:
            return True
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def wait(self, now: float) -> float:
        """Seconds until there is one; 0 if there is one now."""
        if self._qps <= 0:
            return 0.0
        self._fill(now)
        return max(0.0, (1 - self._tokens) / self._qps)

    def _fill(self, now: float) -> None:
        if now > self._at:
            # A hair is added because (1 - tokens) / qps * qps may fall short of 1 by a rounding error.
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps + 1e-9)
            self._at = now
