"""How many bytes are in folders that somebody hostile has filled. Every folder is opened from the one above it, and no link followed.

It takes little memory, however many files there are, and few open files, however deep they are.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Sequence

DEEPEST = 200
TOO_DEEP = 1 << 62
"""A folder deeper than anybody needs counts as more than any limit: nobody hides there."""
MOST_LINKED = 1_000_000
"""Files with several names that are remembered; beyond, each name counts."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # what cannot be looked into must not count as nothing

_Seen = set[tuple[int, int]]


def measure(folders: Sequence[str]) -> list[tuple[int, int]]:
    """Bytes and inodes below each. Blocks count, as the disk knows them: a sparse file counts what it takes. What vanishes meanwhile is
    not counted; a file with several names counts once, in the first folder that has it."""
    seen: _Seen = set()
    return [_below(folder, seen) for folder in folders]


def _below(path: str, seen: _Seen) -> tuple[int, int]:
    try:
        top = os.open(path, _FOLDER)
    except OSError:
        return 0, 0
    total, inodes = os.fstat(top).st_blocks * _BLOCK, 1
    stack = [(top, _listed(top))]
    try:
        while stack:
            folder, names = stack[-1]
            name = next(names, None)
            if name is None:
                os.close(folder)
                stack.pop()
                continue
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode):
                if len(stack) > DEEPEST:
                    return TOO_DEEP, inodes
                inner = _entered(name, folder)
                if inner is not None:
                    stack.append((inner, _listed(inner)))
            elif found.st_nlink > 1 and _known(found, seen):
                continue
            total += found.st_blocks * _BLOCK
            inodes += 1
    except OSError as error:
        if error.errno not in _EXHAUSTED:
            raise
        return TOO_DEEP, inodes
    finally:
        for folder, names in stack:
            names.close()
            os.close(folder)
    return total, inodes


def _known(found: os.stat_result, seen: _Seen) -> bool:
    """Whether another name of the file was met before."""
    key = (found.st_dev, found.st_ino)
    if key in seen:
        return True
    if len(seen) < MOST_LINKED:
        seen.add(key)
    return False


def _entered(name: str, folder: int) -> int | None:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        return None  # it is gone, or something else by now


def _listed(folder: int) -> Generator[str, None, None]:
    """One name after the other: a folder may hold more than fits into memory."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry.name
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise  # else it was removed meanwhile
