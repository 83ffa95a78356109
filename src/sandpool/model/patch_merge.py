"""JSON merge patch (RFC 7386), applied and made. Where nothing differs, the very same value comes back."""

from __future__ import annotations

from sandpool.model.documents import MAX_DEPTH, BadPatch, Json, PatchError, depth, go_kind, same, without_nulls


def apply_merge_patch(doc: Json, patch: Json) -> Json:
    """The document as the patch wants it: members of objects are merged, null removes, everything else replaces."""
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
            # An object replaced by an array is taken as it comes: the Go library does not look for nulls in it.
            value = wanted if type(current) is dict else without_nulls(wanted)
            unchanged = key in doc and same(value, current)
        if not unchanged:
            merged = doc.copy() if merged is doc else merged
            merged[key] = value
    return merged


def diff(old: Json, new: Json) -> dict[str, Json] | None:
    """The smallest merge patch that turns one object into the other; None if they are equal.

    A member that is null in `new` counts as absent: a merge patch cannot say anything else.
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
