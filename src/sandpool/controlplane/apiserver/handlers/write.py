"""POST, PUT and PATCH of objects, their status and their scale, and the POST that binds a pod to a node."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from sandpool.base.shares import Shares
from sandpool.base.turns import BYTES
from sandpool.controlplane.admission.admit import FieldValidation
from sandpool.controlplane.apiserver.body import JSON_TYPES, Malformed, decode, decode_object, go_type, unrecognized
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.fairness import wait_for_turn
from sandpool.controlplane.apiserver.json_text import duplicate_fields
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.negotiate import Form
from sandpool.controlplane.apiserver.query import write_options
from sandpool.controlplane.apiserver.render import one
from sandpool.controlplane.apiserver.response import JsonResponse, Response, json_response, warnings
from sandpool.controlplane.objects.document import name_in
from sandpool.controlplane.objects.inline import hold
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import WriteOptions, Written
from sandpool.controlplane.objects.strategy import strategy_of
from sandpool.kube.errors import BadRequest, Cause, Invalid, UnsupportedMedia
from sandpool.model import binding
from sandpool.model.patches import Patch, PatchType
from sandpool.model.resource import Resource

_ENCODE: Final = msgspec.json.Encoder().encode
_TYPES: Final = {kind.value: kind for kind in PatchType}
PARKED: Final = 4
"""At most one in this many requests in flight may be delayed before it is processed; the rest is for requests that can be served now."""
APPLY: Final = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})

_PLACED: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class Writes:
    """Handlers of create, update, patch and bind."""

    def __init__(self, objects: Objects, limits: Limits, now: Callable[[], datetime]) -> None:
        self._objects = objects
        self._limits = limits
        self._now = now
        self._parked = Shares(limits.requests // PARKED)

    async def create(self, call: Call) -> Response:
        form, options = call.form, write_options(call.params, "CreateOptions", call.user.tenant)
        resource = call.resource
        body, doubled = await self._object(call, resource, options)
        if options.tenant and (name := name_in(body)):
            await wait_for_turn(self._objects, call, name)  # the name may be taken by an object of any size
        namespace = call.namespace
        hook = self._objects.hooks.by_name.get((resource.group, resource.plural))
        if hook is not None:
            await hold(hook, resource, namespace, body, options.tenant, self._parked)
            # After the create, nothing is awaited before the response is sent, so it leaves before the commit is published.
            options = msgspec.structs.replace(options, early=True)
        written = await self._objects.create(resource, namespace, body, options)
        return self._response(call, form, written, 201, doubled)

    async def update(self, call: Call) -> Response:
        form, options = call.form, write_options(call.params, "UpdateOptions", call.user.tenant)
        resource, info = call.resource, call.info
        body, doubled = await self._object(call, resource, options)
        await wait_for_turn(self._objects, call)
        written = await self._objects.update(resource, call.namespace, info.name, body, options, info.subresource)
        return self._response(call, form, written, 201 if written.created else 200, doubled)

    async def patch(self, call: Call) -> Response:
        form, kind = call.form, patch_type(call.media, call.resource)
        options = write_options(call.params, "PatchOptions", call.user.tenant)
        body = await call.exchange.read(self._limits.body)
        info = call.info
        await self._wait_to_patch(call, body)
        patch = decode_patch(kind, body, self._limits.depth)
        written = await self._objects.patch(call.resource, call.namespace, info.name, patch, options, info.subresource)
        return self._response(call, form, written, 201 if written.created else 200, ())

    async def _wait_to_patch(self, call: Call, body: bytes) -> None:
        """Waits for a turn. The cost of a short patch depends on its target; it is unknown if the patch copies repeatedly."""
        if call.user.tenant and (b'"copy"' in body or b'"move"' in body or b"\\" in body):
            await call.exchange.in_turn(BYTES)
        else:
            await wait_for_turn(self._objects, call)

    async def bind(self, call: Call) -> Response:
        options = write_options(call.params, "CreateOptions", call.user.tenant)
        raw = await call.exchange.read(self._limits.body)
        body = decode_object(raw, call.media, binding.KIND, self._limits.depth)
        await self._objects.bind(call.namespace, call.info.name, body, options)
        return json_response(_PLACED, 201)

    async def _object(
        self, call: Call, resource: Resource[Any], options: WriteOptions
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The body, and warnings about duplicate fields."""
        raw, media = await call.exchange.read(self._limits.body), call.media
        if call.info.subresource == "scale":
            return decode_object(raw, media, "Scale", self._limits.depth), ()
        body = decode_object(raw, media, resource.kind, self._limits.depth)
        check_kind(resource, call.route.custom, body, raw)
        if options.validation is FieldValidation.IGNORE or media not in JSON_TYPES:
            return body, ()
        if _ENCODE(body) == raw:  # the usual encoding: there are no duplicate fields
            return body, ()
        twice = tuple(f'duplicate field "{path}"' for path in duplicate_fields(raw))
        if twice and options.validation is FieldValidation.STRICT:
            raise BadRequest(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"strict decoding error: {', '.join(twice)}"
            )
        return body, twice

    def _response(self, call: Call, form: Form, written: Written, status: int, more: tuple[str, ...]) -> Response:
        value = written.record.value
        if form is not Form.OBJECT or "pretty" in call.params:
            value = one(value, form, call.resource, call.params, self._now)
        said = (*more, *written.warnings)
        return JsonResponse(value, status, warnings(said)) if said else JsonResponse(value, status)


