"""How many bytes are in folders that somebody hostile has filled. Every folder is opened from the one above it, and no link followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

DEEPEST = 500
TOO_DEEP = 1 << 62
"""A folder deeper than anybody needs counts as more than any limit: nobody hides there."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512


def measure(folders: Sequence[str]) -> list[int]:
    """Blocks, as the disk knows them: a sparse file counts what it takes. What vanishes meanwhile is not counted; a file with
    several names counts once, in the first folder that has it."""
    seen: set[tuple[int, int]] = set()
    return [_below(folder, seen) for folder in folders]


def _below(path: str, seen: set[tuple[int, int]]) -> int:
    try:
        top = os.open(path, _FOLDER)
    except OSError:
        return 0
    total = os.fstat(top).st_blocks * _BLOCK
    stack = [(top, _listed(top))]
    try:
        while stack:
            folder, entries = stack[-1]
            if not entries:
                os.close(folder)
                stack.pop()
                continue
            name = entries.pop()
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode):
                if len(stack) > DEEPEST:
                    return TOO_DEEP
                inner = _entered(name, folder)
                if inner is not None:
                    stack.append((inner, _listed(inner)))
            elif found.st_nlink > 1:
                if (found.st_dev, found.st_ino) in seen:
                    continue
                seen.add((found.st_dev, found.st_ino))
            total += found.st_blocks * _BLOCK
    finally:
        for folder, _ in stack:
            os.close(folder)
    return total


def _entered(name: str, folder: int) -> int | None:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        return None


def _listed(folder: int) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
