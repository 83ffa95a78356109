"""Work that holds the processor, or much memory, for longer than others should wait: one piece at a time, one tenant after the other.

`Gate` lets one in at a time, in turn, so that a tenant with many pieces does not hold up one with a single piece. `Aside` runs each piece in a thread: the
interpreter parts the processor between that thread and the event loop, and several threads would leave the loop less of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from sandpool.base.rotation import Rotation

T = TypeVar("T")


class Gate:
    def __init__(self) -> None:
        self._busy = False
        self._waiting: Rotation[asyncio.Future[None]] = Rotation()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        await self.enter(tenant)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, tenant: str) -> None:
        if not self._busy:
            self._busy = True
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(tenant, future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave()
            else:
                self._waiting.remove(tenant, future)
            raise

    def leave(self) -> None:
        self._busy = False
        while self._waiting:
            _, future = self._waiting.pop()
            if not future.done():  # else nobody waits for it any more
                self._busy = True
                future.set_result(None)
                return


class Aside:
    def __init__(self) -> None:
        self._gate = Gate()

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """Pure work: whoever is cancelled meanwhile leaves it to its end, and the next piece waits for that."""
        await self._gate.enter(tenant)
        try:
            done = asyncio.get_running_loop().run_in_executor(None, work)
        except BaseException:
            self._gate.leave()
            raise
        done.add_done_callback(self._ended)
        try:
            return await asyncio.shield(done)
        finally:
            del (
                done,
                work,
            )  # a failure's traceback holds this frame, and this frame would hold the failure and all that the work was given

    def _ended(self, done: asyncio.Future[T]) -> None:
        if not done.cancelled():
            done.exception()  # looked at, also when whoever asked is gone
        self._gate.leave()
