"""Time limits of equal length, such as those of reconciles, on one shared timer.

`asyncio.timeout` creates and cancels a timer for each use, which is most of its cost. Limits of equal length end in the order in
which they began, so one timer for the oldest is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sandpool.base.clock import Clock, Timer


class Deadlines:
    """`with deadlines.limit() as limit: ...` cancels what runs inside after `seconds`, and then raises TimeoutError."""

    __slots__ = ("_clock", "running", "seconds", "timer")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds
        self.running: dict[Limit, float] = {}  # when each ends, earliest first
        self.timer: Timer | None = None

    def limit(self) -> Limit:
        """A limit for the current task, which may use it repeatedly."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("Deadlines.limit must be called inside a task")
        return Limit(self, task, self._clock.monotonic)

    def order(self, seconds: float) -> None:
        self.timer = self._clock.call_later(seconds, self._look)

    def close(self) -> None:
        """Cancels the timer. Call it when no limit is in use any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _look(self) -> None:
        self.timer = None
        now = self._clock.monotonic()
        while self.running:
            limit, ends = next(iter(self.running.items()))
            if ends > now + 1e-9:  # tolerance for timers that fire a rounding error early
                self.order(ends - now)
                return
            del self.running[limit]
            limit.expire()


class Limit:
    """Works like `asyncio.timeout`: a cancellation from elsewhere passes through. `expired` refers to the current or last use."""

    __slots__ = ("_before", "_deadlines", "_monotonic", "_task", "expired")

    def __init__(self, deadlines: Deadlines, task: asyncio.Task[Any], monotonic: Callable[[], float]) -> None:
        self._deadlines = deadlines
        self._task = task
        self._monotonic = monotonic
        self.expired = False

    def expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def __enter__(self) -> Limit:
        deadlines = self._deadlines
        self.expired = False
        self._before = self._task.cancelling()
        deadlines.running[self] = self._monotonic() + deadlines.seconds
        if deadlines.timer is None:
            deadlines.order(deadlines.seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.running.pop(self, None)
        if self.expired and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error
