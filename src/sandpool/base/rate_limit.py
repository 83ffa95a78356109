"""A token bucket. It never reads a clock: time is an argument."""

from __future__ import annotations


class TokenBucket:
    """Allows `burst` at once and `qps` per second in the long run. A `qps` of 0 or less means no limit."""

    __slots__ = ("_at", "_burst", "_qps", "_tokens")

    def __init__(self, qps: float, burst: float) -> None:
        self._qps = qps
        self._burst = float(max(1, burst))
        self._tokens = self._burst
        self._at = float("-inf")

    @property
    def unlimited(self) -> bool:
        return self._qps <= 0

    def take(self, now: float) -> bool:
        """Takes a token if there is one."""
        if self._qps <= 0:
            return True
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def spend(self, now: float, amount: float) -> float:
        """Takes an amount, even if fewer tokens are left. Returns the seconds until the debt is paid off."""
        if self._qps <= 0:
            return 0.0
        self._fill(now)
        self._tokens -= amount
        return max(0.0, -self._tokens / self._qps)

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0 if there is one now."""
        if self._qps <= 0:
            return 0.0
        self._fill(now)
        return max(0.0, (1 - self._tokens) / self._qps)

    def _fill(self, now: float) -> None:
        if now > self._at:
            # A little is added because (1 - tokens) / qps * qps may fall short of 1 by a rounding error.
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps + 1e-9)
            self._at = now
