"""How many pulls, large documents and unpacked layers are under way at once: tenants share the slots, and wait in turn for the next one.

One tenant alone may have nearly all slots and leaves room for another (base/shares.py). When none is left for a tenant that has none, the
tenant with the most gives up its newest. If every tenant has one, the slowest pull is cancelled, so that a registry that sends very
slowly does not block others. No pull fails for it: a waiting pod says so in its status, and a cancelled pull is retried.

No pull is too slow as long as nobody waits. When somebody does, a pull that received nothing for a while is cancelled, and so is one that has received
less than is due by now. What is due grows with the square of the time, so a registry cannot keep a slot for long by sending just enough:
for an image of 20 GiB that is less than two hours, at ever higher speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar

from sandpool.base.clock import Clock, Timer
from sandpool.base.errors import NodeError
from sandpool.base.fairness import WaitingTenants
from sandpool.base.shares import Shares

T = TypeVar("T")

CHECK_INTERVAL: Final = 5.0
"""Seconds between two checks while somebody waits."""
GRACE: Final = 20.0
"""Seconds for which a slot is safe: to resolve a name, log in and get a manifest."""
SILENCE: Final = 20.0
GROWTH: Final = 512
"""Growth of the average rate that is due, in bytes per second, per second since the slot was taken."""


class PullSlot:
    """One pull that is under way, and how fast it receives."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = self._at = now()
        self._size = 0
        self._working = 0  # layers of one pull may work concurrently
        self._entered = 0.0

    def got(self, size: int) -> None:
        """So many bytes were received."""
        self._size += size
        self._at = self._now()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Excludes time that this machine needs for its own work."""
        if not self._working:
            self._entered = self._now()
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1
            if not self._working:
                self._at = self._now()
                self._began += self._at - self._entered

    def progress(self) -> float:
        """The part of what is due that was received; below 1 is too slow."""
        now = self._now()
        elapsed = now - self._began
        if self._working or elapsed < GRACE:
            return float("inf")
        if now - self._at >= SILENCE:
            return 0.0
        return self._size / (GROWTH * elapsed * elapsed)


def slowest(slots: Mapping[T, PullSlot]) -> T | None:
    """The slot that has received the least of what is due, if it is too slow at all."""
    found = min(slots, key=lambda each: slots[each].progress(), default=None)
    return found if found is not None and slots[found].progress() < 1 else None


Task = asyncio.Task[object]


def ignore_progress(text: str) -> None:
    """A progress callback that does nothing."""


class PullSlots:
    """`slow_ones_give_way` is for work that depends on a remote side and reports its progress to its slot."""

    def __init__(self, total: int, clock: Clock, *, slow_ones_give_way: bool = True) -> None:
        self.shares = Shares(total)
        self._clock = clock
        self._slow_ones_give_way = slow_ones_give_way
        self._timer: Timer | None = None
        self._waiting = WaitingTenants(self.shares)
        self.taken: dict[str, dict[Task, PullSlot]] = {}  # by tenant, the oldest first
        self.giving_way: dict[Task, str] = {}  # tasks that must give way, and why

    @asynccontextmanager
    async def acquire(
        self, tenant: str, on_progress: Callable[[str], object] = ignore_progress
    ) -> AsyncIterator[PullSlot]:
        """Takes a slot, waiting if there is none; `on_progress` is told that it waits. Raises NodeError if the slot was taken away again."""
        if not self._waiting.waiting(tenant) and self._has_room(tenant):
            self.shares.take(tenant)
        else:
            whose = f"namespace {tenant} has" if tenant else "there are"
            on_progress(f"waiting: {whose} {self.shares.holds(tenant)} pulls under way")
            await self._waiting.wait(tenant, self._make_room, self._release)
        task = asyncio.current_task()
        assert task is not None
        mine = self.taken.setdefault(tenant, {})
        mine[task] = slot = PullSlot(self._clock.monotonic)
        try:
            yield slot
        except asyncio.CancelledError:
            if task not in self.giving_way or task.uncancel() > 0:  # cancelled by its caller
                raise
            why = self.giving_way[task]
            raise NodeError(
                "ErrImagePull", f"the pull gave way to another namespace's, because {why}; it will be retried"
            ) from None
        finally:
            self.giving_way.pop(task, None)
            del mine[task]
            if not mine:
                del self.taken[tenant]
            self._release(tenant)

    def _has_room(self, tenant: str) -> bool:
        return self.shares.room(tenant) > 0

    def _make_room(self) -> None:
        """Frees slots for tenants that have none: from the tenant with the most, or else the slowest."""
        while self._missing() > 0:
            left = {
                tenant: [task for task in tasks if task not in self.giving_way]
                for tenant, tasks in self.taken.items()
                if tenant
            }
            tasks = max(left.values(), key=len, default=[])
            if len(tasks) >= 2:
                self._cancel(tasks[-1], "this one has the most under way")
                continue
            if not self._slow_ones_give_way:
                return
            found = slowest({task: self.taken[tenant][task] for tenant in left for task in left[tenant]})
            if found is None:
                if self._timer is None:
                    self._timer = self._clock.call_later(CHECK_INTERVAL, self._check)
                return
            self._cancel(found, "all places are taken and this one is too slow")

    def _missing(self) -> int:
        """How many slots are missing for tenants that have none."""
        shares = self.shares
        waiting = self._waiting.keys()
        without = sum(not shares.holds(tenant) for tenant in waiting if tenant)
        return without - len(self.giving_way) - (shares.total - shares.used)

    def _check(self) -> None:
        self._timer = None
        self._make_room()

    def _cancel(self, task: Task, why: str) -> None:
        self.giving_way[task] = why
        task.cancel()

    def _release(self, tenant: str) -> None:
        self.shares.take(tenant, -1)
        while self._waiting.serve(self._has_room):
            pass
