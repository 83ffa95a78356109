"""Bytes of files that have no name any more and are still held: no walk through folders finds them, and they fill the disk.

Looked for in what /proc says of a pod's processes: open files, files that are mapped into memory, the program and the folder of a
process, and files that wait in the queue of a socket. What cannot be looked into is never nothing. All of it blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Literal

from sandpool.local.backends.pods.queued import files_on_the_way, queued

MOST = 100_000
"""Open files of one pod that are looked at; one with more counts as past any limit."""
MOST_MAPPED = 2_000_000
"""The same for pieces of the memory of its processes."""
TOO_MANY = 1 << 62
_DELETED = " (deleted)"
_DELETED_LINE = b" (deleted)\n"
_HELD_BESIDES = (
    "exe",
    "cwd",
    "root",
)  # a program stays on disk while it runs, mapped or not; so does a folder somebody is in
_BLOCK = 512
_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_FILES = 2
_MOST_TABLES = 8  # of one process that are compared with others
_libc = ctypes.CDLL(None, use_errno=True)


class _Unseen(Enum):
    UNSEEN = "unseen"


UNSEEN: Final = _Unseen.UNSEEN
_Seen = os.stat_result | Literal[_Unseen.UNSEEN] | None


@dataclass(frozen=True, slots=True)
class _Counting:
    """The mounts on which the ephemeral storage of a pod is, by their numbers, and the devices of these."""

    mounts: frozenset[int]
    devices: frozenset[int]


@dataclass(slots=True)
class _Budget:
    left: int


def hidden(pids: Iterable[int], mark: str, folder: Path) -> int | None:
    """`mark` is part of the path of every folder that counts, of which `folder` is one; the overlays of containers always do. None:
    something cannot be looked into, and may hold anything."""
    seen: set[tuple[int, int]] = set()
    known: dict[str, _Counting] = {}
    device = os.stat(folder).st_dev
    total = looked = 0
    mapped = _Budget(MOST_MAPPED)
    for pid in pids:
        for found in _held(pid, mark, device, known, mapped):
            looked += 1
            if looked > MOST or mapped.left < 0:
                return TOO_MANY
            if found is UNSEEN:
                return None
            if found is None or found.st_nlink != 0:
                continue
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * _BLOCK
    return total


def written(pids: Iterable[int]) -> dict[int, int]:
    """Bytes that each of these processes has written to disks so far, also in a call that is not yet at its end."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, KeyError), open(f"/proc/{pid}/io") as file:
            said = {key: int(value) for key, _, value in (line.partition(":") for line in file)}
            found[pid] = max(0, said["write_bytes"] - said["cancelled_write_bytes"])
    return found


def _held(pid: int, mark: str, device: int, known: dict[str, _Counting], mapped: _Budget) -> Iterator[_Seen]:
    """What the process holds that may be one of those; None for everything else, UNSEEN for what nobody can look at.

    By thread: each can have a table of files and a folder of its own, and the first may have ended before the others."""
    try:
        tasks = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return  # it has ended
    tables: list[int] = []
    memory = mapped.left
    for task in tasks:
        folder = f"/proc/{pid}/task/{task}"
        try:
            files = os.listdir(f"{folder}/fd")
            counting = _counting(folder, mark, device, known)
        except OSError:
            continue
        if not any(_same_files(task, other) for other in tables[:_MOST_TABLES]):
            tables.append(task)
            yield from _opened(task, folder, files, counting, leader=task == pid)
        for name in _HELD_BESIDES:
            yield _counted(f"{folder}/{name}", counting) if _no_name(f"{folder}/{name}") else None
        if memory == mapped.left:  # one for all threads, and none where one has ended
            yield from _mapped(pid, folder, counting, mapped)


def _opened(task: int, folder: str, files: Sequence[str], counting: _Counting, *, leader: bool) -> Iterator[_Seen]:
    for name in files:
        path = f"{folder}/fd/{name}"
        if _is_socket(path):
            yield from _on_the_way(task, folder, name, counting, leader=leader)
            continue
        unnamed = _no_name(path) and _mount_of(f"{folder}/fdinfo/{name}") in counting.mounts
        yield _found(path) if unnamed else None


def _on_the_way(task: int, folder: str, name: str, counting: _Counting, *, leader: bool) -> Iterator[_Seen]:
    """Files in the queue of a socket."""
    if files_on_the_way(folder, name):
        for file in queued(task, name, leader=leader):
            if file is None:
                yield UNSEEN
            else:
                yield os.fstat(file) if _mount_of(f"/proc/self/fdinfo/{file}") in counting.mounts else None
    yield None


def _same_files(task: int, other: int) -> bool:
    """Whether two threads have the same table of files. Where the kernel does not say, no."""
    return int(_libc.syscall(_KCMP.get(os.uname().machine, -1), task, other, _KCMP_FILES, 0, 0)) == 0


def _is_socket(path: str) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except OSError:
        return False


def _counted(path: str, counting: _Counting) -> os.stat_result | None:
    found = _found(path)
    return found if found is not None and found.st_dev in counting.devices else None


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


def _mapped(pid: int, folder: str, counting: _Counting, budget: _Budget) -> Iterator[_Seen]:
    """Files in memory that have no name. As bytes: the kernel ends a line with one sign, and a text has others that can be part of
    a file's name."""
    with contextlib.suppress(OSError), open(f"{folder}/maps", "rb") as file:
        for line in file:
            budget.left -= 1
            if budget.left < 0:
                break
            if line.endswith(_DELETED_LINE):
                span, _, _, numbers, _ = line.split(b" ", 4)
                major, _, minor = numbers.partition(b":")
                low, _, high = span.partition(b"-")
                found = _found(f"/proc/{pid}/map_files/{int(low, 16):x}-{int(high, 16):x}")
                if found is not None:
                    yield found if found.st_dev in counting.devices else None
                elif os.makedev(int(major, 16), int(minor, 16)) in counting.devices:
                    yield UNSEEN  # not to be had where the first thread has ended
    yield None


def _counting(process: str, mark: str, device: int, known: dict[str, _Counting]) -> _Counting:
    """Read once for each mount namespace."""
    space = os.readlink(f"{process}/ns/mnt")
    if space not in known:
        mounts, devices = set(), {device}
        with open(f"{process}/mountinfo", "rb") as file:
            for line in file:
                fields, _, rest = line.partition(b" - ")
                number, _, numbers, root, *_ = fields.split(b" ")
                if rest.startswith(b"overlay ") or mark.encode() in root:
                    major, _, minor = numbers.partition(b":")
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
