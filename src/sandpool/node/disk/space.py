"""How full a file system is, and what follows from that. Pure, but for `look`.

The reserve is room that belongs to the API: deletes and status writes must commit on a disk that is full for everybody else. It is
held as a file (ballast.py). `Space.free` never counts it, whether it is held at the moment or not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

MIB = 1 << 20
LEAST_RESERVE = 64 * MIB
MOST_RESERVE = 256 * MIB
_RELAX = 1.25  # beyond a threshold by so much before it counts as left behind: nothing flaps


class Level(IntEnum):
    OK = 0
    PRESSURE = 1  # no pod is started, and those that use the most are evicted
    FULL = 2  # nothing that grows is stored


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes and inodes that an ordinary user may still take. A file system without a number of inodes says 0 of both."""

    total: int
    free: int
    inodes: int = 0
    free_inodes: int = 0


@dataclass(frozen=True, slots=True)
class Disk:
    """What is known of the file system, for those who tell of it."""

    level: Level
    space: Space
    reserve: int

    @property
    def words(self) -> str:
        """For people: empty while there is nothing to say. No numbers: whoever writes this down writes it once."""
        what = "inodes" if self.short_of_inodes else "room"
        match self.level:
            case Level.FULL:
                return f"disk full: the file system of the data directory has no {what} left but its reserve"
            case Level.PRESSURE:
                return f"disk pressure: the file system of the data directory has little {what} left"
        return ""

    @property
    def short_of_inodes(self) -> bool:
        return self.space.free >= self.reserve and self.level is not Level.OK


def look(path: Path) -> Space:
    found = os.statvfs(path)
    return Space(
        found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail or found.f_ffree
    )


def beyond(space: Space, missing: int) -> Space:
    """The space without the part of the reserve that is not held."""
    return replace(space, free=max(0, space.free - missing)) if missing > 0 else space


def standard_reserve(total: int) -> int:
    """1 % of the file system, at least 256 MiB and at most 1 GiB, but never more than a twentieth of it."""
    return min(max(total // 100, LEAST_RESERVE), MOST_RESERVE, total // 20)


def level(space: Space, reserve: int, before: Level) -> Level:
    """Below one reserve of free space there is pressure, below an eighth of it the disk is full. The same for inodes, of which 1 % and
    0.1 % count."""
    return max(
        _one(space.free, reserve, reserve // 8, before),
        _one(space.free_inodes, space.inodes // 100, space.inodes // 1000, before),
    )


def _one(free: int, pressure: int, full: int, before: Level) -> Level:
    if free < (full * _RELAX if before is Level.FULL else full):
        return Level.FULL
    if free < (pressure * _RELAX if before is not Level.OK else pressure):
        return Level.PRESSURE
    return Level.OK
