"""Says what is wrong with a JSON text in the words of Go's decoder, which are the words users of Kubernetes know.

Runs only after a faster decoder has refused the text. One pass, no recursion.
"""

from __future__ import annotations

import re
from typing import Final

END: Final = "unexpected end of JSON input"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD: Final = re.compile(r"true|false|null")


def complaint(body: bytes) -> str:
    """What is wrong; empty if nothing is (then the objection lies elsewhere, e.g. in the encoding)."""
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
