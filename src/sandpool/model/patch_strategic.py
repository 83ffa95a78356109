"""Applies strategic merge patches: merge patches that merge lists of objects by a key.

The schema's x-kubernetes-patch-strategy and x-kubernetes-patch-merge-key decide how. The directives are `$patch: replace|delete`,
`$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>` and `$retainKeys`. Only Kubernetes' own kinds accept these patches. In a merged
list, the order that the patch requests takes precedence over that of the live list. Arguments are never changed; members that the patch does
not change stay the same Python objects.

A patch may name one list element any number of times, and each time the element is merged again. That cost is counted, and bounded for
each patch, because applying one blocks the process.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import msgspec

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

encode_sorted = msgspec.json.Encoder(order="sorted").encode
DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder"
DELETE_FROM = "$deleteFromPrimitiveList"
MAX_WORK = 500_000  # values that one patch may visit or copy; a body of 50,000 values needs a fifth of that
_TEXT = 64  # bytes of an element's key that are encoded in the time of one such value
Schema = dict[str, Any]
_ABSENT: Json = object()
_FREE: Schema = {}  # below a map or a field without a schema: plain merge


class Work:
    """Counts the cost of one patch so far, in values."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = 0

    def spend(self, values: int) -> None:
        self.done += values
        if self.done > MAX_WORK:
            raise PatchTooLarge("the strategic merge patch merges too large a part of the object too often")


def in_order(wanted: list[Json], order: list[Json], merge_key: str, work: Work) -> None:
    """Refuses a patch whose list contradicts its $setElementOrder."""
    if not order or not wanted:
        return
    named = _texts([item for item in wanted if not (isinstance(item, dict) and "$patch" in item)], merge_key, work)
    places = iter(_texts(order, merge_key, work))
    for text in named:
        if all(place != text for place in places):  # continues after the place of the previous element
            raise PatchError(f"The order in patch list:\n{wanted}\n doesn't match $setElementOrder list:\n{order}\n")


def ordered(merged: list[Json], order: list[Json], live: list[Json], merge_key: str, work: Work) -> list[Json]:
    """Puts the elements that `order` names into that order. The others stay between them as in the live list, as far as possible."""
    ranks, places = _ranks(order, merge_key, work), _ranks(live, merge_key, work)
    found = [
        (ranks.get(text, -1), places.get(text, -1), item)
        for text, item in zip(_texts(merged, merge_key, work), merged, strict=True)
    ]
    named = sorted((each for each in found if each[0] >= 0), key=_rank)
    others = sorted((each for each in found if each[0] < 0), key=_place)
    result: list[Json] = []
    left, right = 0, 0
    while left < len(others) and right < len(named):
        if 0 <= _place(others[left]) < _place(named[right]):
            result.append(others[left][2])
            left += 1
        else:
            result.append(named[right][2])
            right += 1
    return [*result, *(each[2] for each in (*others[left:], *named[right:]))]


_rank, _place = itemgetter(0), itemgetter(1)


