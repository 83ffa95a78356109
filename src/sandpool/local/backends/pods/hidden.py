"""Bytes of files that have no name any more and are still open: no walk through folders finds them, and they fill the disk.

Looked for in what /proc says of a pod's processes: open files, files that are mapped into memory, and files that wait in the queue of a
socket. All of it blocks.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Literal

from sandpool.local.backends.pods.queued import files_on_the_way, queued, written

MOST = 100_000
"""Open files of one pod that are looked at; one with more counts as past any limit."""
TOO_MANY = 1 << 62
_DELETED = " (deleted)"
_BLOCK = 512


class _Unseen(Enum):
    UNSEEN = "unseen"


UNSEEN: Final = _Unseen.UNSEEN


@dataclass(frozen=True, slots=True)
class _Counting:
    """The mounts on which the ephemeral storage of a pod is, by their numbers, and the devices of these."""

    mounts: frozenset[int]
    devices: frozenset[int]


def hidden(pids: Iterable[int], mark: str, folder: Path) -> int:
    """`mark` is part of the path of every folder that counts, of which `folder` is one; the overlays of containers always do."""
    seen: set[tuple[int, int]] = set()
    known: dict[str, _Counting] = {}
    device = os.stat(folder).st_dev
    total = looked = 0
    everybody = list(pids)
    for pid in everybody:
        for found in _held(pid, mark, device, known):
            looked += 1
            if looked > MOST:
                return TOO_MANY
            if found is UNSEEN:
                return written(everybody)
            if found is None or not stat.S_ISREG(found.st_mode) or found.st_nlink != 0:
                continue
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * _BLOCK
    return total


def _held(
    pid: int, mark: str, device: int, known: dict[str, _Counting]
) -> Iterator[os.stat_result | Literal[_Unseen.UNSEEN] | None]:
    """What the process holds that may be one of those; None for everything else, UNSEEN for what nobody can look at."""
    process = f"/proc/{pid}"
    try:
        files = os.listdir(f"{process}/fd")
        counting = _counting(process, mark, device, known)
    except OSError:
        return  # it has ended
    for name in files:
        path = f"{process}/fd/{name}"
        if _is_socket(path):
            yield from _on_the_way(pid, name, counting)
            continue
        unnamed = _no_name(path) and _mount_of(f"{process}/fdinfo/{name}") in counting.mounts
        yield _found(path) if unnamed else None
    with contextlib.suppress(OSError):
        for path in _mapped(process):
            found = _found(path)
            yield found if found is not None and found.st_dev in counting.devices else None


def _on_the_way(pid: int, name: str, counting: _Counting) -> Iterator[os.stat_result | Literal[_Unseen.UNSEEN] | None]:
    """Files in the queue of a socket."""
    if files_on_the_way(pid, name):
        for file in queued(pid, name):
            if file is None:
                yield UNSEEN
            else:
                yield os.fstat(file) if _mount_of(f"/proc/self/fdinfo/{file}") in counting.mounts else None
    yield None


def _is_socket(path: str) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except OSError:
        return False


def _found(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _no_name(path: str) -> bool:
    try:
        return os.readlink(path).endswith(_DELETED)
    except OSError:
        return False


def _mapped(process: str) -> Iterator[str]:
    """Files in memory that have no name, those of memory file systems among them."""
    with open(f"{process}/maps", errors="replace") as file:
        for line in file:
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[5].rstrip("\n").endswith(_DELETED):
                low, _, high = fields[0].partition("-")
                yield f"{process}/map_files/{int(low, 16):x}-{int(high, 16):x}"


def _counting(process: str, mark: str, device: int, known: dict[str, _Counting]) -> _Counting:
    """Read once for each mount namespace."""
    space = os.readlink(f"{process}/ns/mnt")
    if space not in known:
        mounts, devices = set(), {device}
        with open(f"{process}/mountinfo", errors="replace") as file:
            for line in file:
                fields, _, rest = line.partition(" - ")
                number, _, numbers, root, *_ = fields.split(" ")
                if rest.startswith("overlay ") or mark in root:
                    major, _, minor = numbers.partition(":")
                    mounts.add(int(number))
                    devices.add(os.makedev(int(major), int(minor)))
        known[space] = _Counting(frozenset(mounts), frozenset(devices))
    return known[space]


def _mount_of(path: str) -> int:
    try:
        with open(path) as file:
            for line in file:
                if line.startswith("mnt_id:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return -1
