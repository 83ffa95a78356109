"""kubectl's JSONPath templates: text with expressions in braces, `{.items[*].metadata.name}`, `{range .items[*]}…{end}`, `{"\\n"}`.

A missing field is empty. Several values are separated by spaces; objects and lists are shown as JSON.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sandpool.model.jsonpath import JsonPathError, Path, compile_path, parse_path


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    path: Path


@dataclass(frozen=True, slots=True)
class Range:
    path: Path
    body: tuple[Node, ...]


Node = Text | Found | Range
Template = Callable[[Any], str]


def template(text: str) -> Template:
    """What `-o jsonpath=TEXT` means; braces may be left out around a single path. Raises JsonPathError."""
    whole = text if "{" in text else "{" + (text if text.startswith((".", "[", "$", "@")) else f".{text}") + "}"
    nodes = _parse(whole)
    return lambda document: "".join(_shown(nodes, document, document))


def find(text: str, document: Any) -> list[Any]:
    """The values of a single path; braces may be left out. Raises JsonPathError."""
    return parse_path(text)(document, document)


def _parse(text: str) -> tuple[Node, ...]:
    """One pass; `stack` holds what is open, the innermost `range` last."""
    stack: list[tuple[Path | None, list[Node]]] = [(None, [])]
    for literal, expression in _pieces(text):
        if literal:
            stack[-1][1].append(Text(literal))
        if expression is None:
            continue
        if expression == "end":
            path, body = stack.pop()
            if path is None:
                raise JsonPathError("{end} without {range}")
            stack[-1][1].append(Range(path, tuple(body)))
        elif expression.startswith("range "):
            stack.append((compile_path(expression.removeprefix("range ").strip()), []))
        else:
            stack[-1][1].extend(_expression(expression))
    if len(stack) > 1:
        raise JsonPathError("{range} without {end}")
    return tuple(stack[0][1])


def _pieces(text: str) -> Iterator[tuple[str, str | None]]:
    """Literal text, and the expression in braces that follows it (None at the end). Quotes may hold braces."""
    at = 0
    while (start := text.find("{", at)) >= 0:
        end = _closing(text, start)
        yield text[at:start], text[start + 1 : end].strip()
        at = end + 1
    yield text[at:], None


def _closing(text: str, start: int) -> int:
    quote = ""
    escaped = False
    for at in range(start + 1, len(text)):
        character = text[at]
        if quote:
            if character == quote and not escaped:
                quote = ""
            escaped = character == "\\" and not escaped
        elif character in "'\"":
            quote, escaped = character, False
        elif character == "}":
            return at
    raise JsonPathError(f"a brace is not closed after {text[start : start + 20]!r}")


def _expression(text: str) -> Iterator[Node]:
    if text[:1] in ("'", '"'):
        yield Text(_literal(text))
    else:
        yield Found(compile_path(text))


def _literal(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise JsonPathError(f"{text} is not a quoted text") from None
    return str(value)


def _shown(nodes: Sequence[Node], here: Any, root: Any) -> Iterator[str]:
    for node in nodes:
        match node:
            case Text(text):
                yield text
            case Found(path):
                yield " ".join(as_text(value) for value in path(here, root))
            case Range(path, body):
                for value in path(here, root):
                    yield from _shown(body, value, root)


def as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
