"""Converts request bodies from YAML to JSON. Only YAML's JSON subset: no anchors (they can expand exponentially), tags or dates; string keys."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # a build without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


DEEPEST = 200
MOST_VALUES = 10_000


class YamlError(Exception):
    """The body is not YAML that can be converted to JSON; the message says why."""


class _JsonLoader(_Loader):
    """Loads only JSON's types: dates and everything else stay strings."""


def _without_colon(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """Makes base-60 numbers (1:30) strings, as in Go: Python needs a minute to parse one of a megabyte."""
    return re.compile("(?![^:]*:)" + pattern.pattern, pattern.flags)


_JsonLoader.yaml_implicit_resolvers = {
    first: [
        (tag, _without_colon(pattern))
        for tag, pattern in resolvers
        if tag not in {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge"}
    ]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def from_yaml(body: bytes) -> bytes:
    try:
        _check_events(body)
        value = yaml.load(body, Loader=_JsonLoader)  # noqa: S506 - a safe loader, made stricter
        return msgspec.json.encode(_text_keys(value))
    except yaml.YAMLError as error:
        raise YamlError(f"yaml: {_problem(error)}") from None
    except (RecursionError, TypeError, ValueError, UnicodeDecodeError) as error:
        raise YamlError(f"yaml: {error}") from None


def _check_events(body: bytes) -> None:
    """Refuses documents that would expand or take the parser seconds, before anything is built (the parser is quadratic in
    the depth and in the number of directives, and slow for every value)."""
    if body.startswith(b"%") or b"\n%" in body or b"\r%" in body:
        raise YamlError("yaml: directives are not accepted")
    depth = 0
    for count, event in enumerate(yaml.parse(body, Loader=_Loader)):
        if isinstance(event, yaml.AliasEvent):
            raise YamlError("yaml: aliases are not accepted")
        if getattr(event, "tag", None) is not None:
            raise YamlError("yaml: tags are not accepted")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST or count > MOST_VALUES:
            raise YamlError("yaml: nested too deeply" if depth > DEEPEST else "yaml: too many values, send JSON")


def _text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _as_text(key): _text_keys(sub) for key, sub in value.items()}
    if isinstance(value, list):
        return [_text_keys(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise YamlError(f"yaml: a value of type {type(value).__name__} has no place in JSON")


def _as_text(key: Any) -> str:
    if key is None or isinstance(key, bool | int | float):
        return msgspec.json.encode(key).decode()
    raise YamlError("yaml: a key that is not text has no place in JSON")


def _problem(error: yaml.YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "malformed"
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
