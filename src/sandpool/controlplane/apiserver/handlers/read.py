"""GET of one object and of many."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sandpool.controlplane.apiserver.answer import PIECE, WORTH_GZIP, Answer, Reply, Streamed, accepts_gzip
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.exchange import Exchange
from sandpool.controlplane.apiserver.handlers.weight import selected, weigh
from sandpool.controlplane.apiserver.negotiate import Form
from sandpool.controlplane.apiserver.query import list_query, revision
from sandpool.controlplane.apiserver.render import list_parts, one, pretty
from sandpool.controlplane.apiserver.sending import EACH, Sending
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import Listed
from sandpool.controlplane.objects.refusals import too_large


class Reads:
    def __init__(self, objects: Objects, sending: Sending, now: Callable[[], datetime]) -> None:
        self._objects = objects
        self._sending = sending
        self._now = now

    async def get(self, call: Call) -> Reply:
        form = call.form
        if call.params:
            at = revision(call.params)  # reads are always of the newest state, so only the future can be refused
            if at is not None and at > self._objects.revision:
                raise too_large(at, self._objects.revision)
        record = self._objects.get(call.resource, call.namespace, call.info.name, call.info.subresource)
        if form is Form.OBJECT and not call.params:
            return Answer(record.value)
        await weigh(self._objects, call)
        return Answer(one(record.value, form, call.resource, call.params, self._now))

    async def list(self, call: Call) -> Reply:
        form, query = call.form, list_query(call.params)
        listed = await selected(self._objects, self._sending, call, call.resource, query)
        return listing(call, listed, form, self._now(), self._sending, refuse=True)


def listing(call: Call, listed: Listed, form: Form, now: datetime, sending: Sending, *, refuse: bool) -> Reply:
    """A list, whole if it is short, else piece by piece. TooManyRequests, if it may be refused and the tenant has too many under way."""
    parts = list_parts(listed, form, call.resource, call.params, now)
    size = parts.size
    if size <= PIECE and len(listed.records) <= 1000:
        return Answer(pretty(parts.whole(), call.params))
    gzip = size > WORTH_GZIP and accepts_gzip(call.headers.get(b"accept-encoding"))
    held = size + EACH * len(listed.records)
    tenant = call.user.tenant
    if refuse:
        sending.check(tenant, held)
    return _Held(Streamed(sending.in_turn(tenant, parts.pieces()), gzip), sending, tenant, held)


class _Held:
    """A long answer that counts until it is sent."""

    def __init__(self, reply: Streamed, sending: Sending, tenant: str, size: int) -> None:
        self._reply = reply
        self._sending = sending
        self._tenant = tenant
        self._size = size
        self.status = reply.status

    async def deliver(self, exchange: Exchange) -> None:
        with self._sending.holding(self._tenant, self._size):
            await self._reply.deliver(exchange)
