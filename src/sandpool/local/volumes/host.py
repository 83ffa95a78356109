"""Paths of this machine that pods may mount: only what the operator allowed, and nothing that a link leads out of it to.

All of it blocks; it runs in threads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from sandpool.local.errors import NodeError
from sandpool.local.volumes.spec import HostPath

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
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
    """The real path, without links. NodeError if it is not allowed, not there, or something else."""
    if source.type and source.type not in _KINDS:
        raise NodeError("InvalidVolume", f"volume {volume}: {source.type!r} is no type of a hostPath")
    base, steps = _allowed(volume, source.path, allowed)
    try:
        mode = _walk(base, steps, source.type)
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
    """The allowed folder, which may itself be reached by links, and the steps from there."""
    asked = Path(path)
    if path.startswith("/") and "\0" not in path and ".." not in asked.parts:
        for prefix in allowed:
            if asked.is_relative_to(prefix):
                return Path(os.path.realpath(prefix)), asked.relative_to(prefix).parts
    raise NodeError(
        "HostPathNotAllowed",
        f"volume {volume}: the operator of this machine does not allow pods to mount {path}; ask for it to be allowed, "
        "or use a persistentVolumeClaim",
    )


def _walk(base: Path, steps: Sequence[str], kind: str) -> int:
    """The mode of what is at the end. What may be created is."""
    at = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for index, step in enumerate(steps):
            last = index == len(steps) - 1
            following = _step(at, step, kind, last)
            os.close(at)
            at = following
        return os.fstat(at).st_mode
    finally:
        os.close(at)


def _step(at: int, name: str, kind: str, last: bool) -> int:
    try:
        found = os.open(name, _LOOK, dir_fd=at)
    except FileNotFoundError:
        if kind == "DirectoryOrCreate":
            os.mkdir(name, 0o755, dir_fd=at)
        elif kind == "FileOrCreate" and last:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=at))
        else:
            raise
        found = os.open(name, _LOOK, dir_fd=at)
    if stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(0, f"{name} is a symbolic link")
    return found
