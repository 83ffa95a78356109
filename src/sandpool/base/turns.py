"""Divides event loop time between tenants: long work is done in pieces, and tenants take turns.

Code that handles a large body or a long response takes a turn (`Turns`) before each piece. However many of these one tenant has in flight,
other tenants wait for one piece at a time, or a few small ones, not for all of them.

A sender may cut a stream into frames or chunks of one byte. The cost of parsing them depends on their number, not on their bytes. So
received bytes are parsed in portions, and each portion is weighed by what it may cost (`Portions`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from sandpool.base.fairness import RoundRobin

BYTES: Final = 64 * 1024
"""Bytes of work in one turn. A single larger piece is allowed."""
BETWEEN: Final = 2
"""Iterations of the event loop between two turns, for short work: about as many as a request takes."""


class Turns:
    """Gives tenants turns. Call `take` before each piece of long work."""

    def __init__(self) -> None:
        self._used = 0  # bytes of the current turn
        self._passed = 0  # event loop iterations since then
        self._coming = False  # whether the next turn is scheduled
        self._waiting: RoundRobin[tuple[asyncio.Future[None], int]] = RoundRobin()

    async def take(self, tenant: str, size: int = BYTES) -> None:
        """Waits until it is the tenant's turn. The turn lasts until the caller awaits something else."""
        if not self._coming:
            self._call_next()
        if self._used < BYTES and not self._waiting:
            self._used += size
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(tenant, (future, size))
        await future

    def _call_next(self) -> None:
        """Schedules the next turn. If this fails for lack of memory, the next call of `take` tries again, so nothing waits forever."""
        asyncio.get_running_loop().call_soon(self._next)
        self._coming = True

    def _next(self) -> None:
        self._coming = False
        if self._passed < BETWEEN:
            self._passed += 1
            self._call_next()
            return
        self._passed = self._used = 0
        while self._waiting and self._used < BYTES:
            _, (future, size) = self._waiting.pop()
            if not future.done():  # else the waiter has given up
                future.set_result(None)
                self._used += size
        if self._used:
            self._call_next()


LEAST: Final = 4 * 1024
MOST: Final = BYTES
FINE: Final = 256
"""If pieces are smaller than this on average, portions stay small."""
EACH: Final = 512
"""Bytes that are added to the weight of every portion, for its overhead."""


CARRIED: Final = 1 << 20
"""Bytes that a connection may copy before others get a turn."""
SMALLEST: Final = 64 * 1024
"""A smaller piece counts for this many bytes: it takes as long."""


class Carried:
    """Counts the bytes that one connection has copied since its last turn. A single piece needs no turn; many long streams take turns."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent = CARRIED - 2 * SMALLEST

    def due(self, size: int) -> bool:
        """Counts a piece. True if others should get a turn now."""
        self._spent += max(size, SMALLEST)
        if self._spent < CARRIED:
            return False
        self._spent = 0
        return True


class Portions:
    """Decides how many received bytes to parse at once: few, until they are known to come in large pieces."""

    __slots__ = ("_found", "_given", "_size")

    def __init__(self) -> None:
        self._size = LEAST
        self._given = 0  # bytes of the last portion
        self._found = 0  # pieces in it

    def found(self, pieces: int) -> None:
        """Pieces found in the current portion; several protocol layers may each report some."""
        self._found += pieces

    def cut(self, available: int) -> int:
        """How many of the available bytes to parse now."""
        if self._found * FINE > self._given:
            self._size = LEAST
        elif self._given == self._size:
            self._size = min(MOST, 2 * self._size)
        self._found = 0
        self._given = min(available, self._size)
        return self._given

    @property
    def weight(self) -> int:
        """The cost of the current portion, as bytes of cheap work."""
        return (EACH + self._given) * (MOST // self._size)
