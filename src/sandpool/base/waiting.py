"""Tenants that wait for a unit of what they share: one tenant after the other, and first come, first served for each of them.

Who may have a unit, and what is done to make room, is decided by whoever owns the shares (seats.py, images/places.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sandpool.base.rotation import Rotation
from sandpool.base.shares import Shares


class Waiting(Rotation[asyncio.Future[None]]):
    __slots__ = ("_shares",)

    def __init__(self, shares: Shares) -> None:
        super().__init__()
        self._shares = shares

    async def wait(self, tenant: str, make_room: Callable[[], object], leave: Callable[[str], object]) -> None:
        """Until a unit was taken for the tenant. `leave` gives it back if the tenant has gone by the time it comes."""
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
        """Takes a unit for the next tenant that may have one; whether there was such a tenant."""
        left = len(self.keys())
        while left and self:
            tenant = self.next_key()
            if not may(tenant):
                self.pass_over()
                left -= 1
                continue
            _, future = self.pop()
            if not future.done():  # else it has given up
                self._shares.take(tenant)
                future.set_result(None)
                return True
        return False
