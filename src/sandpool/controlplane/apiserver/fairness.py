"""Divides the API server between tenants: connections, requests in flight, and bytes of responses that wait for clients.

`ConnectionOwners`: a connection has no owner at first; the first authenticated request assigns it to its tenant. The number of unauthenticated
connections is limited: above the limit the oldest is closed, so that a flood of connections cannot lock out clients that authenticate. When all
connections are in use and a tenant below its share (base/shares.py) connects, an idle connection of the tenant with the most is closed.

`Seats`: requests in flight. When all seats are taken, a tenant below its share waits, one above it gets 429.

    if not seats.enter(tenant):
        await seats.wait(tenant)  # raises Full
    try: ...
    finally: seats.leave(tenant)

`ResponseBudget`: bounds the memory of responses that clients do not read.

Handlers call `wait_for_turn` and `list_selected`: the cost of a short request depends on the objects that it names, so it waits for a turn of its
tenant according to their size.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from sandpool.base.fairness import WaitingTenants
from sandpool.base.shares import NOBODY, OPERATOR, Decision, Revoke, Shares
from sandpool.base.turns import Turns
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.exchange import SMALL
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.objects.objects import AnyResource, Objects
from sandpool.controlplane.objects.options import Listed, ListQuery
from sandpool.kube.errors import TooManyRequests

SNAPSHOT_OBJECT: Final = 100
"""Bytes that an object in a snapshot takes in addition to its value."""
SHORT_LIST: Final = 4096
"""A list with at most this `list_work` (a thousand objects) does not wait for a turn."""
LONG_SELECTOR: Final = 1024
"""Parsing a selector longer than this, in characters, waits for a turn."""


class OwnedConnection(Protocol):
    """The part of a connection that is used here."""

    owner: str

    @property
    def idle(self) -> bool:
        """Whether no request on it is in progress."""
        ...

    @property
    def waits_for_client(self) -> bool:
        """Whether a request on it holds a seat and waits for its client to send the rest, or to read."""
        ...

    def cut(self) -> None:
        """Closes it at once."""
        ...


class ConnectionOwners:
    """Assigns connections to tenants, and closes some when there are too many."""

    def __init__(self, limits: Limits) -> None:
        self.shares = Shares(limits.connections)
        self._limits = limits
        self._unauthenticated: dict[OwnedConnection, None] = {}  # the oldest first
        self._owned: dict[str, dict[OwnedConnection, None]] = {}

    def arrived(self, connection: OwnedConnection) -> None:
        if len(self._unauthenticated) >= max(1, self._limits.strangers):
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            oldest.cut()
        self._unauthenticated[connection] = None

    def own(self, connection: OwnedConnection, tenant: str) -> None:
        """Assigns the connection to the tenant. Raises TooManyRequests if the tenant has too many."""
        if connection.owner != NOBODY or connection not in self._unauthenticated:
            return
        verdict = self.shares.ask(tenant)
        if verdict is Decision.REFUSE:
            raise TooManyRequests(self._refusal_message(tenant), retry_after=1)
        if isinstance(verdict, Revoke):
            self._revoke(verdict.holder)
        del self._unauthenticated[connection]
        connection.owner = tenant
        self.shares.take(tenant)
        self._owned.setdefault(tenant, {})[connection] = None

    def left(self, connection: OwnedConnection) -> None:
        self._unauthenticated.pop(connection, None)
        self._disown(connection)

    def make_room(self, tenant: str) -> None:
        """Ends the tenant's oldest connection on which a request in flight only waits for its client."""
        waiting = self._unauthenticated if tenant == NOBODY else self._owned.get(tenant, {})
        found = next((connection for connection in waiting if connection.waits_for_client), None)
        if found is not None:
            found.cut()

    def _revoke(self, tenant: str) -> None:
        """Ends one connection of the tenant: the oldest idle one, else the newest."""
        owned = self._owned[tenant]
        chosen = next((connection for connection in owned if connection.idle), None) or next(reversed(owned))
        self._disown(chosen)
        chosen.cut()

    def _disown(self, connection: OwnedConnection) -> None:
        owned = self._owned.get(connection.owner)
        if owned is None or connection not in owned:
            return
        del owned[connection]
        if not owned:
            del self._owned[connection.owner]
        self.shares.take(connection.owner, -1)

    def _refusal_message(self, tenant: str) -> str:
        if not tenant:
            return f"too many connections: the admin may have {self.shares.total} at once, please try again later"
        return (
            f'too many connections: namespace "{tenant}" has {self.shares.holds(tenant)} of the {self.shares.total} that this '
            "server allows to all, please close some, or try again later"
        )


