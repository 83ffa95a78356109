"""How full a file system is, the pressure level that follows from it, and the reserve. Decisions are pure.

The reserve is space for the API: deletes and status writes must commit even when the disk is full for everybody else. It is
held as a file (`Ballast`). `Space.free` never counts it, whether it is held at the moment or not.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from sandpool.base.preallocation import allocate

MIB = 1 << 20
LEAST_RESERVE = 64 * MIB
MOST_RESERVE = 256 * MIB
_RELAX = 1.25  # a level ends only this far beyond its threshold, so that it does not flap


class Level(IntEnum):
    """How much pressure there is on the disk."""

    OK = 0
    PRESSURE = 1  # no pod is started, and those that use the most are evicted
    FULL = 2  # nothing that grows is stored


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes and inodes available to an ordinary user. A file system without a fixed number of inodes reports 0 of 0."""

    total: int
    free: int
    inodes: int = 0
    free_inodes: int = 0


@dataclass(frozen=True, slots=True)
class Disk:
    """What is known of the file system."""

    level: Level
    space: Space
    reserve: int

    @property
    def message(self) -> str:
        """For people; empty while there is nothing to report. Without numbers, so that it is logged once and not again for every change."""
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


def file_system_space(path: Path) -> Space:
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


class Ballast:
    """The file at `path` that holds the reserve. It survives this process."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size

    @property
    def held(self) -> int:
        try:
            return min(self._size, self._path.stat().st_blocks * 512)
        except OSError:
            return 0

    @property
    def missing(self) -> int:
        return self._size - self.held

    def hold(self) -> bool:
        """Allocates what is missing, if there is space. Whether the whole reserve is held."""
        if self._size <= 0:
            self.release()
            return True
        held = self.held
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            if os.fstat(file).st_size > self._size:
                os.ftruncate(file, self._size)
            allocate(file, 0, self._size, beyond_end=False)
        except OSError:  # no space, or no fallocate on this file system: then only the thresholds keep the space free
            with contextlib.suppress(OSError):
                os.ftruncate(file, held)
            return False
        finally:
            os.close(file)
        return True

    def release(self, size: int | None = None) -> None:
        """Frees so many bytes of the reserve, or all of it."""
        left = 0 if size is None else max(0, self.held - size)
        with contextlib.suppress(OSError):
            if left:
                os.truncate(self._path, left)
            else:
                self._path.unlink()
