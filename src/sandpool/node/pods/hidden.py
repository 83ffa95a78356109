"""Counts the bytes of deleted files that processes still hold: no walk of directories finds them, and they fill the disk.

They are found in /proc, among what a pod's processes have: open files, mapped files, the program and working directory, and files that
wait in the queue of a socket. What cannot be inspected never counts as nothing. A file that came from another container or pod
counts where it is held, because nobody else can see it. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Final, Literal

from sandpool.node.pods.queued import files_in_flight, queued
from sandpool.node.volumes.directories import in_memory

MOST = 100_000
"""Open files of one pod that are inspected; a pod with more counts as above any limit."""
MOST_MAPPED = 2_000_000
"""The same for lines of the memory maps of its processes."""
TOO_MANY = 1 << 62
_DELETED = " (deleted)"
_DELETED_LINE = b" (deleted)\n"
_HELD_BESIDES = (
    "exe",
    "cwd",
    "root",
)  # a program stays on disk while it runs, mapped or not; so does the working directory of a process
_PATHS = ("/", "(unreachable)")  # sockets, pipes and the like have other names in /proc
_WATCHES = "anon_inode:inotify"
_MINOR_BITS = 20  # as in the kernel's internal dev_t
_BLOCK = 512
_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_FILES = 2
_MOST_TABLES = 8  # file tables of one process that are compared
_libc = ctypes.CDLL(None, use_errno=True)


class _Unseen(Enum):
    UNSEEN = "unseen"


UNSEEN: Final = _Unseen.UNSEEN
_Seen = os.stat_result | Literal[_Unseen.UNSEEN] | None


@dataclass(frozen=True, slots=True)
class _Counting:
    """The mounts on which the ephemeral storage of a pod is, by their numbers, and the devices of these; and the same of all others
    in its sight, which are memory or somebody else's: claims, host paths. What is in neither came from elsewhere."""

    mounts: frozenset[int]
    devices: frozenset[int]
    other_mounts: frozenset[int]
    other_devices: frozenset[int]
    from_elsewhere: bool = True  # whether files from elsewhere count

    def turned(self, claims: frozenset[int]) -> _Counting:
        """For files on the mounts of claims instead."""
        others = (self.mounts | self.other_mounts) - claims
        return _Counting(claims, frozenset(), others, self.devices | self.other_devices, from_elsewhere=False)

    def is_elsewhere(self, device: int) -> bool:
        return self.from_elsewhere and device not in self.devices and device not in self.other_devices


@dataclass(slots=True)
class _Maps:
    """How many lines of memory maps may still be read; the files in them that were found to have a name; and those that this process
    has mapped, too: programs of the machine, from which pid 1 of a container was forked, and not of the pod's making."""

    left: int
    named: set[int] = field(default_factory=set)
    ours: set[tuple[bytes, bytes]] = field(
        default_factory=lambda: {_file_of(line)[:2] for line in _lines("/proc/self")}
    )


