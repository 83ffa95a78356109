"""OpenAPI: one v3 document per group and version, with exactly the schemas that it refers to, and the endpoints that serve them.

/openapi/v3 lists the documents with a hash of each, by which clients can cache them forever. kubectl before 1.29 does not work without
/openapi/v2: it gets a valid document without content. Those versions request protobuf, and skip client-side validation of kinds that
the document does not mention; the server validates anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import cached_property
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.discovery import Page
from sandpool.controlplane.apiserver.negotiate import not_acceptable, wanted
from sandpool.controlplane.apiserver.openapi.operations import (
    ALWAYS,
    META,
    NAME,
    NAMESPACE,
    WRITE,
    Operations,
    content,
    ref,
    responses,
)
from sandpool.controlplane.apiserver.request import Params
from sandpool.controlplane.apiserver.response import RawResponse, Response, page_not_found
from sandpool.controlplane.apiserver.routes import OF_PODS, Review, Route, Routes
from sandpool.model.resource import Resource
from sandpool.model.schemas import QUANTITY, definition_name, definitions
from sandpool.model.usage import NODE_METRICS, POD_METRICS
from sandpool.version import __version__

Json = dict[str, Any]

SCALE = "io.k8s.api.autoscaling.v1.Scale"
TOKEN_REQUEST = "io.k8s.api.authentication.v1.TokenRequest"  # noqa: S105 - a name
_PREFIX = "#/components/schemas/"
_RULES_REVIEW = "io.k8s.api.authorization.v1.SelfSubjectRulesReview"
_OWN_SCHEMAS: Json = {
    _RULES_REVIEW: {
        "description": "SelfSubjectRulesReview lists what the asking user may do in a namespace.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": ref("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
            "spec": {"type": "object", "properties": {"namespace": {"type": "string"}}},
            "status": {"type": "object"},
        },
        "x-kubernetes-group-version-kind": [
            {"group": "authorization.k8s.io", "version": "v1", "kind": "SelfSubjectRulesReview"}
        ],
    }
}
_USAGE: Json = {
    "type": "object",
    "description": "cpu in cores, memory in bytes.",
    "additionalProperties": ref(QUANTITY),
}
_CONTAINER: Json = {
    "type": "object",
    "required": ["name", "usage"],
    "properties": {"name": {"type": "string"}, "usage": _USAGE},
}


def group_document(routes: Routes, group: str, version: str) -> Json:
    paths: Json = {_root(group, version) + "/": _resources_path(group, version)}
    for route in routes.kinds.get((group, version), {}).values():
        paths |= _kind_paths(route)
    for review in routes.reviews.get((group, version), {}).values():
        paths[f"{_root(group, version)}/{review.plural}"] = {"post": _review(review)}
    return _document(f"{group or 'core'}/{version}", paths)


def _root(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _document(title: str, paths: Json) -> Json:
    return {
        "openapi": "3.0.0",
        "info": {"title": f"Sandpool: {title}", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": closure(paths),
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"BearerToken": []}],
    }


def _resources_path(group: str, version: str) -> Json:
    found = ref("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList")
    return {
        "get": {
            "tags": [f"{group or 'core'}_{version}"],
            "operationId": f"get{''.join(p.capitalize() for p in (group or 'core').replace('-', '.').split('.'))}{version.capitalize()}Resources",
            "description": "get available resources",
            "responses": responses({200: found}, ALWAYS),
        }
    }


def _kind_paths(route: Route) -> Json:
    if route.measured:
        return _measured_paths(route)
    resource, operations = route.resource, Operations(route.resource)
    root = _root(resource.group, resource.version)
    paths: Json = {}
    base = f"{root}/{resource.plural}"
    if resource.namespaced:
        paths[base] = {"get": operations.list_operation("list", "ForAllNamespaces")}
        base = f"{root}/namespaces/{{namespace}}/{resource.plural}"
    scoped = [NAMESPACE] if resource.namespaced else []
    paths[base] = {**operations.collection(), "parameters": scoped} if scoped else operations.collection()
    named = [NAME, *scoped]
    paths[f"{base}/{{name}}"] = {**operations.item(), "parameters": named}
    for name in route.subresources:
        paths[f"{base}/{{name}}/{name}"] = {**_subresource(operations, name), "parameters": named}
    return paths


def _measured_paths(route: Route) -> Json:
    resource, operations = route.resource, Operations(route.resource)
    base = f"{_root(resource.group, resource.version)}/{resource.plural}"
    paths: Json = {}
    scoped: list[Json] = []
    if resource.namespaced:
        paths[base] = {"get": operations.list_operation("list", "ForAllNamespaces")}
        base = f"{_root(resource.group, resource.version)}/namespaces/{{namespace}}/{resource.plural}"
        scoped = [NAMESPACE]
    paths[base] = {"get": operations.list_operation("list"), "parameters": scoped}
    reading = operations.part("", operations.object, verbs=("get",))
    paths[f"{base}/{{name}}"] = {**reading, "parameters": [NAME, *scoped]}
    return paths


def _subresource(operations: Operations, name: str) -> Json:
    if name == "status":
        return operations.part("Status", operations.object)
    if name == "scale":
        gvk = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        return operations.part("Scale", ref(SCALE), gvk)
    if name == "finalize":
        return operations.part("Finalize", operations.object, verbs=("update",))
    if name == "token":
        gvk = {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}
        return {"post": operations.action("Token", "post", ref(TOKEN_REQUEST), {201: ref(TOKEN_REQUEST)}, gvk)}
    verbs = next(sub.verbs for sub in OF_PODS if sub.name == name)
    methods = {"create": "post", "get": "get"}
    return {methods[verb]: operations.action(name.capitalize(), methods[verb], None, {}) for verb in verbs}


def _review(review: Review) -> Json:
    schema = ref(f"io.k8s.api.{review.group.split('.')[0]}.{review.version}.{review.kind}")
    return {
        "tags": [f"{review.group}_{review.version}"],
        "operationId": f"create{review.kind}",
        "description": f"create a {review.kind}",
        "parameters": list(WRITE[1:]),
        "requestBody": {"content": content(schema, "application/json", "application/yaml"), "required": True},
        "responses": responses({201: schema}, (*ALWAYS, 413, 415, 422)),
        "x-kubernetes-action": "post",
        "x-kubernetes-group-version-kind": {"group": review.group, "version": review.version, "kind": review.kind},
    }


def closure(paths: Json) -> Json:
    """Every schema that the paths refer to, directly or through others."""
    known = {**definitions(), **_OWN_SCHEMAS, **usage_schemas()}
    found: Json = {}
    waiting = list(_references(paths))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = known[name]
            waiting.extend(_references(known[name]))
    return dict(sorted(found.items()))


def _references(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            target = item.get("$ref")
            if isinstance(target, str):
                yield target.removeprefix(_PREFIX)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def usage_schemas() -> Json:
    pods = {
        "containers": {
            "type": "array",
            "items": _CONTAINER,
            "description": "A pod is measured as a whole: see the first.",
        }
    }
    return {**_schemas(POD_METRICS, pods), **_schemas(NODE_METRICS, {"usage": _USAGE})}


def _schemas(resource: Resource[Any], more: Json) -> Json:
    name = definition_name(resource)
    versions: Json = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    one: Json = {
        "description": f"{resource.kind} is what one of the {resource.plural} uses.",
        "type": "object",
        "required": ["timestamp", "window", *more],
        "properties": {
            **versions,
            "metadata": ref(f"{META}.ObjectMeta"),
            "timestamp": ref(f"{META}.Time"),
            "window": {"type": "string", "description": "The time before the timestamp over which cpu was measured."},
            **more,
        },
        "x-kubernetes-group-version-kind": [_kind(resource, "")],
    }
    many: Json = {
        "description": f"{resource.kind}List is a list of {resource.kind}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            **versions,
            "metadata": ref(f"{META}.ListMeta"),
            "items": {"type": "array", "items": ref(name)},
        },
        "x-kubernetes-group-version-kind": [_kind(resource, "List")],
    }
    return {name: one, f"{name}List": many}


def _kind(resource: Resource[Any], suffix: str) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind + suffix}


V3: Final = "/openapi/v3"
A_YEAR: Final = timedelta(days=365)
V2: Final = "/openapi/v2"
_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_ASKED: Final = frozenset({_PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"})
_TITLE: Final = "Sandpool"


class OpenApi:
    """Serves the OpenAPI documents. They are built on first use: most servers are never asked."""

    def __init__(self, routes: Routes, now: Callable[[], datetime]) -> None:
        self._routes = routes
        self._now = now

    @cached_property
    def _pages(self) -> dict[str, Page]:
        pages = {}
        for group, version in self._routes.groups:
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            pages[name] = Page(group_document(self._routes, group, version))
        return pages

    @cached_property
    def _index(self) -> Page:
        paths = {name: {"serverRelativeURL": self._address(name, page)} for name, page in self._pages.items()}
        return Page({"paths": paths})

    def _address(self, name: str, page: Page) -> str:
        return f"{V3}/{name}?hash={_hash(page)}"

    def answer(self, path: str, params: Params, headers: dict[bytes, bytes]) -> Response:
        accept = headers.get(b"accept")
        if accept and not any(entry.json for entry in wanted(accept)):
            raise not_acceptable()
        name = path.removeprefix(V3).strip("/")
        if not name:
            return self._index.answer(headers)
        page = self._pages.get(name)
        if page is None:
            return page_not_found()
        asked = params.get("hash")
        if asked is None:
            return page.answer(headers)
        if asked != _hash(page):
            return RawResponse(b"", 301, [(b"location", self._address(name, page).encode()), (b"etag", page.etag)])
        expires = format_datetime(self._now() + A_YEAR, usegmt=True)
        return page.answer(headers, [(b"expires", expires.encode())], cache=b"public, immutable")


def _hash(page: Page) -> str:
    return page.etag.strip(b'"').decode()


def _text(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field, short enough for one byte of length."""
    return bytes((number << 3 | 2, len(content))) + content


def _legacy_protobuf() -> bytes:
    info = _text(1, _TITLE.encode()) + _text(2, __version__.encode())
    return _text(1, b"2.0") + _text(2, info) + _text(8, b"")  # swagger, info, paths


class LegacyOpenApi:
    """Serves /openapi/v2: a valid document without content, as JSON or protobuf."""

    def __init__(self) -> None:
        content = {"swagger": "2.0", "info": {"title": _TITLE, "version": __version__}, "paths": {}, "definitions": {}}
        self._json = Page(msgspec.json.encode(content))
        self._protobuf = Page(_legacy_protobuf(), _PROTOBUF)

    def page(self, accept: bytes | None) -> Page:
        for entry in wanted(accept or b"*/*"):
            if entry.type in _ASKED:
                return self._protobuf
            if entry.json:
                return self._json
        raise not_acceptable()
