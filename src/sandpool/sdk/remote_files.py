"""Paths of files in a sandbox, and what the daemon's refusals about them mean. Pure."""

from __future__ import annotations

import os
from urllib.parse import quote, urlencode

from sandpool.kube.errors import Unreachable
from sandpool.sdk.errors import (
    FileDenied,
    FileError,
    FileExists,
    FileNotFound,
    FileTooLarge,
    NoSpace,
    PastTheEnd,
    RouterError,
    SandboxRestarted,
)
from sandpool.wire.codes import Code
from sandpool.wire.paths import FILES

RemotePath = str | os.PathLike[str]
"""In the sandbox. One that does not begin with a slash begins at the sandbox's home."""


def file_url(path: RemotePath, *flags: str, **values: str) -> str:
    """`flags` are parameters without a value."""
    text = os.fspath(path)
    if "\0" in text:
        raise ValueError(f"the path {text!r} holds a null character")
    relative = not text.startswith("/")
    words = [*flags, *(["relative"] if relative else [])]
    values = {name: value for name, value in values.items() if value}
    if values:
        words.append(urlencode(values, errors="surrogateescape"))
    query = "&".join(words)
    name = quote(text.lstrip("/"), errors="surrogateescape")
    return f"{FILES}/{name}" + (f"?{query}" if query else "")


def joined(directory: RemotePath, name: str) -> str:
    """ValueError for a name with path parts: callers may use the names of a listing as local file names."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a directory entry")
    text = os.fspath(directory)
    return name if text in ("", ".") else f"{text.rstrip('/')}/{name}"


def octal(mode: int | None) -> str:
    if mode is None:
        return ""
    if not 0 <= mode <= 0o777:
        raise ValueError(f"mode is {mode!r}; give permission bits such as 0o644")
    return f"{mode:04o}"


_CLASSES: dict[str, tuple[type[FileError], str]] = {
    Code.NOT_FOUND.word: (FileNotFound, "; a relative path begins at the sandbox's home"),
    Code.CONFLICT.word: (FileExists, ""),
    Code.DENIED.word: (FileDenied, "; choose a path that the sandbox's user may use, such as one below /tmp"),
    Code.NO_SPACE.word: (NoSpace, "; remove files, or use a template with a larger volume"),
    Code.RANGE.word: (PastTheEnd, ""),
    Code.TOO_LARGE.word: (NoSpace, ""),
}


def lost(error: Unreachable, sandbox: str, path: str) -> Unreachable:
    """The error with advice and its path."""
    if isinstance(error, SandboxRestarted):  # its message names the sandbox itself
        return SandboxRestarted(f"{path!r}: {error}", error.reason)
    return type(error)(f"{sandbox}: {path!r}: {error}")


def file_error(error: RouterError, path: str) -> FileError:
    kind, hint = _CLASSES.get(error.code, (FileError, ""))
    return kind(f"{error}{hint}", path)


def fits(path: str, size: int, limit: int | None) -> None:
    """Raises FileTooLarge if it does not."""
    if limit is not None and size > limit:
        raise FileTooLarge(
            f"{path!r} has more than {limit} bytes; raise `max_bytes`, read a part of it with `length`, or use "
            "`files.open`, `read_into` or `download`, which hold nothing in memory",
            path,
            limit,
        )
