"""A rate with a burst: who comes too fast waits, in the order of arrival."""

from __future__ import annotations

import asyncio

from sandpool.base.clock import Clock


class Bucket:
    """Holds `burst` tokens and fills by `rate` a second. A larger request than the burst is paid off by waiting."""

    def __init__(self, clock: Clock, rate: float, burst: float) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = clock.monotonic()
        self._turn = asyncio.Lock()

    async def take(self, amount: float) -> None:
        async with self._turn:
            self._fill()
            self._tokens -= amount
            if self._tokens < 0:
                await self._clock.sleep(-self._tokens / self._rate)

    def try_take(self) -> bool:
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
