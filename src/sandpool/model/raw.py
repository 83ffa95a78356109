"""Any object, whole: typed metadata for the machinery, the JSON itself for everybody else."""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.model.metadata import Metadata


class RawObject:
    """An object that keeps every field. `body` is its JSON and must not be changed in place."""

    __slots__ = ("body", "metadata")

    metadata: Metadata
    body: dict[str, Any]

    def __init__(self, body: dict[str, Any]) -> None:
        if not isinstance(body, dict):
            raise TypeError("Expected `object`: the JSON of an object has members")
        self.body = body
        self.metadata = msgspec.convert(body.get("metadata") or {}, Metadata)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawObject) and self.body == other.body

    __hash__ = None  # type: ignore[assignment]  # it holds a dict

    def __repr__(self) -> str:
        return f"RawObject({self.body.get('kind', '')} {self.metadata.key})"
