"""The order of merged lists in a strategic merge patch: what the patch asks for, then what the live list had."""

from __future__ import annotations

import msgspec

from sandpool.model.documents import Json, PatchError, same

_encode = msgspec.json.Encoder(order="sorted").encode


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
    ranks, places = _ranks(order, merge_key), _ranks(live, merge_key)

    def rank(item: Json) -> int:
        return ranks.get(text_of(_identity(item, merge_key)), -1)

    def place(item: Json) -> int:
        return places.get(text_of(_identity(item, merge_key)), -1)

    named = sorted((item for item in merged if rank(item) >= 0), key=rank)
    others = sorted((item for item in merged if rank(item) < 0), key=place)
    result: list[Json] = []
    left, right = 0, 0
    while left < len(others) and right < len(named):
        if 0 <= place(others[left]) < place(named[right]):
            result.append(others[left])
            left += 1
        else:
            result.append(named[right])
            right += 1
    return [*result, *others[left:], *named[right:]]


def text_of(identity: Json) -> bytes:
    """Equal JSON values have equal texts, so that elements are found without walking the list."""
    return _encode(identity)


def _ranks(items: list[Json], merge_key: str) -> dict[bytes, int]:
    """Where each element stands first."""
    found: dict[bytes, int] = {}
    for index, item in enumerate(items):
        found.setdefault(text_of(_identity(item, merge_key)), index)
    return found


def _identity(item: Json, merge_key: str) -> Json:
    if not merge_key:
        return item
    if type(item) is not dict or merge_key not in item:
        raise PatchError(f"map: {item} does not contain declared merge key: {merge_key}")
    return item[merge_key]
