"""Ends everything that a command has started, also what left its process group (`setsid`) or was orphaned on purpose.

The kernel keeps no list of that. So it is put together from /proc: whoever descends from the command or is in its session, and whoever
carries its mark, a variable that children inherit. What is found is stopped before the next look, so that nothing starts others
meanwhile; all of it is killed when a look finds nobody new.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

MARK = "BOXD_COMMAND"
"""The variable that says to which command a process belongs."""
LOOKS = 32
"""At most: a command that starts processes faster than they can be stopped is not followed for ever."""
LONGEST_ENVIRONMENT = 1 << 20


@dataclass(frozen=True, slots=True)
class Seen:
    """One process of the machine, or of the container, as far as it matters here."""

    parent: int
    session: int
    marked: bool


def belonging(seen: Mapping[int, Seen], root: int, known: Iterable[int] = ()) -> set[int]:
    """Those that belong to the command `root` (0: it has ended, and its number may be somebody else's), and what descends from
    them or from those that are known already."""
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
    """SIGKILL for all of them. Never for us, nor for the first process of the container."""
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


def _look(mark: str) -> dict[int, Seen]:
    """Everything that runs; what has ended and was not waited for yet is left out."""
    word = f"{MARK}={mark}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with suppress(OSError, ValueError):  # it has just ended
            fields = _read(f"/proc/{name}/stat", 4096).rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                found[int(name)] = Seen(int(fields[1]), int(fields[3]), _carries(name, word))
    return found


def _carries(pid: str, word: bytes) -> bool:
    try:
        return word in _read(f"/proc/{pid}/environ", LONGEST_ENVIRONMENT).split(b"\0")
    except OSError:  # another user's, or one of the kernel's own
        return False


def _read(path: str, most: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, most)
    finally:
        os.close(file)
