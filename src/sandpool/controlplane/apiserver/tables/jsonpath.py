"""The JSONPath dialect of additionalPrinterColumns, compiled once: .a.b, ['a'], [0], [-1], [*], [?(@.type=='Ready')]."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

Step = Callable[[Any], Iterator[Any]]

_TOKEN: Final = re.compile(
    r"""
      \.(?P<field>(?:[^.\[\]'\\]|\\.)+)
    | \['(?P<quoted>(?:[^'\\]|\\.)*)'\]
    | \[(?P<index>-?\d+)\]
    | (?P<all>\[\*\]|\.\*)
    | \[\?\(@(?P<filter>(?:\.[A-Za-z0-9_-]+)+)\s*(?P<op>==|!=)\s*(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<bare>[^\s)]+))\)\]
    """,
    re.VERBOSE,
)


class PathError(ValueError):
    """Not a path of this dialect."""


@lru_cache(maxsize=512)
def compile_path(path: str) -> Callable[[Any], list[Any]]:
    """A function from a document to everything that the path finds in it, in order."""
    steps: list[Step] = []
    at = 0
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise PathError(f"cannot read {path!r} from character {at + 1}")
        steps.append(_step(match))
        at = match.end()

    def find(document: Any) -> list[Any]:
        found = [document]
        for step in steps:
            found = [value for item in found for value in step(item)]
        return found

    return find


def _step(match: re.Match[str]) -> Step:
    groups = match.groupdict()
    if groups["all"]:
        return _everything
    if groups["index"] is not None:
        return _at(int(groups["index"]))
    if groups["filter"] is not None:
        wanted = next(groups[name] for name in ("single", "double", "bare") if groups[name] is not None)
        return _where(groups["filter"], wanted, groups["op"] == "==")
    name = groups["field"] if groups["field"] is not None else groups["quoted"]
    return _field(re.sub(r"\\(.)", r"\1", name))


def _field(name: str) -> Step:
    def step(item: Any) -> Iterator[Any]:
        if isinstance(item, dict) and item.get(name) is not None:
            yield item[name]

    return step


def _at(index: int) -> Step:
    def step(item: Any) -> Iterator[Any]:
        if isinstance(item, list) and -len(item) <= index < len(item):
            yield item[index]

    return step


def _everything(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, list):
        yield from item


def _where(path: str, wanted: str, equal: bool) -> Step:
    find = compile_path(path)

    def step(item: Any) -> Iterator[Any]:
        if isinstance(item, list):
            for element in item:
                found = find(element)
                if found and (_text(found[0]) == wanted) == equal:
                    yield element

    return step


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
