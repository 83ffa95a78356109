"""How Go's decoder complains. Built-in kinds are decoded into Go structs, so their users know these sentences.

A schema does not carry the names of Go structs: those that matter are in a table, the rest is guessed from the path.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from typing import Any

import msgspec

from sandpool.controlplane.admission.causes import quoted
from sandpool.controlplane.admission.paths import Place, fields_only

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
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_RFC3339_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)", re.ASCII)


def cannot_unmarshal(schema: dict[str, Any], value: Any, place: Place, kind: str) -> str:
    """`json: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32`.

    The metadata of a custom resource (which has no Go struct, so no `kind` here) is decoded by itself.
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
        wrong = (i for i, char in enumerate(text) if not (char.isascii() and (char.isalnum() or char in "+/=")))
        return f"illegal base64 data at input byte {next(wrong, len(text) // 4 * 4)}"
    return ""


def bad_time(text: str, step: str | int) -> str:
    """Why Go refuses this as a time; empty if it does not. Which part of the text it names is not imitated."""
    micro = step in _MICRO_TIMES
    if (_RFC3339_MICRO if micro else _RFC3339).fullmatch(text) and readable_time(text):
        return ""
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
    return f'parsing time {quoted(text)} as "{layout}": cannot parse {quoted(text)} as "2006"'


def readable_time(text: str) -> bool:
    """Whether a calendar has such a moment (not February 30th, not hour 24). Everybody who reads what is stored stands on
    this: one time that cannot be read would stop a controller for all objects of the kind."""
    try:
        msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return False
    return True
