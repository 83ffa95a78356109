"""Work that holds the processor for longer than others should wait: in a thread, one piece at a time, one tenant after the other.

The interpreter parts the processor between that thread and the event loop. One piece at a time, because several threads would leave the loop less
of it; in turn, so that a tenant with many pieces does not hold up one with a single piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sandpool.loop.rotation import Rotation

T = TypeVar("T")


class Aside:
    def __init__(self) -> None:
        self._busy = False
        self._waiting: Rotation[asyncio.Future[None]] = Rotation()

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """Pure work: whoever is cancelled meanwhile leaves it to its end, and the next piece waits for that."""
        await self._turn(tenant)
        try:
            done = asyncio.get_running_loop().run_in_executor(None, work)
        except BaseException:
            self._next()
            raise
        done.add_done_callback(self._ended)
        return await asyncio.shield(done)

    async def _turn(self, tenant: str) -> None:
        if not self._busy:
            self._busy = True
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(tenant, future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._next()
            else:
                self._waiting.remove(tenant, future)
            raise

    def _ended(self, done: asyncio.Future[T]) -> None:
        if not done.cancelled():
            done.exception()  # looked at, also when whoever asked is gone
        self._next()

    def _next(self) -> None:
        self._busy = False
        while self._waiting:
            _, future = self._waiting.pop()
            if not future.done():  # else nobody waits for it any more
                self._busy = True
                future.set_result(None)
                return
