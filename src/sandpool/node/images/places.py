"""How much of one kind is under way at once (pulls, large documents, layers being unpacked): tenants share it, and wait in turn for the next place.

One tenant alone may have nearly all places, and leaves room for another (base/shares.py). When there is none left for a tenant that has
none, whoever has the most gives its newest one up. If everybody has one, the slowest gives way (pace.py), so that registries that drip
keep nobody out. Nobody is refused for it; a pod that waits says so, and one that gave way tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sandpool.base.clock import Clock, Timer
from sandpool.base.errors import NodeError
from sandpool.base.shares import Shares
from sandpool.base.waiting import Waiting
from sandpool.node.images.pace import LOOK, Place, slowest

Task = asyncio.Task[object]


def quiet(words: str) -> None:
    """For whom progress does not matter."""


class Places:
    """`slow_ones_give_way` is for what depends on others than this machine, and tells its place how it gets on."""

    def __init__(self, total: int, clock: Clock, *, slow_ones_give_way: bool = True) -> None:
        self.shares = Shares(total)
        self._clock = clock
        self._slow_ones_give_way = slow_ones_give_way
        self._timer: Timer | None = None
        self._waiting = Waiting(self.shares)
        self._taken: dict[str, dict[Task, Place]] = {}  # by tenant, the oldest first
        self._leaving: dict[Task, str] = {}  # who was told to give way, and why

    @asynccontextmanager
    async def one(self, tenant: str, tell: Callable[[str], object] = quiet) -> AsyncIterator[Place]:
        """`tell` hears if there is none at the moment. NodeError: it had to give way."""
        if not self._waiting.waiting(tenant) and self._has_room(tenant):
            self.shares.take(tenant)
        else:
            whose = f"namespace {tenant} has" if tenant else "there are"
            tell(f"waiting: {whose} {self.shares.holds(tenant)} pulls under way")
            await self._waiting.wait(tenant, self._make_room, self._leave)
        task = asyncio.current_task()
        assert task is not None
        mine = self._taken.setdefault(tenant, {})
        mine[task] = place = Place(self._clock.monotonic)
        try:
            yield place
        except asyncio.CancelledError:
            if task not in self._leaving or task.uncancel() > 0:  # nobody wants it any more
                raise
            why = self._leaving[task]
            raise NodeError(
                "ErrImagePull", f"the pull gave way to another namespace's, because {why}; it is tried again"
            ) from None
        finally:
            self._leaving.pop(task, None)
            del mine[task]
            if not mine:
                del self._taken[tenant]
            self._leave(tenant)

    def _has_room(self, tenant: str) -> bool:
        return self.shares.room(tenant) > 0

    def _make_room(self) -> None:
        """For those who have nothing at all, from who has the most, or else from who is the slowest."""
        while self._missing() > 0:
            left = {
                tenant: [task for task in tasks if task not in self._leaving]
                for tenant, tasks in self._taken.items()
                if tenant
            }
            tasks = max(left.values(), key=len, default=[])
            if len(tasks) >= 2:
                self._tell_to_leave(tasks[-1], "this one has the most under way")
                continue
            if not self._slow_ones_give_way:
                return
            found = slowest({task: self._taken[tenant][task] for tenant in left for task in left[tenant]})
            if found is None:
                if self._timer is None:
                    self._timer = self._clock.call_later(LOOK, self._look)
                return
            self._tell_to_leave(found, "all places are taken and this one is too slow")

    def _missing(self) -> int:
        """How many places those who have nothing lack."""
        shares = self.shares
        waiting = self._waiting.keys()
        without = sum(not shares.holds(tenant) for tenant in waiting if tenant)
        return without - len(self._leaving) - (shares.total - shares.used)

    def _look(self) -> None:
        self._timer = None
        self._make_room()

    def _tell_to_leave(self, task: Task, why: str) -> None:
        self._leaving[task] = why
        task.cancel()

    def _leave(self, tenant: str) -> None:
        self.shares.take(tenant, -1)
        while self._waiting.serve(self._has_room):
            pass
