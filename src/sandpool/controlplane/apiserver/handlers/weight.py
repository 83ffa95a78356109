"""Work that a short request asks for is as large as the objects that it is about: it waits for its tenant's turn by their size."""

from __future__ import annotations

from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.exchange import SMALL
from sandpool.controlplane.apiserver.sending import LONG, Sending
from sandpool.controlplane.objects.objects import AnyResource, Objects
from sandpool.controlplane.objects.options import Listed, ListQuery


async def weigh(objects: Objects, call: Call, name: str = "", resource: AnyResource | None = None) -> None:
    """Before the stored object is decoded that a tenant's request names, in its path or otherwise."""
    if call.user.tenant:
        size = objects.size(resource or call.resource, call.namespace, name or call.info.name)
        if size > SMALL:
            await call.exchange.in_turn(size)


async def selected(objects: Objects, sending: Sending, call: Call, resource: AnyResource, query: ListQuery) -> Listed:
    """Understanding a selector takes long if it is long, and comparing it with all objects takes long if they are many."""
    if not (query.labels or query.fields):
        return objects.list(resource, call.namespace, query)
    turn, tenant = sending.turns.take, call.user.tenant
    if len(query.labels) + len(query.fields) > LONG:
        await turn(tenant)
    portions = objects.listed_by_and_by(resource, call.namespace, query)
    while True:
        try:
            next(portions)
        except StopIteration as end:
            listed: Listed = end.value
            return listed
        await turn(tenant)
