"""Encodes commands for the daemon in the sandbox. Pure."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from typing import Any

from sandpool.sdk.values import Command

INLINE = 1 << 20
"""Bytes of stdin that are sent with the request; the rest is sent while output comes back."""


def spec_of(
    command: Command,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    spec: dict[str, Any] = {"shell": command} if isinstance(command, str) else {"argv": _words(command)}
    if cwd is not None:
        spec["cwd"] = os.fspath(cwd)
    if env:
        spec["env"] = environment(env)
    if timeout is not None:
        if not 0 < timeout < 1e9:
            raise ValueError(f"timeout is {timeout!r}; give seconds above 0, or None for no limit")
        spec["timeout"] = timeout
    return spec


def inline(data: bytes) -> str:
    return base64.b64encode(data).decode()


def shown(command: str | tuple[str, ...], limit: int = 80) -> str:
    """For messages: on one line, and shortened."""
    text = command if isinstance(command, str) else " ".join(command)
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def named(command: Command) -> str | tuple[str, ...]:
    return command if isinstance(command, str) else tuple(_words(command))


def _words(command: Iterable[str | os.PathLike[str]]) -> list[str]:
    asked: Any = command  # without a type checker it may be anything
    if isinstance(asked, bytes) or not isinstance(asked, Iterable):
        kind = type(asked).__name__
        raise TypeError(f"the command is {kind}; give text for a shell, or a list that begins with a program")
    words = []
    for at, word in enumerate(command):
        if not isinstance(word, str | os.PathLike):
            raise TypeError(f"word {at} of the command is {type(word).__name__}, not text")
        words.append(os.fspath(word))
    if not words or not words[0]:
        raise ValueError("the command is empty; give text for a shell, or a list that begins with a program")
    return words


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """A copy. TypeError for anything but strings."""
    if not isinstance(env, Mapping):
        raise TypeError(f"env is {type(env).__name__}; give a mapping of names to values, both text")
    items: Iterable[tuple[Any, Any]] = env.items()
    for name, value in items:
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError(f"the variable {name!r} in env is {type(value).__name__}; names and values must be text")
    return dict(env)
