"""OpenAPI v3 schemas of our own types, read off the structs: the types are the source, the schemas follow.

Raw fields become references to the Kubernetes definition that they name. Constraints beyond the Python type come from
`fields.doc`. Nothing here loads the vendored definitions.
"""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from msgspec import inspect as types

from sandpool.model.fields import DEFINITION
from sandpool.model.metadata import Metadata
from sandpool.model.resource import Resource

PREFIX = "#/components/schemas/"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
API_VERSION = "The version of the schema that this object is written in."
KIND = "What this object is."

Schema = dict[str, Any]


def reference(definition: str) -> Schema:
    return {"$ref": PREFIX + definition}


def definition_name(resource: Resource[Any]) -> str:
    """The name under which Kubernetes publishes a kind: the group reversed, as Java packages are."""
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
    raise TypeError(f"no schema for a field of type {info!r}: say in openapi.py how it looks on the wire")


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
    """What `doc` says goes beside the type; beside a reference it needs allOf, whose siblings OpenAPI respects."""
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
