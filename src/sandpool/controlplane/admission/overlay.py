"""Adds to a schema what Kubernetes decides in code for its own kinds: defaults and closed lists of values, as tables.

A path names fields from the root, with `[]` after a field that is a list: `spec.containers[].terminationMessagePolicy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandpool.controlplane.admission.dialect import Schema


def overlaid(schema: Schema, keyword: str, table: Mapping[str, Any]) -> Schema:
    """A copy of the schema in which every path of the table carries its value under the keyword."""
    for path, value in table.items():
        schema = _set(schema, path.replace("[]", ".[]").split("."), keyword, value)
    return schema


def _set(schema: Schema, steps: list[str], keyword: str, value: Any) -> Schema:
    if not steps:
        return {**schema, keyword: value}
    step, rest = steps[0], steps[1:]
    if step == "[]":
        return {**schema, "items": _set(schema["items"], rest, keyword, value)}
    properties = schema["properties"]
    return {**schema, "properties": {**properties, step: _set(properties[step], rest, keyword, value)}}


def optional(schema: Schema) -> Schema:
    """A copy in which nothing is required."""
    out = {key: value for key, value in schema.items() if key != "required"}
    if "properties" in out:
        out["properties"] = {name: optional(sub) for name, sub in out["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(out.get(key), dict):
            out[key] = optional(out[key])
    return out
