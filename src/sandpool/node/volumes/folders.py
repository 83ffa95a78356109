"""Folders opened step by step, never through a symbolic link: what a sandbox put there cannot lead us elsewhere.

All of it blocks; it runs in threads. Errors are OSError.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sandpool.node.openat import FOLDER

PRIVATE = 0o700
MEASURED_DEPTH = 100
TOO_DEEP = 1 << 62
"""A folder deeper than anybody needs counts as more than any limit: nobody hides there."""


@contextlib.contextmanager
def opened(path: Path | str, within: int | None = None) -> Iterator[int]:
    """A descriptor of a folder. Within another one, `path` is one name."""
    descriptor = os.open(path, FOLDER, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def private(path: Path) -> None:
    """A folder of our own that nobody else may enter; its parents are made, too. What is open to others inside of it (files
    that a sandbox made, for whichever user) is out of reach for everybody else of this machine."""
    path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{path} is not a folder of ours")
    if stat.S_IMODE(found.st_mode) != PRIVATE:
        path.chmod(PRIVATE)


def make(name: str, within: int, mode: int) -> None:
    """A folder with exactly this mode, whatever the umask. One that is there is left as it is."""
    try:
        os.mkdir(name, PRIVATE, dir_fd=within)
    except FileExistsError:
        with opened(name, within):
            return
    with opened(name, within) as made:
        os.fchmod(made, mode)


def used(path: Path) -> int:
    """Bytes on disk. What vanishes meanwhile is not counted; a file with several names counts once; folders too deep to be measured
    count as more than any limit."""
    seen: set[tuple[int, int]] = set()
    with opened(path) as top:
        return _used(top, 0, seen)


def _used(folder: int, depth: int, seen: set[tuple[int, int]]) -> int:
    if depth > MEASURED_DEPTH:
        return TOO_DEEP
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    with opened(entry.name, folder) as inner:
                        total += _used(inner, depth + 1, seen)
                elif found.st_nlink > 1:
                    if (found.st_dev, found.st_ino) in seen:
                        continue
                    seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total
