"""The schemas of what is measured and never stored."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.apiserver.openapi.operations import META, ref
from sandpool.model.resource import Resource
from sandpool.model.schemas import QUANTITY, definition_name
from sandpool.model.usage import NODE_METRICS, POD_METRICS

Json = dict[str, Any]
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
