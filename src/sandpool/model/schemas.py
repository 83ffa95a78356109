"""OpenAPI v3 schemas of every served kind: named definitions, and self-contained structural schemas.

Schemas of our kinds are derived from their structs, which are the source. Raw fields become references to the Kubernetes definition that they
name; constraints beyond the Python type come from `fields.doc`. Schemas of Kubernetes' own kinds come from a vendored extract (kubernetes.json,
made by tools/kubernetes_schemas.py) that is read on first use. Results are shared and must not be changed.

In the structural schema of a built-in kind, a quantity has `format: quantity` in addition to `x-kubernetes-int-or-string`, because there it may
also be a fraction (`cpu: 0.5`). The structural schema of one of our kinds is the one in its CRD.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import inspect as types

from sandpool.model.fields import DEFINITION
from sandpool.model.kinds import ALL, OURS
from sandpool.model.metadata import Metadata
from sandpool.model.quantities import PATTERN
from sandpool.model.resource import Resource

PREFIX = "#/components/schemas/"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
API_VERSION = "The version of the schema that this object is written in."
KIND = "What this object is."

Schema = dict[str, Any]
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


def reference(definition: str) -> Schema:
    return {"$ref": PREFIX + definition}


def definition_name(resource: Resource[Any]) -> str:
    """The OpenAPI name of a kind: the group reversed, as in Java packages."""
    if resource.group.endswith(".x-k8s.io"):
        package = ".".join(reversed(resource.group.split(".")))
        return f"{package}.{resource.version}.{resource.kind}"
    return f"io.k8s.api.{resource.group.split('.')[0] or 'core'}.{resource.version}.{resource.kind}"


def object_schema(resource: Resource[Any]) -> Schema:
    """The definition of one of our kinds."""
    schema = schema_of(types.type_info(resource.type))
    schema["description"] = _docstring(resource.type)
    schema["properties"] = {**_type_meta(), **schema["properties"]}
    schema["x-kubernetes-group-version-kind"] = [_gvk(resource, resource.kind)]
    return schema


def list_schema(resource: Resource[Any]) -> Schema:
    return {
        "description": f"{resource.kind}List is a list of {resource.kind}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_type_meta(),
            "metadata": {"allOf": [reference(LIST_META)], "description": "Revision and page of the list."},
            "items": {"type": "array", "description": "The objects.", "items": reference(definition_name(resource))},
        },
        "x-kubernetes-group-version-kind": [_gvk(resource, resource.kind + "List")],
    }


def schema_of(info: types.Type) -> Schema:
    match info:
        case types.Metadata():
            return _annotated(info)
        case types.StructType(cls=cls) if cls is Metadata:
            return reference(OBJECT_META)
        case types.StructType():
            return _struct(info)
        case types.UnionType():
            return _union(info)
        case types.VarTupleType():
            return {"type": "array", "items": schema_of(info.item_type)}
        case types.DictType():
            return {"type": "object", "additionalProperties": schema_of(info.value_type)}
        case types.StrType():
            return {"type": "string"}
        case types.BoolType():
            return {"type": "boolean"}
        case types.IntType():
            return {"type": "integer"}
        case types.DateTimeType():
            return {"type": "string", "format": "date-time"}
    raise TypeError(f"no schema for a field of type {info!r}: say in schemas.py how it looks on the wire")


def _struct(info: types.StructType) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": {field.encode_name: schema_of(field.type) for field in info.fields},
    }
    required = [field.encode_name for field in info.fields if field.required]
    if required:
        schema["required"] = required
    return schema


def _union(info: types.UnionType) -> Schema:
    kinds = [kind for kind in info.types if not isinstance(kind, types.NoneType)]
    if len(kinds) == 1:
        return schema_of(kinds[0])
    if {type(kind) for kind in kinds} == {types.IntType, types.StrType}:
        return reference(INT_OR_STRING)
    raise TypeError(f"no schema for the union {info!r}: only optional types and int | str have one")


def _annotated(info: types.Metadata) -> Schema:
    """Adds the keywords of `doc` to the schema of the type. A reference must be wrapped in allOf, because OpenAPI ignores siblings of $ref."""
    definition = (info.extra or {}).get(DEFINITION)
    schema = reference(definition) if definition else schema_of(info.type)
    extra = info.extra_json_schema or {}
    if "$ref" in schema and extra:
        schema = {"allOf": [schema]}
    return {**schema, **extra}


def _type_meta() -> Schema:
    return {
        "apiVersion": {"type": "string", "description": API_VERSION},
        "kind": {"type": "string", "description": KIND},
    }


def _gvk(resource: Resource[Any], kind: str) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": kind}


def _docstring(cls: type[msgspec.Struct]) -> str:
    return " ".join((inspect.getdoc(cls) or cls.__name__).split())


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
    """The schema of ObjectMeta, resolved as for a built-in kind."""
    return _resolved(OBJECT_META, False)


def _resolve(schema: Schema, custom: bool) -> Schema:
    """The schema with all references resolved. Each definition is resolved once and shared."""
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
    """The schema without descriptions: a CRD with all descriptions of PodSpec would exceed the annotation limit of `kubectl apply`."""
    out = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in schema:
        out["properties"] = {name: _terse(sub) for name, sub in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            out[key] = _terse(schema[key])
    return out
