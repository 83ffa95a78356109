"""Patches as values, and what they make of a JSON document.

Documents are never changed in place: applying a patch copies only the path that it touches, so every subtree that it
left alone is the same Python object as before (`is`), which is how admission knows what need not be checked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sandpool.model.documents import BadPatch, Json, PatchError, PatchTooLarge
from sandpool.model.patch_json import apply_json_patch
from sandpool.model.patch_merge import apply_merge_patch, diff
from sandpool.model.patch_strategic import apply_strategic_patch

__all__ = [
    "BadPatch",
    "Json",
    "Patch",
    "PatchError",
    "PatchTooLarge",
    "PatchType",
    "apply_json_patch",
    "apply_merge_patch",
    "apply_strategic_patch",
    "diff",
    "json_patch",
    "merge_patch",
]


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Patch:
    """What to change and in which dialect. Preconditions are part of the body, because that is all a server offers:
    `test` operations in a JSON patch (422 without causes if one fails), metadata.resourceVersion in a merge patch (409). A uid
    in a merge patch works on the object itself only, as an immutable field (422 with causes); a real server silently
    ignores it in a merge patch to /status: use a JSON patch there."""

    type: PatchType
    body: Json


def json_patch(operations: Sequence[Mapping[str, Json]]) -> Patch:
    return Patch(PatchType.JSON, [dict(operation) for operation in operations])


def merge_patch(body: Mapping[str, Json]) -> Patch:
    return Patch(PatchType.MERGE, dict(body))
