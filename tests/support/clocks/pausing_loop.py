"""The simulation's event loop, on which processes can be paused: all of them at once, as those that share one machine, or a leader alone.

What a paused process would have done waits, its timers too, and happens at once when it goes on: as after SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import heapq
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

from sandpool.simulation.seeded_loop import SeededLoop, cancel_all
from sandpool.simulation.steps import AUTHOR

R = TypeVar("R")


class PausingLoop(SeededLoop):
    def __init__(self, order: Random) -> None:
        super().__init__(order)
        self._paused = ""  # whose callbacks are laid aside
        self._shared: object = None  # whose callbacks are everybody's, whoever asked for them
        self._aside: list[Any] = []
        self._timers: list[Any] = []

    def pause_all(self, seconds: float) -> None:
        """Nobody does anything for so long."""
        self._now += seconds

    def pause(self, author: str, shared: object) -> None:
        """Until `go_on` nothing happens that this author has begun, but for what belongs to `shared`."""
        self._paused, self._shared = author, shared

    def go_on(self) -> None:
        self._paused = ""
        self._ready.extend(self._aside)
        for timer in self._timers:
            heapq.heappush(self._scheduled, timer)
        self._aside, self._timers = [], []

    def _run_once(self) -> None:
        if self._paused:
            self._lay_aside()
        super()._run_once()

    def _lay_aside(self) -> None:
        ready, timers = list(self._ready), list(self._scheduled)
        self._aside += [handle for handle in ready if self._rests(handle)]
        self._timers += [timer for timer in timers if self._rests(timer)]
        self._ready.clear()
        self._ready.extend(handle for handle in ready if not self._rests(handle))
        self._scheduled[:] = [timer for timer in timers if not self._rests(timer)]
        heapq.heapify(self._scheduled)

    def _rests(self, handle: Any) -> bool:
        if handle.cancelled() or getattr(handle._callback, "__self__", None) is self._shared:
            return False
        author = handle._context.get(AUTHOR)
        return author is not None and author.name == self._paused


def run_pausing(loop: PausingLoop, work: Coroutine[Any, Any, R]) -> R:
    """As `run_seeded`."""
    try:
        return loop.run_until_complete(work)
    finally:
        loop.turns = 0
        try:
            cancel_all(loop)
        finally:
            loop.close()
