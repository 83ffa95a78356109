"""The two ways in which an API server decodes a document, and the error of each for a value of the wrong type.

A custom resource is checked against its schema, which reports all problems (422). A built-in kind is first decoded into Go structs, which
stops at the first value of the wrong type (400). Users know the messages of Go's decoder, so we use the same. A schema does not have the
names of Go structs: the important ones are in a table, the others are derived from the path.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.causes import Findings, Place, fields_only, quoted

_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
_NUMBER_FORMATS: dict[type, str] = {int: "int64", float: "float64"}


Schema: TypeAlias = dict[str, Any]
_JSON_WORDS: dict[type, str] = {str: "string", bool: "bool", dict: "object", list: "array", int: "number"}
_SCALARS = {"string": "string", "boolean": "bool", "integer": "int64", "number": "float64"}
_STRUCTS = {
    "metadata": "ObjectMeta",
    "metadata.ownerReferences": "OwnerReference",
    "spec.containers": "Container",
    "spec.initContainers": "Container",
    "spec.containers.ports": "ContainerPort",
    "spec.containers.env": "EnvVar",
    "spec.containers.resources": "ResourceRequirements",
    "spec.containers.securityContext": "SecurityContext",
    "spec.containers.volumeMounts": "VolumeMount",
    "spec.securityContext": "PodSecurityContext",
    "spec.tolerations": "Toleration",
    "spec.volumes": "Volume",
    "spec.ports": "ServicePort",
    "involvedObject": "ObjectReference",
}
_MICRO_TIMES = ("eventTime", "renewTime", "acquireTime", "lastObservedTime")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_RFC3339_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)", re.ASCII)


class Dialect(Enum):
    """How an API server decodes a kind: as a custom resource, or as a built-in kind."""

    CUSTOM = "custom"
    BUILT_IN = "built-in"


def wrong_type(schema: Schema, value: Any, place: Place, step: str | int, out: Findings) -> Any:
    """Reports a value of the wrong type in a custom resource; returns it, so that the walk can continue."""
    expected = "integer,string" if schema.get("x-kubernetes-int-or-string") else str(schema.get("type", "object"))
    got = _JSON_TYPES[type(value)]
    if schema.get("format") and type(value) not in (str, list, type(None)):
        # The validator of a kube-apiserver then reports formats instead of types.
        expected, got = str(schema["format"]), _NUMBER_FORMATS.get(type(value), "")
    field, name = out.spot(place, step)
    out.causes.append(causes.wrong_type(field, got, f"{name} in body must be of type {expected}: {causes.quoted(got)}"))
    if "anyOf" in schema:
        _no_alternative(schema["anyOf"], _JSON_TYPES[type(value)], field, name, out)
    if "enum" in schema:
        out.causes.append(causes.not_supported(field, value, schema["enum"]))
    return value


def _no_alternative(alternatives: list[Schema], got: str, field: str, name: str, out: Findings) -> None:
    """Reports that no alternative matches: int-or-string is written as two alternatives in a CRD, and a kube-apiserver mentions them."""
    text = f"{causes.quoted(name)} must validate at least one schema (anyOf)"
    out.causes.append(causes.invalid("<nil>", "", text))
    first = alternatives[0].get("type", "")
    out.causes.append(causes.wrong_type(field, got, f"{name} in body must be of type {first}: {causes.quoted(got)}"))


def not_go(schema: Schema, value: Any, place: Place, step: str | int, out: Findings) -> Any:
    """Like `wrong_type`, for a built-in kind."""
    out.cannot_decode(cannot_unmarshal(schema, value, (place, step), out.kind))
    return value


def cannot_unmarshal(schema: dict[str, Any], value: Any, place: Place, kind: str) -> str:
    """Go's message, such as `json: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32`.

    `kind` is empty for the metadata of a custom resource, which is decoded separately.
    """
    path = fields_only(place)
    struct, go_type = _struct(path.rpartition(".")[0], kind), _go_type(schema, path, kind)
    got = _JSON_WORDS.get(type(value), "number")
    if got == "number" and (type(value) is float or go_type in ("int32", "int64")):
        got = f"number {value}"
    shown = path if kind else path.removeprefix("metadata.")
    return f"json: cannot unmarshal {got} into Go struct field {struct}.{shown} of type {go_type}"


def _struct(path: str, kind: str) -> str:
    if not path:
        return kind
    if path in ("spec", "status"):
        return kind + path.title()
    if path in _STRUCTS:
        return _STRUCTS[path]
    last = path.rpartition(".")[2]
    return last[:1].upper() + last[1:]


def _go_type(schema: dict[str, Any], path: str, kind: str) -> str:
    json_type = schema.get("type")
    if json_type == "array":
        return "[]" + _go_type(schema.get("items") or {}, path, kind)
    values = schema.get("additionalProperties")
    if json_type == "object" and isinstance(values, dict):
        return "map[string]" + _go_type(values, path, kind)
    if json_type == "integer" and schema.get("format") == "int32":
        return "int32"
    return _SCALARS.get(str(json_type)) or f"v1.{_struct(path, kind)}"


def bad_base64(text: str) -> str:
    """Why Go refuses this as base64; empty if it does not."""
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        wrong = _NOT_BASE64.search(text)
        return f"illegal base64 data at input byte {len(text) // 4 * 4 if wrong is None else wrong.start()}"
    return ""


def bad_time(text: str, step: str | int) -> str:
    """Why Go refuses this as a time; empty if it does not. Go also names the part of the text that is wrong; we do not."""
    micro = step in _MICRO_TIMES
    if (_RFC3339_MICRO if micro else _RFC3339).fullmatch(text) and readable_time(text):
        return ""
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
    return f'parsing time {quoted(text)} as "{layout}": cannot parse {quoted(text)} as "2006"'


def readable_time(text: str) -> bool:
    """Whether this is a possible time (not February 30th, not hour 24). All readers of stored objects rely on this: one
    invalid time would stop a controller for all objects of the kind."""
    try:
        msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return False
    return True
