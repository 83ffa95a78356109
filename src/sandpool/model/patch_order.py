"""The order of merged lists in a strategic merge patch: what the patch asks for, then what the live list had."""

from __future__ import annotations

from sandpool.model.documents import Json, PatchError, same


def in_order(wanted: list[Json], order: list[Json], merge_key: str) -> None:
    """Refuses a patch whose list and whose $setElementOrder contradict each other."""
    if not order or not wanted:
        return
    named = [item for item in wanted if not (isinstance(item, dict) and "$patch" in item)]
    place = 0
    for item in named:
        while place < len(order) and not same(_identity(item, merge_key), _identity(order[place], merge_key)):
            place += 1
        if place == len(order):
            raise PatchError(f"The order in patch list:\n{wanted}\n doesn't match $setElementOrder list:\n{order}\n")
        place += 1


def ordered(merged: list[Json], order: list[Json], live: list[Json], merge_key: str) -> list[Json]:
    """Named elements in the order of the patch; the others between them where the live list had them, as far as possible."""
    ranks = [_identity(item, merge_key) for item in order]
    places = [_identity(item, merge_key) for item in live]
    named = [item for item in merged if _rank(ranks, _identity(item, merge_key)) >= 0]
    others = [item for item in merged if _rank(ranks, _identity(item, merge_key)) < 0]
    named.sort(key=lambda item: _rank(ranks, _identity(item, merge_key)))
    others.sort(key=lambda item: _rank(places, _identity(item, merge_key)))
    result: list[Json] = []
    left, right = 0, 0
    while left < len(others) and right < len(named):
        before = _rank(places, _identity(others[left], merge_key))
        after = _rank(places, _identity(named[right], merge_key))
        if 0 <= before < after:
            result.append(others[left])
            left += 1
        else:
            result.append(named[right])
            right += 1
    return [*result, *others[left:], *named[right:]]


def _identity(item: Json, merge_key: str) -> Json:
    if not merge_key:
        return item
    if type(item) is not dict or merge_key not in item:
        raise PatchError(f"map: {item} does not contain declared merge key: {merge_key}")
    return item[merge_key]


def _rank(items: list[Json], value: Json) -> int:
    return next((index for index, item in enumerate(items) if same(item, value)), -1)
