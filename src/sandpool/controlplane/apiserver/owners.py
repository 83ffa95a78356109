"""Whose connections a server has: nobody's at first, then a tenant's, by the first request that proves who asks.

Strangers are few: beyond a bound the one that has been silent for longest gives way, so that a flood of connections locks out nobody who has
something to say. Tenants share what there is (base/shares.py): where it is all in use, one below its share takes the place of
an idle connection of whoever has the most.
"""

from __future__ import annotations

from typing import Protocol

from sandpool.base.shares import NOBODY, Decision, Revoke, Shares
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.kube.errors import TooManyRequests


class Held(Protocol):
    """What is asked of a connection here."""

    owner: str

    @property
    def idle(self) -> bool:
        """Nothing was asked on it that is not answered."""
        ...

    @property
    def held_up(self) -> bool:
        """A request on it takes a seat and waits for its client: to send the rest, or to read."""
        ...

    def cut(self) -> None:
        """Ends it at once."""
        ...


class Owners:
    def __init__(self, limits: Limits) -> None:
        self.shares = Shares(limits.connections)
        self._limits = limits
        self._strangers: dict[Held, None] = {}  # the oldest first
        self._owned: dict[str, dict[Held, None]] = {}

    def arrived(self, connection: Held) -> None:
        if len(self._strangers) >= max(1, self._limits.strangers):
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.cut()
        self._strangers[connection] = None

    def own(self, connection: Held, tenant: str) -> None:
        """From now on it is that tenant's. TooManyRequests if that has too many already."""
        if connection.owner != NOBODY or connection not in self._strangers:
            return
        verdict = self.shares.ask(tenant)
        if verdict is Decision.REFUSE:
            raise TooManyRequests(self._words(tenant), retry_after=1)
        if isinstance(verdict, Revoke):
            self._revoke(verdict.holder)
        del self._strangers[connection]
        connection.owner = tenant
        self.shares.take(tenant)
        self._owned.setdefault(tenant, {})[connection] = None

    def left(self, connection: Held) -> None:
        self._strangers.pop(connection, None)
        self._disown(connection)

    def make_room(self, tenant: str) -> None:
        """Ends the oldest connection of a tenant on which a request in flight only waits for its client."""
        waiting = self._strangers if tenant == NOBODY else self._owned.get(tenant, {})
        found = next((connection for connection in waiting if connection.held_up), None)
        if found is not None:
            found.cut()

    def _revoke(self, tenant: str) -> None:
        """Ends a connection: the oldest idle one, else the newest."""
        owned = self._owned[tenant]
        chosen = next((connection for connection in owned if connection.idle), None) or next(reversed(owned))
        self._disown(chosen)
        chosen.cut()

    def _disown(self, connection: Held) -> None:
        owned = self._owned.get(connection.owner)
        if owned is None or connection not in owned:
            return
        del owned[connection]
        if not owned:
            del self._owned[connection.owner]
        self.shares.take(connection.owner, -1)

    def _words(self, tenant: str) -> str:
        if not tenant:
            return f"too many connections: the admin may have {self.shares.total} at once, please try again later"
        return (
            f'too many connections: namespace "{tenant}" has {self.shares.holds(tenant)} of the {self.shares.total} that this '
            "server allows to all, please close some, or try again later"
        )
