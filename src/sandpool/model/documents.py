"""JSON documents as Python values: equality, depth and size, and the errors of patching one."""

from __future__ import annotations

from typing import Any

Json = Any
"""A decoded JSON value: None, bool, int, float, str, list or dict with str keys."""

MAX_DEPTH = 128
"""Deeper documents are refused: every walk over a document is recursive. Kubernetes' own objects stay below 40."""


class PatchError(Exception):
    """The patch does not fit the document (422 without causes in Kubernetes)."""


class BadPatch(PatchError):
    """The patch is not a valid patch of its type (400)."""


class PatchTooLarge(PatchError):
    """Applying the patch would take more work than allowed (413)."""


def same(left: Json, right: Json) -> bool:
    """Equality of JSON values. In Python, 1, 1.0 and True are equal; in JSON they are not."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if type(left) is list:
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def depth(value: Json, limit: int = MAX_DEPTH) -> int:
    """How deep containers nest; counting stops above the limit."""
    return extent(value, limit)[0]


def extent(value: Json, limit: int = MAX_DEPTH) -> tuple[int, int]:
    """How deep containers nest, and how many values were visited to determine it."""
    if type(value) is not dict and type(value) is not list:
        return 0, 0
    level: list[Json] = [value]
    reached = seen = 0
    while level and reached <= limit:
        below: list[Json] = []
        for node in level:
            seen += len(node)
            for child in node.values() if type(node) is dict else node:
                if type(child) is dict or type(child) is list:
                    below.append(child)  # noqa: PERF401 - a comprehension would cost a call per node
        reached += 1
        level = below
    return reached, seen


def without_nulls(value: Json) -> Json:
    """The value without null members, at any depth; array elements stay. Returns the same object if there are none."""
    if type(value) is dict:
        kept = {key: without_nulls(child) for key, child in value.items() if child is not None}
        unchanged = len(kept) == len(value) and all(kept[key] is child for key, child in value.items())
        return value if unchanged else kept
    if type(value) is list:
        items = [without_nulls(child) for child in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def go_kind(value: Json) -> str:
    """What Go's decoder calls a JSON value in its errors."""
    kinds = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
    return kinds.get(type(value), "null")
