"""docs/reference/kinds.md: every field of our four kinds, from the CRDs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sandpool.model.kinds import OURS
from sandpool.model.schemas import structural

Json = dict[str, Any]

HEAD = """\
# The four kinds

Every field, from the types in `src/sandpool/model`; [deploy/crds](../../deploy/crds) holds the same as CustomResourceDefinitions, and `kubectl
explain` shows it, too. Beside these, every object has the usual `metadata`. Fields of pods, of claims for storage and of policies are those of
Kubernetes and are not repeated; [pods.md](pods.md) says which of them mean something on one machine.
"""


def kinds_page() -> str:
    return HEAD + "".join(_kind(resource) for resource in OURS)


def _kind(resource: Any) -> str:
    schema = structural(resource)
    names = ", ".join(f"`{name}`" for name in (resource.plural, *resource.short_names))
    lines = [
        f"\n## {resource.kind}",
        f"\n{schema.get('description', '')}",
        f"\n`{resource.api_version}`; {names}.\n",
        "| field | type | meaning |",
        "|---|---|---|",
    ]
    for part in ("spec", "status"):
        found = schema["properties"].get(part)
        if found is not None:
            required = part in schema.get("required", ())
            lines += [
                _row(path, field, needed) for path, field, needed in ((part, found, required), *_fields(part, found))
            ]
    return "\n".join(lines) + "\n"


def _fields(path: str, schema: Json) -> Iterator[tuple[str, Json, bool]]:
    inner, suffix = (schema["items"], "[]") if schema.get("type") == "array" and "items" in schema else (schema, "")
    properties = inner.get("properties", {})
    if not all("description" in field for field in properties.values()):
        return  # a type of Kubernetes, which says nothing about its fields here
    for name, field in properties.items():
        below = f"{path}{suffix}.{name}"
        yield below, field, name in inner.get("required", ())
        yield from _fields(below, field)


def _row(path: str, field: Json, required: bool) -> str:
    says = [field.get("description", "")]
    if "enum" in field:
        says.append("One of " + ", ".join(f"`{word}`" for word in field["enum"]) + ".")
    if "default" in field:
        says.append(f"Default: `{field['default']}`.")
    if required:
        says.append("Required.")
    return f"| `{path}` | {_type(field)} | {' '.join(filter(None, says))} |".replace("\n", " ").replace("<", "&lt;")


def _type(field: Json) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "number or text"
    kind = str(field.get("type", "object"))
    if kind == "array":
        return f"list of {_type(field['items'])}" if "items" in field else "list"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'])}"
    return {"date-time": "time", "int32": "number", "int64": "number"}.get(str(field.get("format")), kind)
