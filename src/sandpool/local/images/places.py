"""How many pulls are under way at once: tenants share them, and wait in turn for the next.

A registry that drips, or an image that takes hours, keeps a place and nobody else's: one tenant alone may have nearly all of them, and
leaves room for another (loop/shares.py). Nobody is refused for it; a pod that waits says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sandpool.loop.rotation import Rotation
from sandpool.loop.shares import Shares


class Places:
    def __init__(self, total: int) -> None:
        self.shares = Shares(total)
        self._waiting: Rotation[asyncio.Future[None]] = Rotation()

    @asynccontextmanager
    async def one(self, tenant: str, tell: Callable[[str], object]) -> AsyncIterator[None]:
        """`tell` hears if there is none at the moment."""
        if not self._waiting.waiting(tenant) and self.shares.room(tenant) > 0:
            self.shares.take(tenant)
        else:
            whose = f"namespace {tenant} has" if tenant else "there are"
            tell(f"waiting: {whose} {self.shares.holds(tenant)} pulls under way")
            await self._wait(tenant)
        try:
            yield
        finally:
            self._leave(tenant)

    async def _wait(self, tenant: str) -> None:
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

    def _leave(self, tenant: str) -> None:
        self.shares.take(tenant, -1)
        for _ in range(len(self._waiting)):  # each at most once: one who has its share waits on
            following, future = self._waiting.pop()
            if future.done():
                continue  # it has given up
            if self.shares.room(following) > 0:
                self.shares.take(following)
                future.set_result(None)
            else:
                self._waiting.push(following, future)
