"""Room for so many at once, shared by tenants: whoever is below its share waits for a seat, whoever is above it is refused.

    if not seats.enter(tenant):
        await seats.wait(tenant)  # raises Full
    try: ...
    finally: seats.leave(tenant)

A seat that is given up goes to whoever waits, one tenant after the other. Since seats cannot be taken back, `make_room` is told whose
work to cut short when somebody must wait; it ends what only waits for its client.
"""

from __future__ import annotations

from collections.abc import Callable

from sandpool.base.shares import Shares
from sandpool.base.waiting import Waiting
from sandpool.kube.errors import TooManyRequests


class Full(TooManyRequests):
    """No seat, and no claim to one."""

    def __init__(self) -> None:
        super().__init__("too many requests are being served, please try again later", retry_after=1)


class Seats:
    def __init__(self, total: int, make_room: Callable[[str], None]) -> None:
        self.shares = Shares(total)
        self._make_room = make_room
        self._waiting = Waiting(self.shares)

    def enter(self, tenant: str) -> bool:
        """Whether a seat is free, and taken."""
        shares = self.shares
        if (shares.used if tenant else shares.own) >= shares.total:
            return False
        shares.take(tenant)
        return True

    async def wait(self, tenant: str) -> None:
        """Until there is a seat for a tenant below its share; Full for one that is not."""
        if not tenant or not self._entitled(tenant):
            self.shares.refused += 1
            raise Full
        await self._waiting.wait(tenant, self._cut_short, self.leave)

    def leave(self, tenant: str) -> None:
        self.shares.take(tenant, -1)
        if tenant and self._waiting:
            self._waiting.serve(_anybody)

    def _cut_short(self) -> None:
        held = self.shares.held
        self._make_room(max(held, key=held.__getitem__, default=""))

    def _entitled(self, tenant: str) -> bool:
        """Who waits wants a seat as much as who has one, so both count."""
        held = self.shares.held
        tenants = len(held.keys() | self._waiting.keys() | {tenant})
        return held.get(tenant, 0) + self._waiting.waiting(tenant) < max(1, self.shares.total // tenants)


def _anybody(_: str) -> bool:
    """A seat that was given up is for whoever waits: all who do are below their share."""
    return True
