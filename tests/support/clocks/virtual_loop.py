"""An event loop in virtual time: when nothing is left to do now, it is already later. For searches over many schedules."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    _now = 0.0
    _ready: Any  # these are asyncio's own, the same in every version that we support
    _scheduled: Any
    _timer_cancelled_count: int

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():  # or it would really wait for what comes after them
            heapq.heappop(self._scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def run_virtually(work: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()
