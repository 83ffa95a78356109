"""kubectl's JSONPath, compiled to functions: .a.b ['a'] ["a","b"] [0] [-1] [1:3] [0,2] [*] .* ..a [?(@.type=="Ready")].

A compiled path is called with the value to start from and with the root, which `$` refers to. It returns everything it finds, in order.
Printer columns of the API server and `-o jsonpath` of the command line both use it.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

Path = Callable[[Any, Any], list[Any]]
One = Callable[[Any], Iterator[Any]]
"""Finds the values of one step below a single value."""
Step = Callable[[list[Any]], list[Any]]
"""Applies one step to all values found so far."""

_FIELD: Final = re.compile(r"(?:[^.\[\]\s'\"{}()@$*\\]|\\.)+")
_SLICE: Final = re.compile(r"(-?\d+)?:(-?\d+)?(?::(-?\d+))?")
_FILTER: Final = re.compile(r"\s*\?\(\s*(?P<left>@[^=!<>]*?)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*)?\)\s*")
_SIGNS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JsonPathError(ValueError):
    """The text is not a path of this dialect; the message shows where."""


def parse_path(text: str) -> Path:
    """Compiles a path as users write it: the surrounding braces and the first dot are optional. Raises JsonPathError."""
    bare = text.strip()
    if bare.startswith("{"):
        if not bare.endswith("}"):
            raise JsonPathError(f"a brace is not closed in {text!r}")
        bare = bare[1:-1].strip()
    return compile_path(bare if bare.startswith((".", "[", "$", "@")) else f".{bare}")


def compile_path(text: str) -> Path:
    """Compiles a path without braces, as it appears inside a template. Raises JsonPathError."""
    rooted = text.startswith("$")
    steps = list(_steps(text.lstrip("$@") if text[:1] in ("$", "@") else text, text))

    def find(here: Any, root: Any) -> list[Any]:
        found = [root if rooted else here]
        for step in steps:
            found = step(found)
        return found

    return find


def _steps(rest: str, whole: str) -> Iterator[Step]:
    while rest:
        if rest.startswith(".."):
            yield _each(_descend)
            rest = rest[2:] if rest[2:3] == "[" else "." + rest[2:]
        elif rest.startswith(".*"):
            yield _each(_children)
            rest = rest[2:]
        elif rest == ".":
            return
        elif rest.startswith(".[") or rest.startswith("["):
            rest = rest.removeprefix(".")
            end = _bracket(rest, whole)
            yield _inside(rest[1:end].strip(), whole)
            rest = rest[end + 1 :]
        elif rest.startswith(".") and (match := _FIELD.match(rest, 1)):
            yield _each(_field(re.sub(r"\\(.)", r"\1", match[0])))
            rest = rest[match.end() :]
        else:
            raise JsonPathError(f"cannot read {whole!r} at {rest!r}")


def _bracket(text: str, whole: str) -> int:
    quote, depth = "", 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
            if depth == 0:
                return at
    raise JsonPathError(f"a bracket is not closed in {whole!r}")


def _inside(text: str, whole: str) -> Step:
    if text == "*":
        return _each(_children)
    if match := _FILTER.fullmatch(text):
        return _each(_filter(compile_path(match["left"]), match["sign"], match["right"]))
    if match := _SLICE.fullmatch(text):
        part = slice(*(None if number is None else int(number) for number in match.groups()))
        return _each(lambda value: iter(value[part]) if isinstance(value, list) else iter(()))
    parts = re.findall(r"'[^']*'|\"[^\"]*\"|-?\d+", text)
    if not parts or re.sub(r"[\s,]", "", text) != re.sub(r"\s", "", "".join(parts)):
        raise JsonPathError(f"cannot read [{text}] in {whole!r}")
    if (
        len(parts) > 1 and parts[0][0] in "'\""
    ):  # as in kubectl: in a union, each part is a path, and the first is applied to all values
        paths = [compile_path(f".{part[1:-1]}") for part in parts]
        return lambda values: [found for path in paths for value in values for found in path(value, value)]
    steps = [_field(part[1:-1]) if part[0] in "'\"" else _index(int(part)) for part in parts]
    return _each(lambda value: (found for step in steps for found in step(value)))


def _each(step: One) -> Step:
    return lambda values: [found for value in values for found in step(value)]


def _field(name: str) -> One:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(index: int) -> One:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descend(value: Any) -> Iterator[Any]:
    """The value itself, then everything below it."""
    yield value
    for child in _children(value):
        yield from _descend(child)


def _filter(left: Path, sign: str | None, right: str | None) -> One:
    wanted = None if right is None else _value(right)

    def fits(item: Any) -> bool:
        found = left(item, item)
        if sign is None or not found:
            return bool(found) and sign is None
        try:
            return bool(_SIGNS[sign](found[0], wanted))
        except TypeError:  # a string cannot be compared with a number
            return False

    return lambda value: (item for item in _children(value) if fits(item))


def _value(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        raise JsonPathError(f"{text} is neither a number nor a text in quotes") from None
