"""Looks now and then after a client that nobody reads from at the moment, and so would not hear hanging up."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from sandpool.base.clock import Clock, Timer
from sandpool.router.line import Line


class Patrol:
    """`with Patrol(...)`: calls `gone` once, if it comes to that. `half`: a client that sends nothing more counts as gone."""

    __slots__ = ("_clock", "_every", "_gone", "_half", "_line", "_timer")

    def __init__(self, clock: Clock, every: float, line: Line, gone: Callable[[], None], *, half: bool) -> None:
        self._clock = clock
        self._every = every
        self._line = line
        self._gone = gone
        self._half = half
        self._timer: Timer | None = None

    def __enter__(self) -> None:
        self._timer = self._clock.call_later(self._every, self._look)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._line.lost(half=self._half):
            self._gone()
        else:
            self._timer = self._clock.call_later(self._every, self._look)
