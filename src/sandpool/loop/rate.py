"""A token bucket on the injected clock: so many at once, then so many per second."""

from __future__ import annotations

from sandpool.loop.clock import Clock


class TokenBucket:
    def __init__(self, clock: Clock, rate: float, burst: int) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a token bucket needs a rate above 0 and a burst of 1 or more, not {rate} and {burst}")
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at = clock.monotonic()

    def try_take(self) -> bool:
        """Takes a token if there is one; never waits."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def reserve(self) -> float:
        """Takes a token, if need be one that is not there yet; the answer is how long to wait before using it."""
        self._refill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    async def take(self) -> None:
        """Waits for a token. Callers are served in the order in which they came."""
        delay = self.reserve()
        if delay > 0:
            try:
                await self._clock.sleep(delay)
            except BaseException:
                self._tokens += 1  # given back: nobody used it
                raise

    @property
    def full(self) -> bool:
        self._refill()
        return self._tokens >= self._burst

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._at) * self._rate)
        self._at = now
