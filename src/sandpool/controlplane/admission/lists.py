"""Lists that are sets or maps: no two items may be the same, or have the same keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.dialect import Schema
from sandpool.controlplane.admission.findings import Findings
from sandpool.controlplane.admission.paths import Place, render

Unique: TypeAlias = Callable[[list[Any], Place, str | int, Findings], None]

_encode = msgspec.json.Encoder(order="sorted").encode


def unique_items(schema: Schema) -> Unique | None:
    """What checks a list of this schema; None where duplicates are allowed."""
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return _set
    if kind == "map":
        return _map(tuple(schema.get("x-kubernetes-list-map-keys", ())))
    return None


def _set(items: list[Any], place: Place, step: str | int, out: Findings) -> None:
    _report(items, items, place, step, out)


def _map(keys: tuple[str, ...]) -> Unique:
    def check(items: list[Any], place: Place, step: str | int, out: Findings) -> None:
        for index, item in enumerate(items):
            if type(item) is not dict:
                if item is not None:
                    detail = "must be an object for an array of list-type map"
                    out.causes.append(causes.invalid(render(((place, step), index)), item, detail))
                return
        if len(items) < 2:
            return
        if len(keys) == 1:
            names = [item.get(keys[0]) for item in items]
            if set(map(type, names)) == {str} and len(set(names)) == len(names):
                return
        _report(items, [{key: item[key] for key in keys if key in item} for item in items], place, step, out)

    return check


def _report(items: list[Any], identities: list[Any], place: Place, step: str | int, out: Findings) -> None:
    """The second appearance is told, further ones are not."""
    seen: dict[bytes, int] = {}
    for index, identity in enumerate(identities):
        text = _encode(identity)
        times = seen.get(text, 0)
        if times == 1:
            out.causes.append(causes.duplicate(render(((place, step), index)), msgspec.Raw(text)))
        seen[text] = times + 1