def text_of(identity: Json, work: Work) -> bytes:
    """The canonical text of an element's key: equal for equal JSON values, so that elements are found without walking the list."""
    text = encode_sorted(identity)
    work.spend(1 + len(text) // _TEXT)
    return text


def _texts(items: list[Json], merge_key: str, work: Work) -> list[bytes]:
    return [text_of(_identity(item, merge_key), work) for item in items]


def _ranks(items: list[Json], merge_key: str, work: Work) -> dict[bytes, int]:
    """The first index of each element."""
    found: dict[bytes, int] = {}
    for index, text in enumerate(_texts(items, merge_key, work)):
        found.setdefault(text, index)
    return found


def _identity(item: Json, merge_key: str) -> Json:
    if not merge_key:
        return item
    if type(item) is not dict or merge_key not in item:
        raise PatchError(f"map: {item} does not contain declared merge key: {merge_key}")
    return item[merge_key]


def apply_strategic_patch(doc: Json, patch: Json, schema: Schema) -> Json:
    if type(patch) is not dict:
        raise BadPatch(
            f"error decoding patch: json: cannot unmarshal {go_kind(patch)} into Go value of type map[string]interface {{}}"
        )
    if depth(patch) > MAX_DEPTH:
        raise PatchError(f"the patch nests deeper than {MAX_DEPTH} levels")
    return _object(doc if type(doc) is dict else {}, patch, schema, Work())


def _object(original: dict[str, Json], patch: dict[str, Json], schema: Schema, work: Work) -> dict[str, Json]:
    """Merges a patch into an object. Returns the same object if nothing changes."""
    if DIRECTIVE in patch:
        directed = _directed(patch)
        return original if same(directed, original) else directed
    work.spend(len(original) + len(patch))
    merged = original.copy()
    if RETAIN in patch:
        _retain(merged, patch)
    changed = len(merged) != len(original)
    done = {RETAIN}
    for key, order in patch.items():
        if key.startswith(ORDER):
            name = _name(key, ORDER)
            done |= {key, name}
            changed |= _reorder(merged, name, patch, order, schema, work)
    for key, wanted in patch.items():
        if key in done:
            continue
        if key.startswith(DELETE_FROM):
            changed |= _delete_from(merged, _name(key, DELETE_FROM), wanted, work)
        elif wanted is None:
            changed |= _put(merged, key, False, None)
        else:
            changed |= _member(merged, key, wanted, schema, work)
    return merged if changed else original


def _put(merged: dict[str, Json], key: str, keep: bool, value: Json) -> bool:
    """Sets a member, or removes it unless `keep`. Returns whether that changed anything; an equal value does not replace the old one."""
    if not keep:
        return merged.pop(key, _ABSENT) is not _ABSENT
    if same(value, merged.get(key, _ABSENT)):
        return False
    merged[key] = value
    return True


def _member(merged: dict[str, Json], key: str, wanted: Json, schema: Schema, work: Work) -> bool:
    current = merged.get(key)
    below = _below(schema, key)
    if type(current) is dict and type(wanted) is dict:
        if _strategy(below) == "replace":
            return _put(merged, key, True, wanted)
        return _replace(merged, key, _object(current, wanted, below, work))
    if type(current) is list and type(wanted) is list:
        return _replace(merged, key, _list(current, wanted, below, work))
    return _put(merged, key, *_plain(without_nulls(wanted)))


def _replace(merged: dict[str, Json], key: str, value: Json) -> bool:
    """Sets a member to its merged value. Returns whether that is different from before."""
    current = merged[key]
    if value is current or (type(value) is list and _same_elements(value, current)):
        return False
    merged[key] = value
    return True


def _same_elements(new: list[Json], old: list[Json]) -> bool:
    """Compares containers by identity: merged elements that did not change are the same objects, so nothing below them is visited."""
    return len(new) == len(old) and all(
        one is other or (type(one) is type(other) and type(one) not in (dict, list) and one == other)
        for one, other in zip(new, old, strict=True)
    )


def _directed(patch: dict[str, Json]) -> dict[str, Json]:
    match patch[DIRECTIVE]:
        case "replace":
            return {key: value for key, value in patch.items() if key != DIRECTIVE}
        case "delete":
            return {}
        case other:
            raise BadPatch(f"unknown patch type: {other} in map: {patch}")


def _retain(merged: dict[str, Json], patch: dict[str, Json]) -> None:
    names = patch[RETAIN]
    if type(names) is not list:
        raise BadPatch("invalid patch format of retainKeys")
    kept = {name for name in names if type(name) is str}
    for key, value in patch.items():
        directive = key == RETAIN or key.startswith((DELETE_FROM, ORDER))
        if value is not None and not directive and key not in kept:
            raise BadPatch("invalid patch format of retainKeys")
    for key in [key for key in merged if key not in kept]:
        del merged[key]


def _delete_from(merged: dict[str, Json], name: str, unwanted: Json, work: Work) -> bool:
    current = merged.get(name)
    if type(current) is not list or type(unwanted) is not list:
        return False
    gone = set(_texts(unwanted, "", work))
    kept = [item for item, text in zip(current, _texts(current, "", work), strict=True) if text not in gone]
    return _replace(merged, name, kept)


def _reorder(
    merged: dict[str, Json], name: str, patch: dict[str, Json], order: Json, schema: Schema, work: Work
) -> bool:
    """Merges a list and puts it into the order that the patch requests. Returns whether that is different from before."""
    if type(order) is not list:
        raise BadPatch("invalid patch format of setElementOrder list")
    current, wanted = merged.get(name), patch.get(name)
    for value in (current, wanted):
        if value is not None and type(value) is not list:
            raise BadPatch(f"expected a slice, but received a {go_kind(value)}")
    if current is None and wanted is None:
        return name in patch and _put(merged, name, False, None)
    below = _below(schema, name)
    merge_key = below.get("x-kubernetes-patch-merge-key", "")
    in_order(wanted or [], order, merge_key, work)
    if current is None:
        result = _plain(without_nulls(wanted))[1]
    else:
        result = current if wanted is None else _list(current, wanted, below, work)
    result = ordered(result, order, current or [], merge_key, work)
    return _put(merged, name, True, result) if current is None else _replace(merged, name, result)


def _list(current: list[Json], wanted: list[Json], schema: Schema, work: Work) -> list[Json]:
    if _strategy(schema) != "merge":
        return current if same(wanted, current) else wanted
    if not current and not wanted:
        return current
    work.spend(len(current) + len(wanted))
    kinds = {type(item) for item in (*current, *wanted)}
    if list in kinds:
        raise PatchError("lists of lists are not supported")
    if len(kinds) > 1:
        raise PatchError("list element types are not identical")
    merge_key = schema.get("x-kubernetes-patch-merge-key", "")
    if dict not in kinds:
        present = set(current)
        fresh = [item for item in wanted if item not in present]
        return ordered([*current, *dict.fromkeys(fresh)], wanted, current, "", work)
    if not merge_key:
        raise PatchError(f"cannot merge lists without merge key for {schema.get('type', 'Struct')}")
    return _list_of_objects(current, wanted, schema, merge_key, work)


def _list_of_objects(current: list[Json], wanted: list[Json], schema: Schema, merge_key: str, work: Work) -> list[Json]:
    gone: set[bytes] = set()
    plain: list[Json] = []
    replace = False
    for item in wanted:
        match item.get(DIRECTIVE):
            case None:
                plain.append(item)
            case "delete":
                gone.add(text_of(_identity(item, merge_key), work))
            case "replace":
                replace = True
            case "merge":
                raise PatchError("merging lists cannot yet be specified in the patch")
            case other:
                raise BadPatch(f"unknown patch type: {other} in map: {item}")
    if replace:
        return current if same(plain, current) else plain
    kept = (
        [old for old in current if not (merge_key in old and text_of(old[merge_key], work) in gone)]
        if gone
        else current
    )
    return ordered(_merged(kept, plain, schema.get("items", _FREE), merge_key, work), plain, kept, merge_key, work)


def _merged(kept: list[Json], plain: list[Json], schema: Schema, merge_key: str, work: Work) -> list[Json]:
    """Merges each element of the patch into the first live element with its key, or adds it."""
    result = list(kept)
    places: dict[bytes, int] = {}
    for index, old in enumerate(kept):
        if merge_key in old:
            places.setdefault(text_of(old[merge_key], work), index)
    for item in plain:
        at = places.setdefault(text_of(_identity(item, merge_key), work), len(result))
        if at == len(result):
            result.append(item)
        else:
            result[at] = _object(result[at], item, schema, work)
    return result


def _plain(value: Json) -> tuple[bool, Json]:
    """A value that has no counterpart to merge with, without elements that are only directives."""
    if type(value) is dict:
        if DIRECTIVE in value:
            return False, None
        cleaned = {}
        for key, child in value.items():
            keep, below = _plain(child)
            if keep:
                cleaned[key] = below
        return True, cleaned
    if type(value) is list:
        return True, [below for keep, below in map(_plain, value) if keep]
    return True, value


def _name(key: str, prefix: str) -> str:
    head, slash, name = key.partition("/")
    if not slash or head != prefix:
        what = "primitive list" if prefix == DELETE_FROM else "setElementOrder list"
        raise BadPatch(f"invalid patch format of {what}")
    return name


def _below(schema: Schema, key: str) -> Schema:
    properties = schema.get("properties")
    if properties is not None:
        found: Schema = properties.get(key, _FREE)
        return found
    values = schema.get("additionalProperties")
    return values if isinstance(values, dict) else _FREE


def _strategy(schema: Schema) -> str:
    strategies = str(schema.get("x-kubernetes-patch-strategy", "")).split(",")
    return next((strategy for strategy in strategies if strategy != "retainKeys"), "")