def check_kind(resource: Resource[Any], custom: bool, body: dict[str, Any], raw: bytes) -> None:
    """Checks that kind and apiVersion of the body are those of the path. Core kinds may leave them out, custom ones may not."""
    kind, version = body.get("kind"), body.get("apiVersion")
    if kind == resource.kind and version == resource.api_version:
        return
    if not custom:
        if (kind or resource.kind) == resource.kind and (version or resource.api_version) == resource.api_version:
            return
        raise BadRequest(
            f'{kind or resource.kind} in version "{version or resource.api_version}" cannot be handled as a {resource.kind}: '
            f'the path serves {resource.kind} in version "{resource.api_version}"'
        )
    if not kind or not isinstance(kind, str):
        text = raw.decode("utf-8", "replace")[:1024]
        raise unrecognized(resource.kind, f"Object 'Kind' is missing in '{text}'", raw)
    if version != resource.api_version:
        raise BadRequest(
            f"the API version in the data ({version or ''}) does not match the expected API version ({resource.api_version})"
        )
    metadata = body.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    cause = Cause("FieldValueInvalid", f'Invalid value: "{kind}": must be {resource.kind}', "kind")
    raise Invalid(
        f'{kind}.{resource.group} "{name}" is invalid: {cause.field}: {cause.message}',
        causes=(cause,),
        details={"name": name, "group": resource.group, "kind": kind},
    )


def patch_type(media: str, resource: Resource[Any]) -> PatchType:
    kind = _TYPES.get(media)
    supported = strategy_of(resource).patches
    if kind is not None and kind in supported:
        return kind
    if media in APPLY:
        raise UnsupportedMedia(
            "server-side apply is not supported by this server: use kubectl apply without --server-side, "
            "or send a merge patch (application/merge-patch+json)"
        )
    raise UnsupportedMedia(
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(supported)
    )


def decode_patch(kind: PatchType, body: bytes, depth: int) -> Patch:
    prefix = "" if kind is PatchType.STRATEGIC else "error decoding patch: "
    try:
        value = decode(body, depth)
    except Malformed as error:
        raise BadRequest(f"{prefix}{error}") from None
    if kind is PatchType.JSON:
        value = [] if value is None else value
        _expect(list, value, prefix, "[]handlers.jsonPatchOp")
        for operation in value:
            _expect(dict, operation, prefix, "handlers.jsonPatchOp")
    elif value is None:
        raise BadRequest("Invalid JSON Patch")
    else:
        _expect(dict, value, prefix, "map[string]interface {}")
    return Patch(kind, value)


def _expect(wanted: type, value: Any, prefix: str, go_name: str) -> None:
    if not isinstance(value, wanted):
        raise BadRequest(f"{prefix}json: cannot unmarshal {go_type(value)} into Go value of type {go_name}")
