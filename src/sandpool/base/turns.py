"""Turns of the event loop for work that takes long: so many bytes of it in each, one tenant after the other.

Whoever has a large body to read, or a long answer to render, asks for a turn before each piece. However many of them one tenant has under way,
others wait for one piece, or as many small ones, at a time, not for all of them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sandpool.base.rotation import Rotation

BYTES: Final = 64 * 1024
"""That are worked through in one turn, or one piece if it is larger."""
BETWEEN: Final = 2
"""Turns of the loop between two such pieces, in which all that is short passes: a request takes about as many."""


class Turns:
    def __init__(self) -> None:
        self._used = 0  # bytes of this turn, or of one of the last
        self._passed = 0  # turns since then
        self._coming = False  # whether the next turn is on its way
        self._waiting: Rotation[tuple[asyncio.Future[None], int]] = Rotation()

    async def take(self, tenant: str, size: int = BYTES) -> None:
        """Waits until it is the tenant's turn. It lasts until the caller waits for something else."""
        if not self._coming:
            self._call_next()
        if self._used < BYTES and not self._waiting:
            self._used += size
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(tenant, (future, size))
        await future

    def _call_next(self) -> None:
        """If this fails for want of memory, the next who asks for a turn tries again: nobody waits for ever."""
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
            if not future.done():  # else nobody waits for it any more
                future.set_result(None)
                self._used += size
        if self._used:
            self._call_next()
