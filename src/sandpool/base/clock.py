"""Clocks. Code in loop/ and above reads time only through these.

Both clocks take delays from the running event loop, so they agree with `asyncio.timeout`, even when a test runs the loop in
virtual time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Timer(Protocol):
    """A callback that has been scheduled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The time of day, a monotonic time, sleeping and timers."""

    def now(self) -> datetime:
        """The wall clock, in UTC: for what is written into objects."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for deadlines and delays."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Calls back once, on the event loop, unless cancelled before."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class LoopClock:
    """A clock for tests in virtual time: it starts at a given moment and follows the event loop's own time."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._origin = asyncio.get_event_loop().time()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic() - self._origin)

    def jump(self, by: timedelta) -> None:
        """Moves the wall clock, as an administrator or a suspended machine does. Timers are not affected."""
        self._start += by

    def monotonic(self) -> float:
        return asyncio.get_event_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_event_loop().call_later(seconds, callback)
