"""Changes the owners of files in a volume to ids of the sandbox, where the file system cannot map them."""

from __future__ import annotations

import contextlib
import os
import stat

from sandpool.node.openat import DIRECTORY, open_path, set_owner

FIRST = 0x7000_0000  # 1,879,048,192: the first id of all ranges of sandboxes (IdRanges in runtime_host.py)
EACH = 65536
DEEPEST = 200  # deeper files keep their owners: descriptors are limited


def shifted(owner: int, base: int) -> int:
    """The sandbox's host id for an owner on disk. An ordinary id of the machine, or an id in another sandbox's range, becomes the id with the same
    number inside this sandbox."""
    if owner >= FIRST:
        return base + (owner - FIRST) % EACH
    return base + owner if owner < EACH else base


def shift_owners(top: int, base: int) -> None:
    """Changes the owners of an open file or directory and of everything below, without following links. Files that vanish in the meantime are
    skipped. If a file was replaced by another, the one that was opened is changed."""
    _shift(top, base)
    if stat.S_ISDIR(os.fstat(top).st_mode):
        _shift_below(top, base, DEEPEST)


def _shift_below(held_directory: int, base: int, levels: int) -> None:
    """Reads names one by one, because a directory may have more than fit into memory."""
    directory = os.open(".", DIRECTORY, dir_fd=held_directory)
    try:
        with os.scandir(directory) as entries:
            for entry in entries if levels else ():
                _shift_one(entry.name, directory, base, levels)
    finally:
        os.close(directory)


def _shift_one(name: str, directory: int, base: int, levels: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        file = open_path(name, directory)
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
