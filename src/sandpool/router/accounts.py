"""On whose account requests are under way: tenants share how many there may be, so that none keeps the others out.

A request counts from the moment it is known who asks until it has ended, a WebSocket or a tunnel for as long as it lasts. They cannot be taken
back, so the rule is the dynamic threshold of base/shares.py. Connections on which nothing is asked do not count: they give way when
another one needs their place.
"""

from __future__ import annotations

from sandpool.base.shares import Shares
from sandpool.router.refusals import Refusal, Word
from sandpool.router.values import Request


class Accounts:
    def __init__(self, total: int) -> None:
        self.shares = Shares(total)
        self._charged: dict[int, tuple[Request, str]] = {}  # by identity: clients choose the ids of requests

    def begin(self, request: Request, tenant: str) -> Refusal | None:
        """Why not; None: it counts."""
        if not self.shares.fits(tenant):
            whose = f"{tenant} has" if tenant else "there are"
            message = f"{whose} {self.shares.holds(tenant)} requests under way. End some, or try again in a moment"
            return Refusal(429, Word.EXHAUSTED, message, retry_after=1)
        self.shares.take(tenant)
        self._charged[id(request)] = request, tenant
        return None

    def end(self, request: Request) -> None:
        found = self._charged.pop(id(request), None)
        if found is not None:
            self.shares.take(found[1], -1)
