"""Patches as values, and merge patches (RFC 7386): applying one, and computing one from a difference.

Documents are never changed in place. Applying a patch copies only the path that it touches, so every untouched subtree is the same Python
object as before (`is`). Admission uses that to skip subtrees that need not be checked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sandpool.model.documents import (
    MAX_DEPTH,
    BadPatch,
    Json,
    PatchError,
    PatchTooLarge,
    depth,
    go_kind,
    same,
    without_nulls,
)
from sandpool.model.patch_json import apply_json_patch
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


def apply_merge_patch(doc: Json, patch: Json) -> Json:
    """The document with the patch applied: members of objects are merged, null removes, everything else replaces."""
    if type(patch) is not dict:
        raise BadPatch(
            f"error decoding patch: json: cannot unmarshal {go_kind(patch)} into Go value of type map[string]interface {{}}"
        )
    if depth(patch) > MAX_DEPTH:
        raise PatchError(f"the patch nests deeper than {MAX_DEPTH} levels")
    return _merge(doc, patch) if type(doc) is dict else without_nulls(patch)


def _merge(doc: dict[str, Json], patch: dict[str, Json]) -> dict[str, Json]:
    merged = doc
    for key, wanted in patch.items():
        current = doc.get(key)
        if wanted is None:
            if key in doc:
                merged = doc.copy() if merged is doc else merged
                del merged[key]
            continue
        value: Json
        if type(wanted) is str:
            value, unchanged = wanted, type(current) is str and wanted == current
        elif type(current) is dict and type(wanted) is dict:
            value = _merge(current, wanted)
            unchanged = value is current
        else:
            # An array that replaces an object is taken unchanged: the Go library does not remove nulls from it.
            value = wanted if type(current) is dict else without_nulls(wanted)
            unchanged = key in doc and same(value, current)
        if not unchanged:
            merged = doc.copy() if merged is doc else merged
            merged[key] = value
    return merged


def diff(old: Json, new: Json) -> dict[str, Json] | None:
    """The smallest merge patch that turns one object into the other; None if they are equal.

    A member that is null in `new` counts as absent, because a merge patch cannot express null.
    """
    patch: dict[str, Json] = {key: None for key in old if new.get(key) is None}
    for key, value in new.items():
        before = old.get(key)
        if value is None or value is before:
            continue
        if type(value) is dict and type(before) is dict:
            below = diff(before, value)
            if below is not None:
                patch[key] = below
        elif not same(value, before):
            patch[key] = value
    return patch or None


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch body and its type. Preconditions are part of the body, because servers offer nothing else: `test` operations in a JSON
    patch (422 without causes if one fails), metadata.resourceVersion in a merge patch (409). A uid in a merge patch is a precondition
    only on the object itself, as an immutable field (422 with causes). A real server silently ignores it in a merge patch to /status:
    use a JSON patch there."""

    type: PatchType
    body: Json


def json_patch(operations: Sequence[Mapping[str, Json]]) -> Patch:
    return Patch(PatchType.JSON, [dict(operation) for operation in operations])


def merge_patch(body: Mapping[str, Json]) -> Patch:
    return Patch(PatchType.MERGE, dict(body))
