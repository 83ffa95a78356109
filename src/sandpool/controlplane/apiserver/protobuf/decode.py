"""Protobuf messages into the JSON that the same Go object would have been.

A field's type is a letter: s text, b boolean, i integer, y bytes, q quantity, t time, u time with microseconds, o integer or
text, r raw JSON, l named list of text, `m:name` message; `[` before it is a list, `{` a map with text keys, `?` leaves zero
values out; the name `=` puts the fields of a message into its parent.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.protobuf.wire import Budget, Value, WireError, fields, signed, varint

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
DEEPEST: Final = 64
MOST_FIELDS: Final = 50_000

Json = dict[str, Any]


@cache
def _table() -> dict[str, dict[int, tuple[str, bool, str]]]:
    """By message and field number: JSON name, whether zero is left out, type."""
    raw = msgspec.json.decode(files("sandpool.controlplane.apiserver.protobuf").joinpath("fields.json").read_bytes())
    return {name: {int(number): _entry(text) for number, text in entries.items()} for name, entries in raw.items()}


def _entry(text: str) -> tuple[str, bool, str]:
    name, _, kind = text.partition(" ")
    return name, kind.startswith("?"), kind.removeprefix("?")


def from_protobuf(body: bytes) -> Json:
    """The object in an envelope of Kubernetes' protobuf; WireError if it is none, or of a kind that is not known."""
    if not body.startswith(MAGIC):
        raise WireError("the body does not begin as Kubernetes' protobuf does")
    version = kind = ""
    raw = b""
    budget = Budget(MOST_FIELDS)
    for number, value in fields(body[len(MAGIC) :], budget):
        if number == 1 and isinstance(value, bytes):
            about = {n: v.decode() for n, v in fields(value, budget) if isinstance(v, bytes)}
            version, kind = about.get(1, ""), about.get(2, "")
        elif number == 2 and isinstance(value, bytes):
            raw = value
        elif number in (3, 4) and value:
            raise WireError("an encoding within the envelope is not known")
    return {"apiVersion": version, "kind": kind, **message(message_name(version, kind), raw, 0, budget)}


def message_name(version: str, kind: str) -> str:
    group = version.rpartition("/")[0]
    name = f"{group.partition('.')[0] or 'core'}.{kind}"
    if kind == "DeleteOptions":
        name = "meta.DeleteOptions"
    if name not in _table():
        raise WireError(f'no kind "{kind}" is known for version "{version}" in protobuf; send JSON')
    return name


def message(name: str, data: bytes, depth: int, budget: Budget) -> Json:
    if depth > DEEPEST:
        raise WireError("nested too deeply")
    known = _table()[name]
    out: Json = {}
    for number, value in fields(data, budget):
        entry = known.get(number)
        if entry is None:
            continue
        json_name, droppable, kind = entry
        if json_name == "=":
            out.update(message(kind[2:], _bytes(value), depth + 1, budget))
        elif kind[0] == "[":
            out.setdefault(json_name, []).extend(_elements(kind[1:], value, depth, budget))
        elif kind[0] == "{":
            key, element = _map_entry(kind[1:], _bytes(value), depth, budget)
            out.setdefault(json_name, {})[key] = element
        else:
            made = _value(kind, value, depth, budget)
            if made is not None and not (droppable and not made):
                out[json_name] = made
    return out


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise WireError("a number where text or a message belongs")
    return value


def _elements(kind: str, value: Value, depth: int, budget: Budget) -> list[Any]:
    if kind in "ib" and isinstance(value, bytes):  # several numbers packed into one field
        found, at = [], 0
        while at < len(value):
            budget.spend()
            number, at = varint(value, at)
            found.append(_value(kind, number, depth, budget))
        return found
    return [_value(kind, value, depth, budget)]


def _map_entry(kind: str, data: bytes, depth: int, budget: Budget) -> tuple[str, Any]:
    parts = dict(fields(data, budget))
    key = _bytes(parts.get(1, b"")).decode()
    empty: Value = 0 if kind in "ib" else b""
    return key, _value(kind, parts.get(2, empty), depth, budget)


def _value(kind: str, value: Value, depth: int, budget: Budget) -> Any:
    if kind.startswith("m:"):
        return message(kind[2:], _bytes(value), depth + 1, budget)
    return _LEAVES[kind](value, budget)


def _integer(value: Value, budget: Budget) -> int:
    if not isinstance(value, int):
        raise WireError("text where a number belongs")
    return signed(value)


def _time(value: Value, budget: Budget) -> str | None:
    parts = _parts(value, budget)
    seconds, nanos = _integer(parts.get(1, 0), budget), _integer(parts.get(2, 0), budget)
    return _moment(seconds, 0).removesuffix(".000000Z") + "Z" if seconds or nanos else None


def _micro_time(value: Value, budget: Budget) -> str | None:
    parts = _parts(value, budget)
    seconds, nanos = _integer(parts.get(1, 0), budget), _integer(parts.get(2, 0), budget)
    return _moment(seconds, nanos // 1000) if seconds or nanos else None


def _moment(seconds: int, micros: int) -> str:
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds, microseconds=micros)
    except OverflowError:
        raise WireError("a time beyond all calendars") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _int_or_text(value: Value, budget: Budget) -> int | str:
    parts = _parts(value, budget)
    return _bytes(parts.get(3, b"")).decode() if parts.get(1) else _integer(parts.get(2, 0), budget)


def _quantity(value: Value, budget: Budget) -> str:
    return _bytes(_parts(value, budget).get(1, b"")).decode() or "0"


def _raw(value: Value, budget: Budget) -> Any:
    content = _bytes(_parts(value, budget).get(1, b""))
    return msgspec.json.decode(content) if content else None


def _parts(value: Value, budget: Budget) -> dict[int, Value]:
    return dict(fields(_bytes(value), budget))


_LEAVES: Final[dict[str, Callable[[Value, Budget], Any]]] = {
    "s": lambda value, budget: _bytes(value).decode(),
    "b": lambda value, budget: bool(_integer(value, budget)),
    "i": _integer,
    "y": lambda value, budget: base64.b64encode(_bytes(value)).decode(),
    "q": _quantity,
    "t": _time,
    "u": _micro_time,
    "o": _int_or_text,
    "r": _raw,
    "l": lambda value, budget: [_bytes(item).decode() for _, item in fields(_bytes(value), budget)],
}
