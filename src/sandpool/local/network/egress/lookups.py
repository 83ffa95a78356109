"""Names being looked up: so many at once for each pod and for all, and not for ever.

A look-up that nobody waits for any more still holds its place until it has ended, because its thread does, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sandpool.local.network.egress.outside import Resolve
from sandpool.local.network.forbidden import Address

Answer = asyncio.Task[Sequence[Address]]


class Places:
    """Those of all pods, and what runs in them."""

    def __init__(self, resolve: Resolve, number: int) -> None:
        self._resolve = resolve
        self._free = asyncio.Semaphore(number)
        self._running: set[Answer] = set()

    async def start(self, name: str) -> Answer:
        """When there is a place for it. It goes on whatever becomes of the asker."""
        await self._free.acquire()
        task: Answer = asyncio.ensure_future(self._ask(name))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        await _cancelled(self._running)

    async def _ask(self, name: str) -> Sequence[Address]:
        return await self._resolve(name)

    def _ended(self, task: Answer) -> None:
        self._running.discard(task)
        self._free.release()
        _look_at(task)


class Lookups:
    """Of one pod."""

    def __init__(self, places: Places, number: int, seconds: float) -> None:
        self._places = places
        self._own = asyncio.Semaphore(number)
        self._seconds = seconds
        self._waiting: set[Answer] = set()

    async def ask(self, name: str) -> Sequence[Address]:
        """OSError if there is no answer, TimeoutError (which is one) if it takes too long."""
        task: Answer = asyncio.ensure_future(self._placed(name))
        self._waiting.add(task)
        task.add_done_callback(self._ended)
        done, _ = await asyncio.wait({task}, timeout=self._seconds)
        if not done:
            task.cancel()
            raise TimeoutError(f"the name could not be looked up within {self._seconds:g} s")
        return task.result()

    async def close(self) -> None:
        await _cancelled(self._waiting)

    async def _placed(self, name: str) -> Sequence[Address]:
        await self._own.acquire()
        try:
            work = await self._places.start(name)
        except BaseException:
            self._own.release()
            raise
        work.add_done_callback(lambda _: self._own.release())
        return await asyncio.shield(work)

    def _ended(self, task: Answer) -> None:
        self._waiting.discard(task)
        _look_at(task)


def _look_at(task: Answer) -> None:
    """Whether or not somebody still waits: an error that nobody looks at would be complained about."""
    if not task.cancelled():
        task.exception()


async def _cancelled(tasks: set[Answer]) -> None:
    running = tuple(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
