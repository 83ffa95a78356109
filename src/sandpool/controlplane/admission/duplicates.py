"""Finds fields that a JSON document states twice. Decoding keeps the last one, so only the text can tell.

One pass of the C scanner counts; paths are worked out only for a document that really has duplicates.
"""

from __future__ import annotations

import json
from typing import Any

Pairs = list[tuple[str, Any]]


def duplicate_fields(raw: bytes) -> list[str]:
    """The paths of repeated fields in the order of the text, each once: `spec.replicas`, `metadata.labels.a`.

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
    _collect(json.loads(raw, object_pairs_hook=tuple), "", found)
    return list(found)


def _collect(value: Any, path: str, found: dict[str, None]) -> None:
    """Objects are tuples of pairs here, lists are lists."""
    if type(value) is list:
        for index, item in enumerate(value):
            _collect(item, f"{path}[{index}]", found)
    elif type(value) is tuple:
        seen: set[str] = set()
        for name, item in value:
            here = f"{path}.{name}" if path else name
            if name in seen:
                found[here] = None
            seen.add(name)
            _collect(item, here, found)
