"""DELETE of one object and of a collection, and eviction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from sandpool.controlplane.apiserver.auth import ADMIN
from sandpool.controlplane.apiserver.body import Malformed, decode_media
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.fairness import ResponseBudget, list_selected, wait_for_turn
from sandpool.controlplane.apiserver.handlers.read import listing
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.negotiate import Form
from sandpool.controlplane.apiserver.query import delete_options, list_query
from sandpool.controlplane.apiserver.render import one
from sandpool.controlplane.apiserver.response import JsonResponse, Response, json_response
from sandpool.controlplane.objects.collection import delete_each
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import Deleted
from sandpool.controlplane.objects.strategy import strategy_of
from sandpool.kube.errors import BadRequest
from sandpool.model.resource import Resource


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    uid: str = ""


class _Named(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()


_NAMED = msgspec.json.Decoder(_Named)


class Deletes:
    """Handlers of delete, deletecollection and eviction."""

    def __init__(self, objects: Objects, limits: Limits, sending: ResponseBudget, now: Callable[[], datetime]) -> None:
        self._objects = objects
        self._limits = limits
        self._sending = sending
        self._now = now

    async def delete(self, call: Call) -> Response:
        form = call.form
        options = delete_options(call.params, await self._body(call))
        resource = call.resource
        if call.user is not ADMIN:
            await wait_for_turn(self._objects, call)
        deleted = await self._objects.delete(resource, call.namespace, call.info.name, options)
        if form is not Form.OBJECT and not deleted.finished:
            return JsonResponse(one(deleted.record.value, form, resource, call.params, self._now))
        return JsonResponse(deletion_body(resource, deleted))

    async def delete_collection(self, call: Call) -> Response:
        form, query = call.form, list_query(call.params)
        options = delete_options(call.params, await self._body(call))
        listed = await list_selected(self._objects, self._sending, call, call.resource, query)
        turn = partial(self._sending.turns.take, call.user.tenant)
        await delete_each(self._objects, call.resource, listed.records, options, turn)
        return listing(call, listed, form, self._now(), self._sending, refuse=False)

    async def evict(self, call: Call) -> Response:
        """Deletes the pod: there are no disruption budgets here."""
        body = await self._body(call) or {}
        metadata = body.get("metadata")
        named = metadata.get("name") if isinstance(metadata, dict) else None
        if named and named != call.info.name:
            raise BadRequest("name in URL does not match name in Eviction object")
        wished = body.get("deleteOptions")
        if wished is not None and not isinstance(wished, dict):
            raise BadRequest("deleteOptions of an Eviction must be an object")
        options = delete_options(call.params, wished)
        await wait_for_turn(self._objects, call)
        await self._objects.delete(call.resource, call.namespace, call.info.name, options)
        return json_response(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
        )

    async def _body(self, call: Call) -> dict[str, Any] | None:
        raw = await call.exchange.read(self._limits.body)
        if not raw:
            return None
        try:
            body = decode_media(raw, call.media, self._limits.depth)
        except Malformed as error:
            raise BadRequest(f"couldn't get version/kind; json parse error: {error}") from None
        if body is not None and not isinstance(body, dict):
            raise BadRequest("DeleteOptions must be an object")
        return body


def deletion_body(resource: Resource[Any], deleted: Deleted) -> bytes:
    """The response body: the object if it still exists (for some kinds also its last state), else a Status."""
    if not deleted.finished or strategy_of(resource).returns_object:
        return deleted.record.value
    metadata = _NAMED.decode(deleted.record.value).metadata
    details = {"name": metadata.name, "group": resource.group, "kind": resource.plural, "uid": metadata.uid}
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {key: value for key, value in details.items() if value},
        }
    )
