"""Estimates how much kernel memory the listings of a process's open directories take. Blocks.

The size of a directory on disk tells how many names it has, but not of a directory of an image to which little was added. So some of the open
directories are listed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

MOST_READ = 4096  # open files of one process that are looked at; of more, every second, third and so on
ORDINARY = 3  # open directories of a process that are not worth a look, if they are small
SAMPLE, MOST_NAMES = 32, 100_000  # directories that are listed, and names of each
NAME_BYTES, ENTRY_BYTES = 512, 72  # kernel memory of a long name, and of any without the name
_BYTES_ON_DISK = 256  # of a long name. Short ones take less of both


def listing_bytes(pid: int, proc: str = "/proc") -> int:
    """OSError if the process has ended."""
    directory = f"{proc}/{pid}/fd"
    names = os.listdir(directory)
    step = max(1, -(-len(names) // MOST_READ))
    found: dict[str, os.stat_result] = {}
    for name in names[::step]:
        try:
            seen = os.stat(f"{directory}/{name}")
        except OSError:
            continue
        if stat.S_ISDIR(seen.st_mode):
            found[f"{directory}/{name}"] = seen
    by_size = sum(estimate(each.st_size) for each in found.values())
    by_names = listed_bytes(list(found), found) if len(found) > ORDINARY else 0
    return max(by_size, by_names) * step


def estimate(size: int) -> int:
    """Bytes for one open directory, by its size. A tmpfs and btrfs have other sizes; there, the names count."""
    return 0 if size <= 4096 else size // _BYTES_ON_DISK * NAME_BYTES


def listed_bytes(paths: Sequence[str], found: dict[str, os.stat_result]) -> int:
    """Bytes for all of these, by the names in some of them. The same directory is listed once."""
    sample = paths[:: max(1, -(-len(paths) // SAMPLE))]
    known: dict[tuple[int, int], int] = {}
    for path in sample:
        key = found[path].st_dev, found[path].st_ino
        if key not in known:
            known[key] = _names_bytes(path)
    return sum(known[found[path].st_dev, found[path].st_ino] for path in sample) * len(paths) // len(sample)


def _names_bytes(path: str) -> int:
    total = 0
    try:
        with os.scandir(path) as entries:
            for number, entry in enumerate(entries):
                total += ENTRY_BYTES + len(os.fsencode(entry.name))
                if number >= MOST_NAMES:
                    break
    except OSError:
        pass  # it has ended, or nobody may list it
    return total
