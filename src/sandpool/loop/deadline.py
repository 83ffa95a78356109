"""Time limits that are all equally long, such as those of reconciles: one timer for all of them.

`asyncio.timeout` orders a timer for each use and cancels it again, which is most of what it costs. Limits of one length end in the
order in which they began, so it is enough to have a timer for the oldest.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from sandpool.loop.clock import Clock, Timer


class Deadlines:
    """`with deadlines.limit() as limit: ...` cancels what runs inside after `seconds`, and then raises TimeoutError."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._running: dict[Limit, float] = {}  # and when each ends, the first to end first
        self._timer: Timer | None = None

    def limit(self) -> Limit:
        return Limit(self)

    def begin(self, limit: Limit) -> None:
        self._running[limit] = self._clock.monotonic() + self._seconds
        if self._timer is None:
            self._timer = self._clock.call_later(self._seconds, self._look)

    def end(self, limit: Limit) -> None:
        self._running.pop(limit, None)

    def close(self) -> None:
        """Nothing is limited any more: no timer is left behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._running:
            limit, ends = next(iter(self._running.items()))
            if ends > now + 1e-9:  # the hair is for timers that fire a rounding error early
                self._timer = self._clock.call_later(ends - now, self._look)
                return
            del self._running[limit]
            limit.expire()


class Limit:
    """One use. As in `asyncio.timeout`, a cancellation that is not ours passes through."""

    __slots__ = ("_before", "_deadlines", "_task", "expired")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.expired = False

    def expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def __enter__(self) -> Limit:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a limit is for what a task does")
        self._task, self._before = task, task.cancelling()
        self._deadlines.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.end(self)
        if self.expired and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error
