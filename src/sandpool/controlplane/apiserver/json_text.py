"""Finds what is wrong with a JSON text: syntax errors, with the messages of Go's decoder, and duplicate fields.

Users of Kubernetes know these messages. Decoding keeps the last of two equal fields, so only the text shows duplicates: one pass of the C
scanner counts them, and paths are computed only if there are any.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

END: Final = "unexpected end of JSON input"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD: Final = re.compile(r"true|false|null")
Pairs = list[tuple[str, Any]]
Place = tuple["Place", str | int] | None
"""A path, as (parent, step). It becomes text only for a duplicate: names may be megabytes long."""
MOST = 64
"""How many duplicate paths are reported."""
LONG = 256
"""Characters of a reported path; the rest of a longer one is cut."""


def complaint(body: bytes) -> str:
    """The syntax error in a text; empty if there is none (then something else is wrong, for example the encoding)."""
    text = body.decode("utf-8", "replace")
    at, expect = 0, "value"
    open_: list[str] = []
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if expect == "end":
            return "" if at == len(text) else _invalid(text, at, "after top-level value")
        if at == len(text):
            return END
        step = _step(text, at, expect, open_)
        if isinstance(step, str):
            return step
        at, expect = step


def _step(text: str, at: int, expect: str, open_: list[str]) -> tuple[int, str] | str:
    char = text[at]
    if expect == "after":
        return _after(text, at, open_)
    if expect == "colon":
        return (at + 1, "value") if char == ":" else _invalid(text, at, "after object key")
    if expect in {"key", "first key"}:
        if char == "}" and expect == "first key":
            return _close(at, open_)
        if char != '"':
            return _invalid(text, at, "looking for beginning of object key string")
        end = _string(text, at)
        return end if isinstance(end, str) else (end, "colon")
    if char == "]" and expect == "first item":
        return _close(at, open_)
    return _value(text, at, open_)


def _value(text: str, at: int, open_: list[str]) -> tuple[int, str] | str:
    char = text[at]
    if char in "{[":
        open_.append(char)
        return at + 1, "first key" if char == "{" else "first item"
    if char == '"':
        end = _string(text, at)
        return end if isinstance(end, str) else (end, "after" if open_ else "end")
    match = (_NUMBER if char in "-0123456789" else _WORD).match(text, at)
    if match is None:
        return _invalid(text, at, "looking for beginning of value")
    return match.end(), "after" if open_ else "end"


def _after(text: str, at: int, open_: list[str]) -> tuple[int, str] | str:
    inside, char = open_[-1], text[at]
    if char == ",":
        return at + 1, "key" if inside == "{" else "value"
    if char == ("}" if inside == "{" else "]"):
        return _close(at, open_)
    return _invalid(text, at, "after object key:value pair" if inside == "{" else "after array element")


def _close(at: int, open_: list[str]) -> tuple[int, str]:
    open_.pop()
    return at + 1, "after" if open_ else "end"


def _string(text: str, at: int) -> int | str:
    match = _STRING.match(text, at)
    end = match.end() if match else at
    if end == len(text):
        return END
    if text[end] == '"':
        return end + 1
    if text[end] == "\\":
        if end + 1 == len(text):
            return END
        return _invalid(text, end + 1, "in string escape code")
    return _invalid(text, end, "in string literal")


def _invalid(text: str, at: int, where: str) -> str:
    char = text[at]
    if char == "'":
        shown = "'\\''"
    elif char == '"':
        shown = "'\"'"
    elif char.isprintable():
        shown = f"'{char}'"
    else:
        shown = "'" + char.encode("unicode_escape").decode() + "'"
    return f"invalid character {shown} {where}"


def duplicate_fields(raw: bytes) -> list[str]:
    """The paths of repeated fields in the order of the text, each once, the first `MOST` of them: `spec.replicas`, `metadata.labels.a`.

    `raw` must be well-formed JSON.
    """
    twice = False

    def count(pairs: Pairs) -> None:
        nonlocal twice
        if len(pairs) > 1 and len({name for name, _ in pairs}) != len(pairs):
            twice = True

    json.loads(raw, object_pairs_hook=count)
    if not twice:
        return []
    found: dict[str, None] = {}
    _collect(json.loads(raw, object_pairs_hook=tuple), None, found)
    return list(found)


def _collect(value: Any, place: Place, found: dict[str, None]) -> None:
    """Adds the paths of duplicates below `place`. Objects are tuples of pairs here, lists are lists."""
    if len(found) >= MOST:
        return
    if type(value) is list:
        for index, item in enumerate(value):
            _collect(item, (place, index), found)
    elif type(value) is tuple:
        seen: set[str] = set()
        for name, item in value:
            here = (place, name)
            if name in seen and len(found) < MOST:
                found[_text(here)] = None
            seen.add(name)
            _collect(item, here, found)


def _text(place: Place) -> str:
    parts: list[str] = []
    while place is not None:
        place, name = place
        parts.append(f"[{name}]" if type(name) is int else f".{str(name)[:LONG]}")
    return "".join(reversed(parts)).removeprefix(".")[:LONG]
