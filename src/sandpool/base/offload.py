"""Runs work that would block the event loop for too long in threads; tenants take turns.

`FairLock` admits one holder at a time, tenant by tenant, so that a tenant with many pieces of work does not hold up one with a single piece.
`Offload` is for CPU-bound work and runs one piece at a time: the GIL is shared between that thread and the event loop, and more threads would
leave the loop less of it. `FairThreads` is for work that waits for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from sandpool.base.fairness import RoundRobin

T = TypeVar("T")


class FairLock:
    """A lock that tenants get in turn."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()

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
            if not future.done():  # else the waiter has given up
                self._busy = True
                future.set_result(None)
                return


class Offload:
    """Runs work in a thread, one piece at a time."""

    def __init__(self) -> None:
        self._gate = FairLock()

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """Runs pure work. If the caller is cancelled, the work still runs to its end, and the next piece waits for it."""
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
            )  # a failure's traceback refers to this frame: without this, the frame would keep the failure and the work alive

    def _ended(self, done: asyncio.Future[T]) -> None:
        if not done.cancelled():
            done.exception()  # retrieved, also when the caller is gone
        self._gate.leave()


class FairThreads:
    """A few threads that tenants share in turn. The last free thread is only for a tenant that has none, so that one tenant's slow work does
    not keep all others waiting."""

    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self._free = count
        self._busy: dict[str, int] = {}  # threads by tenant; only those that have one
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """Runs work in a thread. If the caller is cancelled, work that has begun runs to its end. RuntimeError after `close`."""
        await self._enter(tenant)
        try:
            done = asyncio.get_running_loop().run_in_executor(self._pool, work)
        except BaseException:
            self._leave(tenant)
            raise
        done.add_done_callback(lambda ended: self._ended(tenant, ended))
        try:
            return await asyncio.shield(done)
        finally:
            del done, work  # else a failure's traceback and this frame keep each other alive

    def close(self) -> None:
        """Waits until all work that has begun is done."""
        self._pool.shutdown()

    async def _enter(self, tenant: str) -> None:
        if not self._waiting.waiting(tenant) and self._may(tenant):
            self._take(tenant)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(tenant, future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._leave(tenant)
            else:
                self._waiting.remove(tenant, future)
            raise

    def _may(self, tenant: str) -> bool:
        return self._free > 0 and (self._free > 1 or tenant not in self._busy)

    def _take(self, tenant: str) -> None:
        self._free -= 1
        self._busy[tenant] = self._busy.get(tenant, 0) + 1

    def _leave(self, tenant: str) -> None:
        self._free += 1
        self._busy[tenant] -= 1
        if not self._busy[tenant]:
            del self._busy[tenant]
        left = len(self._waiting.keys())
        while left and self._waiting and self._free:
            waiting = self._waiting.next_key()
            if not self._may(waiting):
                self._waiting.pass_over()
                left -= 1
                continue
            _, future = self._waiting.pop()
            if not future.done():  # else the waiter has given up
                self._take(waiting)
                future.set_result(None)

    def _ended(self, tenant: str, done: asyncio.Future[T]) -> None:
        if not done.cancelled():
            done.exception()  # retrieved, also when the caller is gone
        self._leave(tenant)
