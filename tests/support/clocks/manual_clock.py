"""A clock that stands still until a test moves it. No event loop needed."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

START = datetime(2026, 1, 1, tzinfo=UTC)


class _Call:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    def __init__(self) -> None:
        self._time = 0.0
        self._calls: list[tuple[float, int, _Call]] = []
        self._order = count()

    def now(self) -> datetime:
        return START + timedelta(seconds=self._time)

    def monotonic(self) -> float:
        return self._time

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self.call_later(seconds, over.set)
        await over.wait()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> _Call:
        call = _Call(callback)
        heapq.heappush(self._calls, (self._time + seconds, next(self._order), call))
        return call

    def advance(self, seconds: float) -> None:
        """Moves time on, calling back whatever falls due, each at its own moment."""
        end = self._time + seconds
        while self._calls and self._calls[0][0] <= end:
            at, _, call = heapq.heappop(self._calls)
            self._time = max(self._time, at)
            if call.callback is not None:
                call.callback()
        self._time = end
