"""Parses and checks the JSON that says what to run. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandpool.wire.codes import Code, Refused

_KNOWN = {"argv", "shell", "env", "cwd", "timeout", "terminal", "stdin", "detach", "keep"}
MOST_KEPT = 64 << 20


@dataclass(frozen=True, slots=True)
class Size:
    cols: int
    rows: int


@dataclass(frozen=True, slots=True)
class Spec:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # on top of boxd's own
    cwd: str = ""
    timeout: float | None = None
    terminal: Size | None = None
    stdin: bytes | None = None  # the whole input; None: no input, unless `feeds`
    feeds: bool = False  # stdin stays open for later input
    detach: bool = False  # it outlives the request that started it
    keep: int = 1 << 20  # bytes of output kept for later readers


def read(value: Mapping[str, Any]) -> Spec:
    unknown = sorted(set(value) - _KNOWN)
    if unknown:
        raise Refused(Code.INVALID, f"unknown fields: {', '.join(unknown)}; known are {', '.join(sorted(_KNOWN))}")
    stdin, feeds = _stdin(value.get("stdin"))
    detach = value.get("detach", False)
    if not isinstance(detach, bool):
        raise _wrong("detach", "true or false")
    return Spec(
        _argv(value),
        _env(value.get("env") or {}),
        _text("cwd", value.get("cwd") or ""),
        _timeout(value.get("timeout")),
        size("terminal", value["terminal"]) if value.get("terminal") is not None else None,
        stdin,
        feeds,
        detach,
        _whole("keep", value.get("keep", 1 << 20), MOST_KEPT),
    )


def size(name: str, value: Any) -> Size:
    if not isinstance(value, dict):
        raise _wrong(name, "an object with cols and rows")
    return Size(
        _whole(f"{name}.cols", value.get("cols", 80), 65_535), _whole(f"{name}.rows", value.get("rows", 24), 65_535)
    )


def _argv(value: Mapping[str, Any]) -> tuple[str, ...]:
    argv, shell = value.get("argv"), value.get("shell")
    if (argv is None) == (shell is None):
        raise Refused(Code.INVALID, "give either argv, a list that is run as it is, or shell, a string for /bin/sh")
    if shell is not None:
        return ("/bin/sh", "-c", _text("shell", shell))
    if not isinstance(argv, list) or not argv:
        raise _wrong("argv", "a list of strings with at least one item")
    return tuple(_text(f"argv[{at}]", word) for at, word in enumerate(argv))


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong("env", "an object with string values")
    for name in value:
        if not name or "=" in name:
            raise Refused(Code.INVALID, f"the name {name!r} in env is empty or contains an equals sign")
    return {_text("env", name): _text(f"env.{name}", text) for name, text in value.items()}


def _stdin(value: Any) -> tuple[bytes | None, bool]:
    if value is None or value is False:
        return None, False
    if value is True:
        return None, True
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True), False
        except binascii.Error:
            pass
    raise _wrong("stdin", "true, false, or the whole input as base64")


def _timeout(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise _wrong("timeout", "a number of seconds above 0")
    return float(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise _wrong(name, "a string without null characters")
    return value


def _whole(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
        raise _wrong(name, f"a whole number between 1 and {most}")
    return value


def _wrong(name: str, wanted: str) -> Refused:
    return Refused(Code.INVALID, f"{name} must be {wanted}")
