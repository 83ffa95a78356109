"""The operations of one OpenAPI path: parameters, request bodies and the response codes that the server really returns.

Parameters are inline in each operation, because kubectl looks for them there.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from sandpool.controlplane.objects.strategy import strategy_of
from sandpool.model.patches import PatchType
from sandpool.model.resource import Resource
from sandpool.model.schemas import definition_name

Json = dict[str, Any]


def _query(name: str, description: str, kind: str = "string", **more: Any) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind, **more}}


def _path(name: str, description: str) -> Json:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}


NAMESPACE = _path("namespace", "The namespace of the object.")
NAME = _path("name", "The name of the object.")

PRETTY = _query("pretty", "Whether the answer is indented.", "boolean")
DRY_RUN = _query("dryRun", "All: decide everything and store nothing.", enum=["All"])
FIELD_MANAGER = _query("fieldManager", "Who makes this change.", maxLength=128)
FIELD_VALIDATION = _query(
    "fieldValidation", "What happens to unknown and duplicate fields.", enum=["Ignore", "Strict", "Warn"]
)
_GRACE = _query("gracePeriodSeconds", "How long the object may take to go.", "integer", format="int64")
_ORPHAN = _query("orphanDependents", "Deprecated: use propagationPolicy.", "boolean")
_PROPAGATION = _query(
    "propagationPolicy", "What becomes of the dependents.", enum=["Background", "Foreground", "Orphan"]
)
_LABELS = _query("labelSelector", "Only objects with such labels.")
_FIELDS = _query("fieldSelector", "Only objects with such fields.")

READ = (PRETTY,)
LIST = (
    PRETTY,
    _LABELS,
    _FIELDS,
    _query("limit", "The most objects in one answer.", "integer", format="int64"),
    _query("continue", "The token of the next page, from the answer before."),
)
"""Supported but not listed: resourceVersion (a future one gets 504), and parameters of watches, whose responses are streams that
the same operation cannot describe."""
WRITE = (PRETTY, DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION)
DELETE = (PRETTY, DRY_RUN, _GRACE, _ORPHAN, _PROPAGATION)
DELETE_COLLECTION = (PRETTY, DRY_RUN, _LABELS, _FIELDS, LIST[3], LIST[4], _GRACE, _ORPHAN, _PROPAGATION)


META = "io.k8s.apimachinery.pkg.apis.meta.v1"
STATUS = f"{META}.Status"
DELETE_OPTIONS = f"{META}.DeleteOptions"

ALWAYS = (400, 401, 403, 404, 406, 429, 500, 503)
_READ = (*ALWAYS, 504)
_LIST = (*ALWAYS, 410, 422, 504)
_WRITE = (*ALWAYS, 409, 413, 415, 422, 507)


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def content(schema: Json, *media: str) -> Json:
    return {name: {"schema": schema} for name in media or ("application/json",)}


def responses(good: dict[int, Json], bad: Iterable[int]) -> Json:
    found = {
        str(code): {"description": HTTPStatus(code).phrase, "content": content(schema)} for code, schema in good.items()
    }
    for code in sorted(set(bad)):
        found[str(code)] = {"description": HTTPStatus(code).phrase, "content": content(ref(STATUS))}
    return found


class Operations:
    """The operations of one kind. `within` says whether the path names a namespace."""

    def __init__(self, resource: Resource[Any]) -> None:
        self.resource = resource
        self.object = ref(definition_name(resource))
        self.list = ref(definition_name(resource) + "List")
        self._gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}

    def operation(self, action: str, verb: str, suffix: str = "", gvk: Json | None = None, **more: Any) -> Json:
        resource = self.resource
        group = "".join(part.capitalize() for part in (resource.group or "core").replace("-", ".").split("."))
        return {
            "tags": [f"{resource.group or 'core'}_{resource.version}"],
            "operationId": f"{verb}{group}{resource.version.capitalize()}{resource.kind}{suffix}",
            **more,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk or self._gvk,
        }

    def collection(self) -> Json:
        resource = self.resource
        found = {
            "get": self.list_operation("list"),
            "post": self.operation(
                "post",
                "create",
                description=f"create a {resource.kind}",
                parameters=list(WRITE),
                requestBody=_body(self.object),
                responses=responses({201: self.object}, _WRITE),
            ),
        }
        if resource.plural != "namespaces":
            found["delete"] = self.operation(
                "deletecollection",
                "deleteCollection",
                description=f"delete collection of {resource.kind}",
                parameters=list(DELETE_COLLECTION),
                requestBody=_body(ref(DELETE_OPTIONS), required=False),
                responses=responses({200: self.list}, (*_WRITE, 410)),
            )
        return found

    def list_operation(self, verb: str, suffix: str = "") -> Json:
        return self.operation(
            "list",
            verb,
            suffix,
            description=f"list objects of kind {self.resource.kind}",
            parameters=list(LIST),
            responses=responses({200: self.list}, _LIST),
        )

    def item(self) -> Json:
        kind = self.resource.kind
        gone = {"anyOf": [ref(STATUS), self.object]}
        return self.part("", self.object) | {
            "delete": self.operation(
                "delete",
                "delete",
                description=f"delete a {kind}",
                parameters=list(DELETE),
                requestBody=_body(ref(DELETE_OPTIONS), required=False),
                responses=responses({200: gone}, _WRITE),
            )
        }

    def part(
        self, suffix: str, schema: Json, gvk: Json | None = None, verbs: tuple[str, ...] = ("get", "update", "patch")
    ) -> Json:
        """The operations to read and replace an object, or a subresource such as its status."""
        what = (
            f"{suffix.lower()} of the specified {self.resource.kind}"
            if suffix
            else f"the specified {self.resource.kind}"
        )
        made = {
            "get": self.operation(
                "get",
                "read",
                suffix,
                gvk,
                description=f"read {what}",
                parameters=list(READ),
                responses=responses({200: schema}, _READ),
            ),
            "put": self.operation(
                "put",
                "replace",
                suffix,
                gvk,
                description=f"replace {what}",
                parameters=list(WRITE),
                requestBody=_body(schema),
                responses=responses({200: schema, 201: schema}, _WRITE),
            ),
            "patch": self.operation(
                "patch",
                "patch",
                suffix,
                gvk,
                description=f"partially update {what}",
                parameters=list(WRITE),
                requestBody=_patch_body(self.resource, suffix),
                responses=responses({200: schema}, _WRITE),
            ),
        }
        methods = {"get": "get", "update": "put", "patch": "patch"}
        return {methods[verb]: made[methods[verb]] for verb in verbs}

    def action(
        self, suffix: str, method: str, request: Json | None, good: dict[int, Json], gvk: Json | None = None
    ) -> Json:
        """A subresource that acts on an object and is not stored in it, such as an eviction."""
        more: Json = {"requestBody": _body(request)} if request is not None else {}
        bad = (*_WRITE, 501) if not good else _WRITE
        query = list(WRITE[1:]) if request is not None else []
        verb = {"get": "connectGet", "post": "connectPost"}[method] if not good else "create"
        action = "connect" if not good else "post"
        return self.operation(
            action,
            verb,
            suffix,
            gvk,
            description=f"{suffix.lower()} of a {self.resource.kind}",
            parameters=query,
            **more,
            responses=responses(good, bad),
        )


def _body(schema: Json, required: bool = True) -> Json:
    return {"content": content(schema, "application/json", "application/yaml"), "required": required}


def _patch_body(resource: Resource[Any], suffix: str) -> Json:
    supported = strategy_of(resource).patches if suffix != "Scale" else (PatchType.JSON, PatchType.MERGE)
    operation = {
        "type": "object",
        "required": ["op", "path"],
        "properties": {"op": {"type": "string"}, "path": {"type": "string"}},
    }
    schemas: dict[PatchType, Json] = {
        PatchType.JSON: {"type": "array", "items": operation},
        PatchType.MERGE: {"type": "object"},
        PatchType.STRATEGIC: {"type": "object"},
    }
    return {"content": {kind.value: {"schema": schemas[kind]} for kind in supported}, "required": True}
