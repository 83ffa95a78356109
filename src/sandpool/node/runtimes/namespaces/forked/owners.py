"""Owners of a volume whose file system cannot map them: given, on disk, to the sandbox that mounts it."""

from __future__ import annotations

import contextlib
import os
import stat

from sandpool.node.openat import FOLDER, held, set_owner

FIRST = 0x7000_0000  # 1,879,048,192: the ranges of sandboxes, handed out by slots.py
EACH = 65536
DEEPEST = 200  # what lies deeper stays whose it is: nobody needs it, and descriptors are few


def shifted(owner: int, base: int) -> int:
    """An id of the sandbox for an id on disk: one of the machine's counts as that of the sandbox with the same number, one of another
    sandbox as its own."""
    if owner >= FIRST:
        return base + (owner - FIRST) % EACH
    return base + owner if owner < EACH else base


def shift_owners(top: int, base: int) -> None:
    """Of an open file or folder and of everything below, following no link. What disappears meanwhile does not matter; what is put in something's place is looked at as what it is."""
    _shift(top, base)
    if stat.S_ISDIR(os.fstat(top).st_mode):
        _shift_below(top, base, DEEPEST)


def _shift_below(held_folder: int, base: int, levels: int) -> None:
    """One name after the other: a folder may hold more than fits into memory."""
    folder = os.open(".", FOLDER, dir_fd=held_folder)
    try:
        with os.scandir(folder) as entries:
            for entry in entries if levels else ():
                _shift_one(entry.name, folder, base, levels)
    finally:
        os.close(folder)


def _shift_one(name: str, folder: int, base: int, levels: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        file = held(name, folder)
        try:
            _shift(file, base)
            if stat.S_ISDIR(os.fstat(file).st_mode):
                _shift_below(file, base, levels - 1)
        finally:
            os.close(file)


def _shift(file: int, base: int) -> None:
    found = os.fstat(file)
    uid, gid = shifted(found.st_uid, base), shifted(found.st_gid, base)
    if (uid, gid) != (found.st_uid, found.st_gid):
        set_owner(file, uid, gid)
