"""What the daemon's refusals about files mean. Pure."""

from __future__ import annotations

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

_CLASSES: dict[str, tuple[type[FileError], str]] = {
    Code.NOT_FOUND.word: (FileNotFound, "; a relative path begins at the sandbox's home"),
    Code.CONFLICT.word: (FileExists, ""),
    Code.DENIED.word: (FileDenied, "; choose a path that the sandbox's user may use, such as one below /tmp"),
    Code.NO_SPACE.word: (NoSpace, "; remove files, or use a template with a larger volume"),
    Code.RANGE.word: (PastTheEnd, ""),
    Code.TOO_LARGE.word: (NoSpace, ""),
}


def lost(error: Unreachable, sandbox: str, path: str) -> Unreachable:
    """The same, and what it was about."""
    if isinstance(error, SandboxRestarted):  # which names the sandbox itself
        return SandboxRestarted(f"{path!r}: {error}", error.reason)
    return type(error)(f"{sandbox}: {path!r}: {error}")


def file_error(error: RouterError, path: str) -> FileError:
    kind, hint = _CLASSES.get(error.code, (FileError, ""))
    return kind(f"{error}{hint}", path)


def fits(path: str, size: int, limit: int | None) -> None:
    """FileTooLarge if it does not."""
    if limit is not None and size > limit:
        raise FileTooLarge(
            f"{path!r} has more than the {limit} bytes that are allowed; allow more with `max_bytes`, read a part of it with `length`, or use "
            "`files.open`, `read_into` or `download`, which hold nothing in memory",
            path,
            limit,
        )
