"""Owners of a volume whose file system cannot map them: given, on disk, to the sandbox that mounts it."""

from __future__ import annotations

import contextlib
import os

FIRST = 0x7000_0000  # 1,879,048,192: the ranges of sandboxes, handed out by slots.py
EACH = 65536


def shifted(owner: int, base: int) -> int:
    """An id of the sandbox for an id on disk: one of the machine's counts as that of the sandbox with the same number, one of another
    sandbox as its own."""
    if owner >= FIRST:
        return base + (owner - FIRST) % EACH
    return base + owner if owner < EACH else base


def shift_owners(top: str, base: int) -> None:
    """Of everything below, following no link. What disappears meanwhile does not matter."""
    _shift(top, None, base, follow=True)
    for _, folders, files, folder in os.fwalk(top):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                _shift(name, folder, base, follow=False)


def _shift(name: str, folder: int | None, base: int, *, follow: bool) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=follow)
    uid, gid = shifted(found.st_uid, base), shifted(found.st_gid, base)
    if (uid, gid) != (found.st_uid, found.st_gid):
        os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=follow)
