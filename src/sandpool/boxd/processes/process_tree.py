"""Kills everything that a command has started, also processes that left its process group (`setsid`) or were orphaned on purpose.

The kernel keeps no list of them, so it is gathered from /proc: descendants of the command, members of its session, and processes that carry
its mark, an environment variable that children inherit. Processes that are found are stopped before the next scan, so that they start no
others; once a scan finds no new one, all are killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

MARK = "BOXD_COMMAND"
"""The environment variable that names the command to which a process belongs."""
LOOKS = 32
"""Most scans: a command that starts processes faster than they can be stopped is not followed forever."""
LONGEST_ENVIRONMENT = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process, as /proc shows it."""

    parent: int
    session: int
    marked: bool


def belonging(seen: Mapping[int, ProcessInfo], root: int, known: Iterable[int] = ()) -> set[int]:
    """Pids that belong to the command `root` (0: it has ended, and its pid may be reused), and descendants of these or of those already
    known."""
    found = {pid for pid, one in seen.items() if one.marked or (root and root in (pid, one.session))}
    found.update(pid for pid in known if pid in seen)
    children: dict[int, list[int]] = {}
    for pid, one in seen.items():
        children.setdefault(one.parent, []).append(pid)
    left = list(found)
    while left:
        for child in children.get(left.pop(), ()):
            if child not in found:
                found.add(child)
                left.append(child)
    return found


def end_tree(root: int, mark: str) -> None:
    """Kills all of them with SIGKILL; never boxd itself, nor pid 1."""
    spared = {0, 1, os.getpid()}
    ended: set[int] = set()
    for _ in range(LOOKS):
        found = belonging(_look(mark), root, ended) - ended - spared
        if not found:
            break
        _send(found, signal.SIGSTOP)
        ended |= found
    _send(ended, signal.SIGKILL)


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _look(mark: str) -> dict[int, ProcessInfo]:
    """All running processes, without zombies."""
    word = f"{MARK}={mark}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with suppress(OSError, ValueError):  # it has just ended
            fields = _read(f"/proc/{name}/stat", 4096).rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                found[int(name)] = ProcessInfo(int(fields[1]), int(fields[3]), _carries(name, word))
    return found


def _carries(pid: str, word: bytes) -> bool:
    try:
        return word in _read(f"/proc/{pid}/environ", LONGEST_ENVIRONMENT).split(b"\0")
    except OSError:  # of another user, or a kernel thread
        return False


def _read(path: str, most: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, most)
    finally:
        os.close(file)
