"""An event loop in virtual time whose order of callbacks is drawn from a seed. No threads, no sockets, no real waiting.

When nothing is ready, time jumps to the next timer. Callbacks that are ready together run in an order that the seed
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
    """Runs callbacks that are ready together in seeded order, and jumps to the next timer when none is."""

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
    """The run waits for ever, or never comes to rest."""


def _numbered(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, R] | Generator[Any, None, R],
    context: contextvars.Context | None = None,
) -> asyncio.Task[R]:
    assert isinstance(loop, SeededLoop)
    loop._tasks_made += 1
    NumberedTask.number = loop._tasks_made  # used while the task is constructed, before it has its own number
    task = NumberedTask(coro, loop=loop, context=context)
    task.number = loop._tasks_made
    return task


def run_seeded(work: Coroutine[Any, Any, R], order: Random) -> R:
    """Runs one coroutine on its own loop, then cancels the tasks that it left behind."""
    loop = SeededLoop(order)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.turns = 0
        try:
            cancel_all(loop)
        finally:
            loop.close()


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    left = sorted((task for task in asyncio.all_tasks(loop) if isinstance(task, NumberedTask)), key=hash)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


class RandomStreams:
    """Random numbers by purpose: each user of chance has its own stream, so that one more fault does not shift all the others."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, purpose: str) -> Random:
        """Equal for equal seeds and purposes, in every process."""
        return Random(f"{self._seed}/{purpose}")  # noqa: S311  # chance that can be repeated is the point
