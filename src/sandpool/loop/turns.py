"""Turns of the event loop for work that takes long: one piece in each, one tenant after the other.

Whoever has a large body to read, or a long answer to render, asks for a turn before each piece. However many of them one tenant has under way,
others wait for one piece at a time, not for all of them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sandpool.loop.rotation import Rotation

BETWEEN: Final = 2
"""Turns of the loop between two such pieces, in which all that is short passes: a request takes about as many."""


class Turns:
    def __init__(self) -> None:
        self._taken = False  # somebody works in this turn, or did in one of the last
        self._passed = 0  # turns since then
        self._waiting: Rotation[asyncio.Future[None]] = Rotation()

    async def take(self, tenant: str) -> None:
        """Waits until it is the tenant's turn. It lasts until the caller waits for something else."""
        loop = asyncio.get_running_loop()
        if not self._taken:
            self._taken = True
            loop.call_soon(self._next)
            return
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.push(tenant, future)
        await future

    def _next(self) -> None:
        if self._passed < BETWEEN:
            self._passed += 1
            asyncio.get_running_loop().call_soon(self._next)
            return
        self._passed = 0
        while self._waiting:
            _, future = self._waiting.pop()
            if not future.done():  # else nobody waits for it any more
                future.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._taken = False