class Full(TooManyRequests):
    """No seat is free, and the tenant already has its share."""

    def __init__(self) -> None:
        super().__init__("too many requests are being served, please try again later", retry_after=1)


class Seats:
    """Requests in flight.

    Freed seats go to the waiting tenants in rotation. A seat cannot be taken back, so when a tenant must wait, `make_room` is called with the
    tenant whose work to cut short: it ends requests that only wait for their client.
    """

    def __init__(self, total: int, make_room: Callable[[str], None]) -> None:
        self.shares = Shares(total)
        self._make_room = make_room
        self._waiting = WaitingTenants(self.shares)

    def enter(self, tenant: str) -> bool:
        """Takes a seat if one is free; returns whether."""
        shares = self.shares
        if (shares.used if tenant else shares.own) >= shares.total:
            return False
        shares.take(tenant)
        return True

    async def wait(self, tenant: str) -> None:
        """Waits for a seat if the tenant is below its share; else raises Full."""
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
        """Whether the tenant is below its share. Waiting requests count like those that have a seat."""
        held = self.shares.held
        tenants = len(held.keys() | self._waiting.keys() | {tenant})
        return held.get(tenant, 0) + self._waiting.waiting(tenant) < max(1, self.shares.total // tenants)


def _anybody(_: str) -> bool:
    """A freed seat may go to any waiting tenant: all of them are below their share."""
    return True


class ResponseBudget:
    """Bounds the bytes of responses in memory. `unsent` counts bytes that wait for slow clients: a tenant with too many loses the
    connection that would add more. `snapshots` counts bytes that long lists, and initial events of watches, hold until they are sent."""

    def __init__(self, limits: Limits) -> None:
        self.unsent = Shares(limits.unsent)
        self.snapshots = Shares(limits.snapshots)
        self.turns = Turns()  # for large bodies, and pieces of long responses

    async def in_turn(self, tenant: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yields the same pieces, each rendered in a turn of the tenant."""
        await self.turns.take(tenant)
        async for piece in pieces:
            yield piece
            await self.turns.take(tenant)

    def may_wait(self, tenant: str, size: int) -> bool:
        """Whether `size` more bytes may wait for clients of that tenant."""
        return tenant == OPERATOR or self.unsent.fits(tenant, size)

    def check(self, tenant: str, size: int) -> None:
        """Raises TooManyRequests if the tenant's responses already hold too much."""
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


async def wait_for_turn(objects: Objects, call: Call, name: str = "", resource: AnyResource | None = None) -> None:
    """Waits for a turn by the size of the stored object. Call it before the object that a tenant's request names is decoded."""
    if call.user.tenant:
        size = objects.size(resource or call.resource, call.namespace, name or call.info.name)
        if size > SMALL:
            await call.exchange.in_turn(size)


async def list_selected(
    objects: Objects, sending: ResponseBudget, call: Call, resource: AnyResource, query: ListQuery
) -> Listed:
    """Lists objects. Long scans, parsing of long selectors, and matching happen in turns of the tenant."""
    turn, tenant = sending.turns.take, call.user.tenant
    work = objects.list_work(resource, call.namespace, query)
    if work > SHORT_LIST:
        await turn(tenant, work)
    if not (query.labels or query.fields):
        return objects.list(resource, call.namespace, query)
    if len(query.labels) + len(query.fields) > LONG_SELECTOR:
        await turn(tenant)
    portions = objects.list_in_portions(resource, call.namespace, query)
    while True:
        try:
            next(portions)
        except StopIteration as end:
            listed: Listed = end.value
            return listed
        await turn(tenant)
