"""Cancels a section of a task from outside, with an error that says why. Timeouts use the clock that is passed in."""

from __future__ import annotations

import asyncio
from types import TracebackType

from sandpool.base.clock import Clock, Timer


class CancelScope:
    """`with scope:` raises the error of the first `cut`. Never call `cut` from inside the task itself."""

    __slots__ = ("_before", "_clock", "_error", "_task", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._task: asyncio.Task[object] | None = None
        self._timer: Timer | None = None
        self._error: Exception | None = None
        self._before = 0

    def __enter__(self) -> CancelScope:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._before = self._task.cancelling()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        task, self._task = self._task, None
        self.unlimited()
        if self._error is None or task is None:
            return
        if task.uncancel() <= self._before and kind is asyncio.CancelledError:  # nobody else cancelled it as well
            raise self._error from None

    def cut(self, error: Exception) -> None:
        if self._error is None and self._task is not None:
            self._error = error
            self._task.cancel()

    def limit(self, seconds: float, error: Exception) -> None:
        """Sets a timeout from now on; replaces an earlier one."""
        self.unlimited()
        self._timer = self._clock.call_later(seconds, lambda: self.cut(error))

    def unlimited(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
