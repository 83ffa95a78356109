"""The schemas of every served kind: named OpenAPI v3 definitions, and self-contained structural schemas.

Our kinds come from their structs, Kubernetes' own from a vendored extract (kubernetes.json, made by tools/kubernetes_schemas.py)
that is read on first use. Results are shared and must not be changed.

In the structural schema of a built-in kind a quantity has `format: quantity` beside `x-kubernetes-int-or-string`, because it
may also be a fraction there (`cpu: 0.5`). That of one of our kinds says what its CRD says.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from sandpool.model.kinds import ALL, OURS
from sandpool.model.openapi import (
    INT_OR_STRING,
    OBJECT_META,
    PREFIX,
    Schema,
    definition_name,
    list_schema,
    object_schema,
)
from sandpool.model.quantities import PATTERN
from sandpool.model.resource import Resource

__all__ = ["definition_name", "definitions", "metadata_schema", "structural"]

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_EITHER: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_NOT_IN_CRDS = (
    "x-kubernetes-group-version-kind",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
)
_SCALARS: dict[tuple[str, bool], Schema] = {
    (INT_OR_STRING, False): {"x-kubernetes-int-or-string": True},
    (INT_OR_STRING, True): _EITHER,
    (QUANTITY, False): {"x-kubernetes-int-or-string": True, "format": "quantity", "pattern": PATTERN},
    (QUANTITY, True): {**_EITHER, "pattern": PATTERN},
}


@cache
def definitions() -> Mapping[str, Schema]:
    """All definitions by name, with `$ref: "#/components/schemas/<name>"` between them."""
    found: dict[str, Schema] = msgspec.json.decode(files("sandpool.model").joinpath("kubernetes.json").read_bytes())
    for resource in OURS:
        found[definition_name(resource)] = object_schema(resource)
        found[definition_name(resource) + "List"] = list_schema(resource)
    return found


@cache
def structural(resource: Resource[Any]) -> Schema:
    """The schema of a kind with every reference resolved, in the dialect of CRDs; `metadata` is ObjectMeta, whole."""
    if resource not in ALL:
        raise KeyError(f"{resource.group_resource} is not a kind that is served")
    return _resolve(definitions()[definition_name(resource)], resource in OURS)


def metadata_schema() -> Schema:
    """ObjectMeta, resolved as for a built-in kind."""
    return _resolved(OBJECT_META, False)


def _resolve(schema: Schema, custom: bool) -> Schema:
    """A schema without references. Each definition is resolved once and shared by all who refer to it."""
    if "$ref" in schema:
        return _resolved(schema["$ref"].removeprefix(PREFIX), custom)
    if "allOf" in schema:
        merged: Schema = {}
        for part in schema["allOf"]:
            merged |= _resolve(part, custom)
        return merged | {key: value for key, value in schema.items() if key != "allOf"}
    out = {key: value for key, value in schema.items() if not (custom and key in _NOT_IN_CRDS)}
    if "properties" in schema:
        out["properties"] = {name: _resolve(sub, custom) for name, sub in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            out[key] = _resolve(schema[key], custom)
    if schema.get("type") == "object" and not schema.keys() & {"properties", "additionalProperties"}:
        out["x-kubernetes-preserve-unknown-fields"] = True
    return out


@cache
def _resolved(name: str, custom: bool) -> Schema:
    scalar = _SCALARS.get((name, custom))
    if scalar is not None:
        return scalar
    schema = _resolve(definitions()[name], custom)
    return _terse(schema) if custom and name != OBJECT_META else schema


def _terse(schema: Schema) -> Schema:
    """Without descriptions: a CRD with all of PodSpec explained would not fit into an annotation of `kubectl apply`."""
    out = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in schema:
        out["properties"] = {name: _terse(sub) for name, sub in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            out[key] = _terse(schema[key])
    return out
