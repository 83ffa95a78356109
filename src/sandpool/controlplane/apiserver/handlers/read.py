"""GET and LIST of objects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.exchange import Exchange
from sandpool.controlplane.apiserver.fairness import SNAPSHOT_OBJECT, ResponseBudget, list_selected, wait_for_turn
from sandpool.controlplane.apiserver.negotiate import Form
from sandpool.controlplane.apiserver.query import list_query, revision
from sandpool.controlplane.apiserver.render import list_parts, one, pretty
from sandpool.controlplane.apiserver.response import (
    PIECE,
    WORTH_GZIP,
    JsonResponse,
    Response,
    StreamedResponse,
    accepts_gzip,
)
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import Listed
from sandpool.controlplane.objects.refusals import too_large


class Reads:
    """Handlers of get and list."""

    def __init__(self, objects: Objects, sending: ResponseBudget, now: Callable[[], datetime]) -> None:
        self._objects = objects
        self._sending = sending
        self._now = now

    async def get(self, call: Call) -> Response:
        form = call.form
        if call.params:
            at = revision(call.params)  # reads return the newest state, so only a future revision is refused
            if at is not None and at > self._objects.revision:
                raise too_large(at, self._objects.revision)
        record = self._objects.get(call.resource, call.namespace, call.info.name, call.info.subresource)
        if form is Form.OBJECT and not call.params:
            return JsonResponse(record.value)
        await wait_for_turn(self._objects, call)
        return JsonResponse(one(record.value, form, call.resource, call.params, self._now))

    async def list(self, call: Call) -> Response:
        form, query = call.form, list_query(call.params)
        listed = await list_selected(self._objects, self._sending, call, call.resource, query)
        return listing(call, listed, form, self._now(), self._sending, refuse=True)


def listing(
    call: Call, listed: Listed, form: Form, now: datetime, sending: ResponseBudget, *, refuse: bool
) -> Response:
    """A list: whole if it is short, else piece by piece. With `refuse`, raises TooManyRequests if the tenant's responses hold too much."""
    parts = list_parts(listed, form, call.resource, call.params, now)
    size = parts.size
    if size <= PIECE and len(listed.records) <= 1000:
        return JsonResponse(pretty(parts.whole(), call.params))
    gzip = size > WORTH_GZIP and accepts_gzip(call.headers.get(b"accept-encoding"))
    held = size + SNAPSHOT_OBJECT * len(listed.records)
    tenant = call.user.tenant
    if refuse:
        sending.check(tenant, held)
    return _Held(StreamedResponse(sending.in_turn(tenant, parts.pieces()), gzip), sending, tenant, held)


class _Held:
    """A long response that is charged to its tenant until it is sent."""

    def __init__(self, response: StreamedResponse, sending: ResponseBudget, tenant: str, size: int) -> None:
        self._response = response
        self._sending = sending
        self._tenant = tenant
        self._size = size
        self.status = response.status

    async def deliver(self, exchange: Exchange) -> None:
        with self._sending.holding(self._tenant, self._size):
            await self._response.deliver(exchange)
