"""The HTTP request of each call: path, query and body, as values. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from sandpool.kube.api import Call, DeleteOptions, Verb
from sandpool.kube.errors import BadRequest
from sandpool.model.codec import encode
from sandpool.model.resource import Resource

JSON = "application/json"
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._:-]*", re.ASCII).fullmatch
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `target` is the path and the query, encoded."""

    method: str
    target: str
    body: bytes | None = None
    content_type: str = ""

    @property
    def writes(self) -> bool:
        return self.method != "GET"


def request_of(call: Call) -> HttpRequest:
    """The HTTP request of a call. Raises BadRequest if a name cannot be part of a path."""
    match call.verb:
        case Verb.GET:
            return HttpRequest("GET", _one(call))
        case Verb.LIST | Verb.WATCH:
            return HttpRequest("GET", _all(call.resource, call.namespace) + _list_query(call))
        case Verb.CREATE:
            return _create(call)
        case Verb.DELETE:
            return HttpRequest("DELETE", _one(call), _delete_body(call.delete_options), JSON)
        case Verb.PATCH | Verb.PATCH_STATUS:
            assert call.patch is not None
            target = _one(call, "status" if call.verb is Verb.PATCH_STATUS else "")
            return HttpRequest("PATCH", target, _ENCODER.encode(call.patch.body), call.patch.type.value)


def _list_query(call: Call) -> str:
    options = call.list_options
    if call.verb is Verb.LIST:
        # No resourceVersion: 0 would be answered from a cache of any age.
        limit = str(options.limit) if options.limit else ""
        paging = {"limit": limit, "continue": options.after}
        return _query(labelSelector=options.labels, fieldSelector=options.fields, **paging)
    return _query(
        watch="true",
        allowWatchBookmarks="true",
        labelSelector=options.labels,
        fieldSelector=options.fields,
        resourceVersion=str(options.since) if options.since else "",
        sendInitialEvents="true" if options.initial else "",
        resourceVersionMatch="NotOlderThan" if options.initial else "",
        timeoutSeconds=str(max(1, round(options.timeout))) if options.timeout is not None else "",
    )


def _create(call: Call) -> HttpRequest:
    """A body that is a mapping need not have apiVersion and kind. The namespace may be given in the body."""
    resource, body = call.resource, call.body
    assert body is not None
    if isinstance(body, Mapping):
        data = _ENCODER.encode({"apiVersion": resource.api_version, "kind": resource.kind, **body})
        inside = (body.get("metadata") or {}).get("namespace") or ""
    else:
        data, inside = encode(body), body.metadata.namespace
    space = call.namespace or inside
    if resource.namespaced and not space:
        raise BadRequest(f"{resource.group_resource}: the namespace is empty; say where the object is to be")
    return HttpRequest("POST", _all(resource, space), data, JSON)


def _delete_body(options: DeleteOptions) -> bytes:
    body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if options.preconditions is not None:
        tests = {"uid": options.preconditions.uid, "resourceVersion": options.preconditions.revision}
        body["preconditions"] = {field: str(value) for field, value in tests.items() if value is not None}
    if options.propagation is not None:
        body["propagationPolicy"] = options.propagation.value
    if options.grace is not None:
        body["gracePeriodSeconds"] = options.grace
    return _ENCODER.encode(body)


def _query(**fields: str) -> str:
    given = {field: value for field, value in fields.items() if value}
    return f"?{urlencode(given, quote_via=quote)}" if given else ""


def _all(resource: Resource[Any], namespace: str) -> str:
    return resource.path(_segment("namespace", namespace) if namespace else "")


def _one(call: Call, subresource: str = "") -> str:
    resource, namespace, name = call.resource, call.namespace, call.name
    if not name:  # without it the path would mean the whole collection
        raise BadRequest(f"{resource.group_resource}: the name is empty; say which object is meant")
    if resource.namespaced and not namespace:
        raise BadRequest(f"{resource.group_resource} {name!r}: the namespace is empty; say where the object is")
    space = _segment("namespace", namespace) if namespace else ""
    return resource.path(space, _segment("name", name), subresource)


def _segment(what: str, value: str) -> str:
    """A name as one segment of a path, so that no name reaches another path."""
    if _PLAIN(value):
        return value
    if value in (".", "..") or "/" in value or "%" in value:
        raise BadRequest(f"the {what} {value!r} cannot be part of a path: it may not be . or .. nor hold / or %")
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise BadRequest(f"the {what} {value!r} is not text") from None
