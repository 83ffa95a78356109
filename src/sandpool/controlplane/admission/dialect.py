"""The two ways in which an API server reads a document, and what each says about a value of the wrong type.

A custom resource is checked against its schema, which tells everything that is wrong (422). A built-in kind is decoded into
Go structs first, and that stops at the first value that does not fit (400).
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.findings import Findings
from sandpool.controlplane.admission.gowords import cannot_unmarshal
from sandpool.controlplane.admission.paths import Place

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


class Dialect(Enum):
    CUSTOM = "custom"
    BUILT_IN = "built-in"


def wrong_type(schema: Schema, value: Any, place: Place, step: str | int, out: Findings) -> Any:
    """Reports a value of the wrong type in a custom resource; returns it, so that the walk can go on."""
    expected = "integer,string" if schema.get("x-kubernetes-int-or-string") else str(schema.get("type", "object"))
    got = _JSON_TYPES[type(value)]
    if schema.get("format") and type(value) not in (str, list, type(None)):
        # The real validator then speaks of formats instead of types.
        expected, got = str(schema["format"]), _NUMBER_FORMATS.get(type(value), "")
    field, name = out.spot(place, step)
    out.causes.append(causes.wrong_type(field, got, f"{name} in body must be of type {expected}: {causes.quoted(got)}"))
    if "anyOf" in schema:
        _no_alternative(schema["anyOf"], _JSON_TYPES[type(value)], field, name, out)
    if "enum" in schema:
        out.causes.append(causes.not_supported(field, value, schema["enum"]))
    return value


def _no_alternative(alternatives: list[Schema], got: str, field: str, name: str, out: Findings) -> None:
    """int-or-string is spelled as two alternatives in a CRD, so a server also speaks about those."""
    text = f"{causes.quoted(name)} must validate at least one schema (anyOf)"
    out.causes.append(causes.invalid("<nil>", "", text))
    first = alternatives[0].get("type", "")
    out.causes.append(causes.wrong_type(field, got, f"{name} in body must be of type {first}: {causes.quoted(got)}"))


def not_go(schema: Schema, value: Any, place: Place, step: str | int, out: Findings) -> Any:
    """The same for a built-in kind."""
    out.cannot_decode(cannot_unmarshal(schema, value, (place, step), out.kind))
    return value
