"""Bytes of answers on their way, which tenants share: what a client leaves unread must not fill the memory.

`unsent` is what waits in front of clients that do not keep up. A tenant whose clients leave too much of it unread loses the connection that asks
for more. `snapshots` is what long lists and watches that begin with one hold on to until it is sent: all of it as it was, whatever
changes meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from sandpool.base.shares import OPERATOR, Shares
from sandpool.base.turns import Turns
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.kube.errors import TooManyRequests

EACH: Final = 100
"""Bytes that an object in a snapshot takes besides its value."""
LONG: Final = 1024
"""Characters of a selector that take long enough to understand to wait for a turn."""


class Sending:
    def __init__(self, limits: Limits) -> None:
        self.unsent = Shares(limits.unsent)
        self.snapshots = Shares(limits.snapshots)
        self.turns = Turns()  # for large bodies, and pieces of long answers

    async def in_turn(self, tenant: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same pieces, each rendered when it is the tenant's turn."""
        await self.turns.take(tenant)
        async for piece in pieces:
            yield piece
            await self.turns.take(tenant)

    def may_wait(self, tenant: str, size: int) -> bool:
        """Whether that much more may wait for a client of that tenant."""
        return tenant == OPERATOR or self.unsent.fits(tenant, size)

    def check(self, tenant: str, size: int) -> None:
        """TooManyRequests, if the tenant's answers hold on to too much for another one."""
        if tenant != OPERATOR and not self.snapshots.fits(tenant, size):
            raise TooManyRequests(
                f'namespace "{tenant}" is being sent {self.snapshots.holds(tenant)} bytes of lists, and this one has {size} more: '
                "please read those first, ask for less (limit, selectors), or try again later",
                retry_after=1,
            )

    @contextmanager
    def holding(self, tenant: str, size: int) -> Iterator[None]:
        self.snapshots.take(tenant, size)
        try:
            yield
        finally:
            self.snapshots.take(tenant, -size)
