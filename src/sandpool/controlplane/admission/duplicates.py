"""Finds fields that a JSON document states twice. Decoding keeps the last one, so only the text can tell.

One pass of the C scanner counts; paths are worked out only for a document that really has duplicates.
"""

from __future__ import annotations

import json
from typing import Any

Pairs = list[tuple[str, Any]]
Place = tuple["Place", str | int] | None
"""A field below another one. Text is made of it only for a field that is stated twice: names may be megabytes long."""

MOST = 64
"""Paths that are told."""
LONG = 256
"""Characters of a path; of a longer one the end is cut."""


def duplicate_fields(raw: bytes) -> list[str]:
    """The paths of repeated fields in the order of the text, each once, the first `MOST` of them: `spec.replicas`, `metadata.labels.a`.

    `raw` must be well-formed JSON.
    """
    twice = False

    def count(pairs: Pairs) -> None:
        nonlocal twice
        if len(pairs) > 1 and len({name for name, _ in pairs}) != len(pairs):
            twice = True

    json.loads(raw, object_pairs_hook=count)
    if not twice:
        return []
    found: dict[str, None] = {}
    _collect(json.loads(raw, object_pairs_hook=tuple), None, found)
    return list(found)


def _collect(value: Any, place: Place, found: dict[str, None]) -> None:
    """Objects are tuples of pairs here, lists are lists."""
    if len(found) >= MOST:
        return
    if type(value) is list:
        for index, item in enumerate(value):
            _collect(item, (place, index), found)
    elif type(value) is tuple:
        seen: set[str] = set()
        for name, item in value:
            here = (place, name)
            if name in seen and len(found) < MOST:
                found[_text(here)] = None
            seen.add(name)
            _collect(item, here, found)


def _text(place: Place) -> str:
    parts: list[str] = []
    while place is not None:
        place, name = place
        parts.append(f"[{name}]" if type(name) is int else f".{str(name)[:LONG]}")
    return "".join(reversed(parts)).removeprefix(".")[:LONG]