def hidden(pids: Iterable[int], mark: str, directory: Path, *, claims: bool = False) -> int | None:
    """`mark` is part of the path of every directory that counts, of which `directory` is one; the overlays of containers always do. None:
    something cannot be looked into, and may hold anything. `claims`: the same of open files on all other mounts of the same file
    system instead."""
    seen: set[tuple[int, int]] = set()
    known: dict[str, _Counting] = {}
    device = os.stat(directory).st_dev
    total = looked = 0
    mapped = _Maps(MOST_MAPPED)
    for pid in pids:
        for found in _held(pid, partial(_counting, mark=mark, device=device, known=known, claims=claims), mapped):
            looked += 1
            if looked > MOST or mapped.left < 0:
                return TOO_MANY
            if found is UNSEEN:
                return None
            if found is not None and (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * _BLOCK
    return total


def written(pids: Iterable[int]) -> dict[int, int]:
    """Bytes that each of these processes has written to disks so far, including system calls in progress."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, KeyError), open(f"/proc/{pid}/io") as file:
            said = {key: int(value) for key, _, value in (line.partition(":") for line in file)}
            found[pid] = max(0, said["write_bytes"] - said["cancelled_write_bytes"])
    return found


def _held(pid: int, counted: Callable[[str], _Counting], mapped: _Maps) -> Iterator[_Seen]:
    """What the process holds that may be one of those; None for everything else, UNSEEN for what cannot be inspected.

    By thread: each can have a file table and a working directory of its own, and the first may have ended before the others."""
    try:
        tasks = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return  # it has ended
    tables: list[int] = []
    memory, program = mapped.left, os.stat("/proc/self/exe")
    for task in tasks:
        directory = f"/proc/{pid}/task/{task}"
        try:
            files = os.listdir(f"{directory}/fd")
            counting = counted(directory)
        except OSError:
            continue
        if not any(_same_files(task, other) for other in tables[:_MOST_TABLES]):
            tables.append(task)
            yield from _opened(task, directory, files, counting, leader=task == pid)
        for name in _HELD_BESIDES:
            found = _nameless(f"{directory}/{name}", counting)
            yield None if found is not None and os.path.samestat(found, program) else found
        if memory == mapped.left:  # read once for all threads; fails for a thread that has ended
            yield from _mapped(pid, directory, counting, mapped)


def _opened(task: int, directory: str, files: Sequence[str], counting: _Counting, *, leader: bool) -> Iterator[_Seen]:
    for name in files:
        path = f"{directory}/fd/{name}"
        leads_to = _link(path)
        if leads_to.startswith("socket:"):
            yield from _in_flight(task, directory, name, counting, leader=leader)
        elif leads_to == _WATCHES:
            yield UNSEEN if _watches_elsewhere(f"{directory}/fdinfo/{name}", counting) else None
        else:
            yield _nameless(path, counting, f"{directory}/fdinfo/{name}")


def _in_flight(task: int, directory: str, name: str, counting: _Counting, *, leader: bool) -> Iterator[_Seen]:
    """Files in the queue of a socket."""
    if files_in_flight(directory, name):
        for file in queued(task, name, leader=leader):
            if file is None:
                yield UNSEEN
            else:
                yield _nameless(f"/proc/self/fd/{file}", counting, f"/proc/self/fdinfo/{file}")
    yield None


def _watches_elsewhere(fdinfo: str, counting: _Counting) -> bool:
    """A watch holds a file without opening it. It ends with the file's last name, but not where an ended container's layers were
    removed from below it."""
    with contextlib.suppress(OSError), open(fdinfo) as file:
        for line in file:
            _, mark, rest = line.partition(" sdev:")
            if mark:
                number = int(rest.partition(" ")[0], 16)
                device = os.makedev(number >> _MINOR_BITS, number & ((1 << _MINOR_BITS) - 1))
                if counting.is_elsewhere(device):
                    return True
    return False


def _nameless(path: str, counting: _Counting, fdinfo: str = "") -> os.stat_result | None:
    """What a link of /proc leads to, if it counts: by its mount, where `fdinfo` tells it, or else by its device."""
    leads_to = _link(path)
    if not leads_to.startswith(_PATHS):
        return None
    found = _found(path)
    if found is None or not _gone(found, leads_to):
        return None
    place, ours, others = found.st_dev, counting.devices, counting.other_devices
    if fdinfo:
        place, ours, others = _mount_of(fdinfo), counting.mounts, counting.other_mounts
    if place in ours:
        return found
    return None if place in others or not counting.from_elsewhere or _in_memory(path) else found


def _gone(found: os.stat_result, leads_to: str) -> bool:
    """Not by the name alone: of a container that has ended, files are removed where an overlay that is still held does not see it. Nor
    by the count alone: an overlay does not count the names of directories."""
    return found.st_nlink == 0 or (stat.S_ISDIR(found.st_mode) and leads_to.endswith(_DELETED))


def _in_memory(path: str) -> bool:
    try:
        return in_memory(path)
    except OSError:
        return False


def _same_files(task: int, other: int) -> bool:
    """Whether two threads have the same table of files. Where the kernel does not say, no."""
    return int(_libc.syscall(_KCMP.get(os.uname().machine, -1), task, other, _KCMP_FILES, 0, 0)) == 0


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _found(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _mapped(pid: int, directory: str, counting: _Counting, maps: _Maps) -> Iterator[_Seen]:
    """Files in memory that have no name. As bytes: the kernel ends a line with one sign, and a text has others that can be part of
    a file's name."""
    for line in _lines(directory):
        maps.left -= 1
        if maps.left < 0:
            break
        device, inode, name = _file_of(line)
        deleted = name.endswith(_DELETED_LINE)
        looked_at = hash((device, inode, name))
        if inode == b"0" or (device, inode) in maps.ours or (not deleted and looked_at in maps.named):
            continue
        low, _, high = line.partition(b" ")[0].partition(b"-")
        path = f"/proc/{pid}/map_files/{int(low, 16):x}-{int(high, 16):x}"
        if _found(path) is not None:
            yield _nameless(path, counting)
        elif deleted and _may_count(device, counting):
            yield UNSEEN  # not to be had by an ordinary user, or where the first thread has ended
        if not deleted:
            maps.named.add(looked_at)
    yield None


def _lines(process: str) -> Iterator[bytes]:
    """The lines of a memory map."""
    with contextlib.suppress(OSError), open(f"{process}/maps", "rb") as file:
        yield from file


def _file_of(line: bytes) -> tuple[bytes, bytes, bytes]:
    """Device, inode number (0 if there is none) and name of a line."""
    _, _, _, device, what = line.split(b" ", 4)
    inode, _, name = what.partition(b" ")
    return device, inode, name


def _may_count(numbers: bytes, counting: _Counting) -> bool:
    """Whether a mapped file may count, by its device number."""
    major, _, minor = numbers.partition(b":")
    device = os.makedev(int(major, 16), int(minor, 16))
    return device in counting.devices or (counting.is_elsewhere(device) and device != _device_of_memory())


@cache
def _device_of_memory() -> int:
    """The device of files in memory (memfd) that are on no visible mount."""
    file = os.memfd_create("device")
    try:
        return os.fstat(file).st_dev
    finally:
        os.close(file)


def _counting(process: str, *, mark: str, device: int, known: dict[str, _Counting], claims: bool) -> _Counting:
    """Reads the mounts, once for each mount namespace."""
    space = os.readlink(f"{process}/ns/mnt")
    if space not in known:
        ours: dict[int, int] = {}
        others: dict[int, int] = {}
        with open(f"{process}/mountinfo", "rb") as file:
            for line in file:
                fields, _, rest = line.partition(b" - ")
                number, _, numbers, root, *_ = fields.split(b" ")
                major, _, minor = numbers.partition(b":")
                counts = rest.startswith(b"overlay ") or mark.encode() in root
                (ours if counts else others)[int(number)] = os.makedev(int(major), int(minor))
        found = _Counting(
            frozenset(ours), frozenset({device, *ours.values()}), frozenset(others), frozenset(others.values())
        )
        same = frozenset(number for number, its in others.items() if its == device)
        known[space] = found.turned(same) if claims else found
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
