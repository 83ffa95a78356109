"""The formats of `-o`: parsing the flag, and printing objects in that format."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.output.jsonpath import Template, template
from sandpool.model.jsonpath import JsonPathError
from sandpool.model.resource import Resource

Json = dict[str, Any]
WORDS = ("table", "wide", "json", "yaml", "name")
_JSONPATH = "jsonpath="
_UNSEEN = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Eight-bit control characters, and marks that change the direction of writing."""


@dataclass(frozen=True, slots=True)
class Format:
    """`word` is one of WORDS, or jsonpath, which has a template."""

    word: str
    template: Template | None = None

    @property
    def tabular(self) -> bool:
        return self.word in ("table", "wide")


def format_of(text: str) -> Format:
    if text in WORDS:
        return Format(text)
    if text.startswith(_JSONPATH) and text != _JSONPATH:
        try:
            return Format("jsonpath", template(text.removeprefix(_JSONPATH)))
        except JsonPathError as error:
            raise Exit(USAGE, f"-o {text}: {error}; write for example -o jsonpath='{{.metadata.name}}'") from None
    raise Exit(USAGE, f"-o {text!r} is not a format; choose {', '.join(WORDS)} or jsonpath=TEMPLATE")


def one(resource: Resource[Any], body: Json, format: Format) -> str:
    """A single object, with a final newline."""
    if format.word == "json":
        return _json(body)
    if format.word == "yaml":
        return _yaml(body)
    if format.template is not None:
        return format.template(body)  # as kubectl: the template has its own newlines
    return f"{address(resource, body)}\n"


def several(resource: Resource[Any], items: Sequence[Json], format: Format) -> str:
    """A list as `kubectl get` gives it: kind List, every item with its kind."""
    if format.word == "name":
        return "".join(f"{address(resource, item)}\n" for item in items)
    return one(resource, listed(items), format)


def line(body: Json) -> str:
    """One object on one line, for a watch."""
    return as_json(body, separators=(",", ":")) + "\n"


def as_json(body: Any, **how: Any) -> str:
    """JSON with letters of all scripts, but with control characters escaped, so that it is safe on a terminal."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(body, ensure_ascii=False, **how))


def listed(items: Sequence[Json]) -> Json:
    return {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {"resourceVersion": ""}}


def whole(resource: Resource[Any], item: Json) -> Json:
    """Adds the kind, which items of a list do not have."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **item}


def address(resource: Resource[Any], body: Json) -> str:
    """`sandboxclaim.extensions.agents.x-k8s.io/mine`, which every command takes."""
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.singular}{group}/{body['metadata']['name']}"


def _json(body: Json) -> str:
    return as_json(body, indent=4, sort_keys=True) + "\n"


def _yaml(body: Json) -> str:
    import yaml

    how: dict[str, Any] = {"sort_keys": True, "default_flow_style": False, "width": 80}
    text: str = yaml.safe_dump(body, allow_unicode=True, **how)
    return yaml.safe_dump(body, **how) if _UNSEEN.search(text) else text
