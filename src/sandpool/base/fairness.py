"""Decides which of several waiting tenants is next: round robin, or in proportion to weights.

How much each may have is decided in shares.py; how event loop time is divided is in turns.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from sandpool.base.shares import Shares

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """One queue per key: first in, first out within a key, round robin between keys."""

    __slots__ = ("_queues", "_size")

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}  # in the order of their turns
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def keys(self) -> set[str]:
        return set(self._queues)

    def waiting(self, key: str) -> int:
        return len(self._queues.get(key, ()))

    def push(self, key: str, item: T) -> None:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append(item)
        self._size += 1

    def next_key(self) -> str:
        """The key whose turn it is. Do not call this when nothing waits."""
        return next(iter(self._queues))

    def pass_over(self) -> None:
        """Moves the next key to the end of the turns; its items keep their order."""
        key = self.next_key()
        self._queues[key] = self._queues.pop(key)

    def pop(self) -> tuple[str, T]:
        """Removes the next item and returns it with its key, which moves to the end of the turns. KeyError if nothing waits."""
        if not self._size:
            raise KeyError("nothing waits")
        key = self.next_key()
        queue = self._queues.pop(key)
        item = queue.popleft()
        if queue:
            self._queues[key] = queue
        self._size -= 1
        return key, item

    def remove(self, key: str, item: T) -> None:
        """Removes an item if it still waits; it may have been served already."""
        queue = self._queues.get(key)
        if queue is None or item not in queue:
            return
        queue.remove(item)
        self._size -= 1
        if not queue:
            del self._queues[key]


class WaitingTenants(RoundRobin[asyncio.Future[None]]):
    """Callers that wait for a unit of a shared resource: tenants take turns, and within a tenant it is first come, first served.

    The owner of the shares decides which tenant may have a unit, and how to make room.
    """

    __slots__ = ("_shares",)

    def __init__(self, shares: Shares) -> None:
        super().__init__()
        self._shares = shares

    async def wait(self, tenant: str, make_room: Callable[[], object], leave: Callable[[str], object]) -> None:
        """Waits until `serve` has taken a unit for the tenant. If the caller was cancelled at that moment, `leave` gives the unit back."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.push(tenant, future)
        make_room()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                leave(tenant)
            else:
                self.remove(tenant, future)
            raise

    def serve(self, may: Callable[[str], bool]) -> bool:
        """Takes a unit for the next tenant for which `may` is true. Returns whether there was one."""
        left = len(self.keys())
        while left and self:
            tenant = self.next_key()
            if not may(tenant):
                self.pass_over()
                left -= 1
                continue
            _, future = self.pop()
            if not future.done():  # else the waiter has given up
                self._shares.take(tenant)
                future.set_result(None)
                return True
        return False


class StrideScheduler:
    """Turns in proportion to weights (stride scheduling). Counts only; nothing here waits.

    Parties are numbered from 0; each has a weight above 0. A waiting party gets its share of the turns, whatever the others want. The share of
    a party that does not wait goes to the others, and idle time earns no credit.
    """

    __slots__ = ("_next", "_now", "_strides")

    def __init__(self, weights: Sequence[float]) -> None:
        self._strides = [1.0 / weight for weight in weights]
        self._next = [0.0] * len(weights)  # the virtual time of each one's next turn
        self._now = 0.0

    def joined(self, party: int) -> None:
        """Call when the party begins to wait. It gets no credit for the past."""
        if self._next[party] < self._now:
            self._next[party] = self._now

    def choose(self, waiting: Iterable[int]) -> int:
        """The waiting party whose turn it is; on a tie, the first one given."""
        return min(waiting, key=self._next.__getitem__)

    def took(self, party: int) -> None:
        self._now = max(self._now, self._next[party])
        self._next[party] = self._now + self._strides[party]
