"""Requests as values: the path, the query and the body of each verb. Pure, so each is a one-line test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from sandpool.kube.api import Preconditions, Propagation
from sandpool.kube.errors import BadRequest
from sandpool.model.codec import encode
from sandpool.model.metadata import Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

JSON = "application/json"
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._:-]*", re.ASCII).fullmatch
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `target` is the path and the query, encoded."""

    method: str
    target: str
    body: bytes | None = None
    content_type: str = ""

    @property
    def writes(self) -> bool:
        return self.method != "GET"


def get_call(resource: Resource[Any], name: str, namespace: str) -> Call:
    return Call("GET", _one(resource, namespace, name))


def list_call(resource: Resource[Any], namespace: str, labels: str, fields: str, limit: int, after: str) -> Call:
    # No resourceVersion: 0 would be answered from a cache of any age.
    query = _query(labelSelector=labels, fieldSelector=fields, limit=str(limit) if limit else "", **{"continue": after})
    return Call("GET", _all(resource, namespace) + query)


def watch_call(
    resource: Resource[Any],
    namespace: str,
    labels: str,
    fields: str,
    since: Revision | None,
    initial: bool,
    timeout: float | None,
) -> Call:
    query = _query(
        watch="true",
        allowWatchBookmarks="true",
        labelSelector=labels,
        fieldSelector=fields,
        resourceVersion=str(since) if since else "",
        sendInitialEvents="true" if initial else "",
        resourceVersionMatch="NotOlderThan" if initial else "",
        timeoutSeconds=str(max(1, round(timeout))) if timeout is not None else "",
    )
    return Call("GET", _all(resource, namespace) + query)


def create_call(resource: Resource[Any], namespace: str, body: Object | Mapping[str, Any]) -> Call:
    """A mapping need not say its apiVersion and kind; an object that says its namespace need not be told."""
    if isinstance(body, Mapping):
        data = _ENCODER.encode({"apiVersion": resource.api_version, "kind": resource.kind, **body})
        inside = (body.get("metadata") or {}).get("namespace") or ""
    else:
        data, inside = encode(body), body.metadata.namespace
    space = namespace or inside
    if resource.namespaced and not space:
        raise BadRequest(f"{resource.group_resource}: the namespace is empty; say where the object is to be")
    return Call("POST", _all(resource, space), data, JSON)


def patch_call(resource: Resource[Any], name: str, namespace: str, patch: Patch, subresource: str = "") -> Call:
    target = _one(resource, namespace, name, subresource)
    return Call("PATCH", target, _ENCODER.encode(patch.body), patch.type.value)


def delete_call(
    resource: Resource[Any],
    name: str,
    namespace: str,
    preconditions: Preconditions | None,
    propagation: Propagation | None,
    grace: int | None,
) -> Call:
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if preconditions is not None:
        tests = {"uid": preconditions.uid, "resourceVersion": preconditions.revision}
        options["preconditions"] = {field: str(value) for field, value in tests.items() if value is not None}
    if propagation is not None:
        options["propagationPolicy"] = propagation.value
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return Call("DELETE", _one(resource, namespace, name), _ENCODER.encode(options), JSON)


def _query(**fields: str) -> str:
    given = {field: value for field, value in fields.items() if value}
    return f"?{urlencode(given, quote_via=quote)}" if given else ""


def _all(resource: Resource[Any], namespace: str) -> str:
    return resource.path(_segment("namespace", namespace) if namespace else "")


def _one(resource: Resource[Any], namespace: str, name: str, subresource: str = "") -> str:
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
