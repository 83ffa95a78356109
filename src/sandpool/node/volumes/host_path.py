"""Checks hostPath volumes: only paths that the operator allowed, and no link that leads out of them.

All functions block; call them in threads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.openat import open_path
from sandpool.node.volumes.spec import HostPath

_MOST_STEPS = 256
_KINDS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def host_path(volume: str, source: HostPath, allowed: Sequence[Path]) -> Path:
    """Returns the real path, which contains no link. Code that opens it must not follow links either, since one may be created later.
    NodeError if the path is not allowed, missing, or of another type."""
    if source.type and source.type not in _KINDS:
        raise NodeError("InvalidVolume", f"volume {volume}: {source.type!r} is no type of a hostPath")
    base, steps = _allowed(volume, source.path, allowed)
    try:
        mode = _walk(base.parts[1:], steps, source.type)
    except OSError as error:
        raise NodeError(
            "HostPathNotThere",
            f"volume {volume}: {source.path} on this machine: {error.strerror}; create it, "
            "without symbolic links on the way, or change spec.volumes[].hostPath",
        ) from error
    kind = _KINDS.get(source.type)
    if kind is not None and not kind[0](mode):
        raise NodeError("HostPathWrongType", f"volume {volume}: {source.path} on this machine is not {kind[1]}")
    return base.joinpath(*steps)


def _allowed(volume: str, path: str, allowed: Sequence[Path]) -> tuple[Path, tuple[str, ...]]:
    """Returns the real path of the allowed directory, to which the operator's own links may lead, and the path components below it. If several
    allowed directories match, the outermost counts: pods can change anything in it, including the path to an inner allowed directory."""
    asked = Path(path)
    if path.startswith("/") and "\0" not in path and ".." not in asked.parts:
        for prefix in sorted(allowed, key=lambda each: len(each.parts)):
            if asked.is_relative_to(prefix):
                real = _real(prefix, [other for other in allowed if other != prefix])
                if real is not None:
                    return real, asked.relative_to(prefix).parts
                break
    raise NodeError(
        "HostPathNotAllowed",
        f"volume {volume}: the operator of this machine does not allow pods to mount {path}; ask for it to be allowed, "
        "or use a persistentVolumeClaim",
    )


def _real(directory: Path, others: Sequence[Path]) -> Path | None:
    """The real path of an allowed directory. None if the way there goes through a link in another allowed directory, because a pod may have
    created that link."""
    changeable = [Path(os.path.realpath(other)) for other in others]
    at, left = Path("/"), list(reversed(directory.parts[1:]))
    for _ in range(_MOST_STEPS):
        if not left:
            return at
        step = left.pop()
        following = at.parent if step == ".." else at / step
        if step == ".." or not following.is_symlink():
            at = following
            continue
        if any(at.is_relative_to(each) for each in changeable):
            return None
        target = Path(os.readlink(following))
        at = Path("/") if target.is_absolute() else at
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return None


def _walk(base: Sequence[str], steps: Sequence[str], kind: str) -> int:
    """Walks from the machine's root without following links; returns the mode of the last component. Creates missing components below `base`
    if `kind` says so."""
    at = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for index, step in enumerate((*base, *steps)):
            last = index == len(base) + len(steps) - 1
            following = _step(at, step, kind if index >= len(base) else "", last)
            os.close(at)
            at = following
        return os.fstat(at).st_mode
    finally:
        os.close(at)


def _step(at: int, name: str, kind: str, last: bool) -> int:
    try:
        found = open_path(name, at)
    except FileNotFoundError:
        if kind == "DirectoryOrCreate":
            os.mkdir(name, 0o755, dir_fd=at)
        elif kind == "FileOrCreate" and last:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=at))
        else:
            raise
        found = open_path(name, at)
    if stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(0, f"{name} is a symbolic link")
    return found
