"""An event loop in virtual time whose order of callbacks is drawn from a seed. No threads, no sockets, no real waiting.

When nothing is left to do now, it is already later. Callbacks that are ready together run in an order that the seed
decides, as if each were on a thread of its own. The same seed gives the same run, also in another process: tasks hash by
their number, because asyncio keeps them in sets and a set's order must not depend on addresses.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Coroutine, Generator
from random import Random
from typing import Any, TypeVar

R = TypeVar("R")

MOST_TURNS = 25_000
"""An ordinary run takes some thousands."""


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SeededLoop(asyncio.BaseEventLoop):
    _ready: Any  # asyncio's own, the same in every version that we support
    _scheduled: Any
    _timer_cancelled_count: int
    _clock_resolution: float

    def __init__(self, order: Random) -> None:
        super().__init__()
        self._order = order
        self._now = 0.0
        self._tasks_made = 0
        self.turns = 0
        self.set_task_factory(_numbered)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """One turn: what is due becomes ready, and all that is ready runs, in the seed's order."""
        scheduled, ready = self._scheduled, self._ready
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not scheduled:
                raise Stuck("nothing is ready and nothing is due: the run waits for ever")
            self._now = max(self._now, scheduled[0].when())
        due = self._now + self._clock_resolution
        while scheduled and scheduled[0].when() < due:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if handle.cancelled():
                self._timer_cancelled_count -= 1
            else:
                ready.append(handle)
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise Stuck(f"{self.turns} turns, and no end: somebody works without rest at {self._now:.4f} s")
        batch = list(ready)
        ready.clear()
        if len(batch) > 1:
            self._order.shuffle(batch)
        for handle in batch:
            if not handle.cancelled():
                handle._run()

    def _write_to_self(self) -> None:
        """Another thread woke us, or an asynchronous generator was collected: what it added is in the queue already."""

    def _process_events(self, event_list: object) -> None:
        """There are no sockets."""


class Stuck(RuntimeError):
    """Nobody will ever wake anybody up again."""


def _numbered(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, R] | Generator[Any, None, R],
    context: contextvars.Context | None = None,
) -> asyncio.Task[R]:
    assert isinstance(loop, SeededLoop)
    loop._tasks_made += 1
    NumberedTask.number = loop._tasks_made  # asked for while the task is made, before it can carry its own
    task = NumberedTask(coro, loop=loop, context=context)
    task.number = loop._tasks_made
    return task


def run_seeded(work: Coroutine[Any, Any, R], order: Random) -> R:
    """Runs one coroutine to its end on a loop of its own, then cancels whatever it left behind."""
    loop = SeededLoop(order)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.turns = 0
        try:
            _cancel_all(loop)
        finally:
            loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    left = sorted((task for task in asyncio.all_tasks(loop) if isinstance(task, NumberedTask)), key=hash)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
