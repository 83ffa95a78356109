"""How much of one kind is under way at once (pulls, layers being unpacked): tenants share it, and wait in turn for the next place.

A registry that drips, or an image that takes hours, keeps a place and nobody else's: one tenant alone may have nearly all of them, and
leaves room for another (loop/shares.py). When there is none left for a tenant that has none, whoever has the most gives its newest one up.
Nobody is refused for it; a pod that waits says so, and one that gave way tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sandpool.local.errors import NodeError
from sandpool.loop.rotation import Rotation
from sandpool.loop.shares import Shares

Task = asyncio.Task[object]


class Places:
    def __init__(self, total: int) -> None:
        self.shares = Shares(total)
        self._waiting: Rotation[asyncio.Future[None]] = Rotation()
        self._taken: dict[str, dict[Task, None]] = {}  # by tenant, the oldest first
        self._leaving: set[Task] = set()  # who was told to give way

    @asynccontextmanager
    async def one(self, tenant: str, tell: Callable[[str], object]) -> AsyncIterator[None]:
        """`tell` hears if there is none at the moment. NodeError: it had to give way."""
        if not self._waiting.waiting(tenant) and self.shares.room(tenant) > 0:
            self.shares.take(tenant)
        else:
            whose = f"namespace {tenant} has" if tenant else "there are"
            tell(f"waiting: {whose} {self.shares.holds(tenant)} pulls under way")
            await self._wait(tenant)
        task = asyncio.current_task()
        assert task is not None
        mine = self._taken.setdefault(tenant, {})
        mine[task] = None
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._leaving or task.uncancel() > 0:  # nobody wants it any more
                raise
            raise NodeError(
                "ErrImagePull",
                "the pull gave way to another namespace's, because this one has the most under way; it is tried again",
            ) from None
        finally:
            self._leaving.discard(task)
            del mine[task]
            if not mine:
                del self._taken[tenant]
            self._leave(tenant)

    async def _wait(self, tenant: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(tenant, future)
        self._make_room()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._leave(tenant)
            else:
                self._waiting.remove(tenant, future)
            raise

    def _make_room(self) -> None:
        """For those who have nothing at all, from who has the most."""
        shares = self.shares
        waiting = self._waiting.keys()
        without = sum(not shares.holds(tenant) for tenant in waiting if tenant)
        while without > len(self._leaving) + shares.total - shares.used:
            left = {
                tenant: [task for task in tasks if task not in self._leaving] for tenant, tasks in self._taken.items()
            }
            tasks = max((tasks for tenant, tasks in left.items() if tenant), key=len, default=[])
            if len(tasks) < 2:
                return
            self._leaving.add(tasks[-1])
            tasks[-1].cancel()

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
