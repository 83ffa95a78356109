"""Writes the pages of docs/reference that repeat the code: the kinds, the SDK, and the tables of reasons and Events.

The pages of metrics, flags and permissions are written elsewhere; tests compare them with the code.

With --check it writes nothing, names the pages that are out of date, and fails if there are any.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sandpool.model import event_reasons, reasons
from sandpool.model.kinds import OURS
from sandpool.model.schemas import structural
from sdk_page import sdk_page

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


PAGES = Path(__file__).parent.parent / "docs/reference"


def with_table(page: str, table: str) -> str:
    """The page with its only table of reasons replaced."""
    header = re.escape(table.splitlines()[0])
    return re.sub(
        rf"^{header}\n(\|.*\n)+",
        lambda _: table if table.endswith("\n") else f"{table}\n",
        page,
        count=1,
        flags=re.MULTILINE,
    )


WRITTEN: dict[str, Callable[[str], str]] = {
    "kinds.md": lambda _: kinds_page(),
    "sdk.md": lambda _: sdk_page(),
    "conditions.md": lambda page: with_table(page, reasons.table()),
    "events.md": lambda page: with_table(page, event_reasons.table()),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = []
    for name, write in WRITTEN.items():
        path = PAGES / name
        old = path.read_text() if path.exists() else ""
        new = write(old)
        if new != old:
            stale.append(name)
            if not check:
                path.write_text(new)
    for name in stale:
        print(f"docs/reference/{name} {'is out of date; run `make reference`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
