"""Estimates how much kernel memory the listings of a process's open directories take. Blocks."""

from __future__ import annotations

import os
import stat

MOST_READ = 4096  # open files of one process that are looked at; of more, every second, third and so on
NAME_BYTES = 512  # kernel memory of a long name
_BYTES_ON_DISK = 256  # of a long name. Short ones take less of both
_BYTES_IN_TMPFS = 20  # what a directory of a tmpfs says of each name; it has no blocks


def listing_bytes(pid: int, proc: str = "/proc") -> int:
    """OSError if the process has ended."""
    directory = f"{proc}/{pid}/fd"
    names = os.listdir(directory)
    step = max(1, -(-len(names) // MOST_READ))
    found = 0
    for name in names[::step]:
        try:
            seen = os.stat(f"{directory}/{name}")
        except OSError:
            continue
        if stat.S_ISDIR(seen.st_mode):
            found += estimate(seen.st_size, seen.st_blocks)
    return found * step


def estimate(size: int, blocks: int) -> int:
    """Bytes for one open directory, by its size."""
    if size <= 4096 and blocks:
        return 0  # an ordinary one
    return size // (_BYTES_ON_DISK if blocks else _BYTES_IN_TMPFS) * NAME_BYTES
