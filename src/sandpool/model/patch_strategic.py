"""Strategic merge patch: a merge patch that knows which lists are maps in disguise.

Driven by the schema's x-kubernetes-patch-strategy and x-kubernetes-patch-merge-key, with the directives `$patch: replace|delete`,
`$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>` and `$retainKeys`. Served for Kubernetes' own kinds only.
Never changes its arguments; members that the patch does not name stay the same Python objects.
"""

from __future__ import annotations

from typing import Any

from sandpool.model.documents import MAX_DEPTH, BadPatch, Json, PatchError, depth, go_kind, same, without_nulls
from sandpool.model.patch_order import in_order, ordered, text_of

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder"
DELETE_FROM = "$deleteFromPrimitiveList"

Schema = dict[str, Any]
_FREE: Schema = {}  # below a map or a field without a schema: plain merge


def apply_strategic_patch(doc: Json, patch: Json, schema: Schema) -> Json:
    if type(patch) is not dict:
        raise BadPatch(
            f"error decoding patch: json: cannot unmarshal {go_kind(patch)} into Go value of type map[string]interface {{}}"
        )
    if depth(patch) > MAX_DEPTH:
        raise PatchError(f"the patch nests deeper than {MAX_DEPTH} levels")
    return _object(doc if type(doc) is dict else {}, patch, schema)


def _object(original: dict[str, Json], patch: dict[str, Json], schema: Schema) -> dict[str, Json]:
    if DIRECTIVE in patch:
        return _directed(patch)
    merged = original.copy()
    if RETAIN in patch:
        _retain(merged, patch)
    done = {RETAIN}
    for key, order in patch.items():
        if key.startswith(ORDER):
            name = _name(key, ORDER)
            done |= {key, name}
            _reorder(merged, name, patch, order, schema)
    for key, wanted in patch.items():
        if key in done:
            continue
        if key.startswith(DELETE_FROM):
            _delete_from(merged, _name(key, DELETE_FROM), wanted)
        elif wanted is None:
            merged.pop(key, None)
        else:
            _member(merged, key, wanted, schema)
    return original if same(merged, original) else merged


def _member(merged: dict[str, Json], key: str, wanted: Json, schema: Schema) -> None:
    current = merged.get(key)
    below = _below(schema, key)
    if type(current) is dict and type(wanted) is dict:
        replace = _strategy(below) == "replace"
        merged[key] = wanted if replace else _object(current, wanted, below)
    elif type(current) is list and type(wanted) is list:
        merged[key] = _list(current, wanted, below)
    else:
        keep, value = _plain(without_nulls(wanted))
        if keep:
            merged[key] = value
        else:
            merged.pop(key, None)


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


def _delete_from(merged: dict[str, Json], name: str, unwanted: Json) -> None:
    current = merged.get(name)
    if type(current) is list and type(unwanted) is list:
        gone = {text_of(item) for item in unwanted}
        merged[name] = [item for item in current if text_of(item) not in gone]


def _reorder(merged: dict[str, Json], name: str, patch: dict[str, Json], order: Json, schema: Schema) -> None:
    """Merges a list and puts it in the order that the patch asks for."""
    if type(order) is not list:
        raise BadPatch("invalid patch format of setElementOrder list")
    current, wanted = merged.get(name), patch.get(name)
    for value in (current, wanted):
        if value is not None and type(value) is not list:
            raise BadPatch(f"expected a slice, but received a {go_kind(value)}")
    if current is None and wanted is None:
        if name in patch:
            merged.pop(name, None)
        return
    below = _below(schema, name)
    merge_key = below.get("x-kubernetes-patch-merge-key", "")
    in_order(wanted or [], order, merge_key)
    if current is None:
        result = _plain(without_nulls(wanted))[1]
    else:
        result = current if wanted is None else _list(current, wanted, below)
    merged[name] = ordered(result, order, current or [], merge_key)


def _list(current: list[Json], wanted: list[Json], schema: Schema) -> list[Json]:
    if _strategy(schema) != "merge":
        return wanted
    if not current and not wanted:
        return current
    kinds = {type(item) for item in (*current, *wanted)}
    if list in kinds:
        raise PatchError("lists of lists are not supported")
    if len(kinds) > 1:
        raise PatchError("list element types are not identical")
    merge_key = schema.get("x-kubernetes-patch-merge-key", "")
    if dict not in kinds:
        present = set(current)
        fresh = [item for item in wanted if item not in present]
        return ordered([*current, *dict.fromkeys(fresh)], wanted, current, "")
    if not merge_key:
        raise PatchError(f"cannot merge lists without merge key for {schema.get('type', 'Struct')}")
    return _list_of_objects(current, wanted, schema, merge_key)


def _list_of_objects(current: list[Json], wanted: list[Json], schema: Schema, merge_key: str) -> list[Json]:
    gone: set[bytes] = set()
    plain: list[Json] = []
    replace = False
    for item in wanted:
        match item.get(DIRECTIVE):
            case None:
                plain.append(item)
            case "delete":
                gone.add(text_of(_key(item, merge_key)))
            case "replace":
                replace = True
            case "merge":
                raise PatchError("merging lists cannot yet be specified in the patch")
            case other:
                raise BadPatch(f"unknown patch type: {other} in map: {item}")
    if replace:
        return plain
    kept = [old for old in current if not (merge_key in old and text_of(old[merge_key]) in gone)] if gone else current
    return ordered(_merged(kept, plain, schema.get("items", _FREE), merge_key), plain, kept, merge_key)


def _merged(kept: list[Json], plain: list[Json], schema: Schema, merge_key: str) -> list[Json]:
    """Each element of the patch merged into the first of its key, or added."""
    result = list(kept)
    places: dict[bytes, int] = {}
    for index, old in enumerate(kept):
        if merge_key in old:
            places.setdefault(text_of(old[merge_key]), index)
    for item in plain:
        at = places.setdefault(text_of(_key(item, merge_key)), len(result))
        if at == len(result):
            result.append(item)
        else:
            result[at] = _object(result[at], item, schema)
    return result


def _plain(value: Json) -> tuple[bool, Json]:
    """A value that meets nothing to merge with: without the elements that are only directives."""
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


def _key(item: dict[str, Json], merge_key: str) -> Json:
    if merge_key not in item:
        raise PatchError(f"map: {item} does not contain declared merge key: {merge_key}")
    return item[merge_key]


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
