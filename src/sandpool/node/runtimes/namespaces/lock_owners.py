"""Counts the file locks of sandboxes, from /proc/locks, and finds the sandbox of a process. Blocks.

The kernel lists the newest locks of a CPU first, in small pieces. For each piece it walks its list from the start, and blocks all locks of
the machine meanwhile. So only the first locks are read: enough to tell who takes too many. Locks that belong to no process cannot be taken
in a sandbox (see seccomp.py).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

from sandpool.node.runtimes.namespaces.forked.processes import listed

LOCKS = "/proc/locks"
LOCK_BYTES = 200  # kernel memory of a lock
ENOUGH = 50_000  # locks of sandboxes: more are not read
MOST_READ = 200_000  # locks of the whole machine
UNREAD = 100  # if there are more than enough, each lock that was read stands for so many


def owner(line: str) -> int | None:
    """The process that a line of /proc/locks names. A line that waits for another lock has an arrow."""
    fields = line.split(maxsplit=6)
    at = 5 if len(fields) > 1 and fields[1] == "->" else 4
    try:
        return int(fields[at])
    except (IndexError, ValueError):
        return None


def lock_bytes(sandboxes: Mapping[int, str], path: str = LOCKS, enough: int = ENOUGH) -> Counter[str]:
    """Bytes that the locks of each sandbox take. `sandboxes` has the sandbox of each process."""
    found: Counter[str] = Counter()
    seen = 0
    try:
        with open(path) as file:
            for number, line in enumerate(file):
                sandbox = sandboxes.get(owner(line) or 0)
                if sandbox is not None:
                    found[sandbox] += LOCK_BYTES
                    seen += 1
                if seen >= enough or number >= MOST_READ:
                    return Counter({name: size * UNREAD for name, size in found.items()})
    except OSError:
        pass  # a machine without it
    return found


def sandboxes_of(inits: Mapping[int, str]) -> dict[int, str]:
    """The sandbox of every process that descends from one of these inits. Orphans in a sandbox become children of its init."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return descendants({each.pid: each.parent for each in listed(proc)}, inits)
    finally:
        os.close(proc)


def descendants(parents: Mapping[int, int], inits: Mapping[int, str]) -> dict[int, str]:
    """The same, from the parents of all processes."""
    known: dict[int, str | None] = dict(inits)
    for pid in parents:
        path, at = [], pid
        while at not in known:
            path.append(at)
            known[at] = None  # also ends a circle: pids may be reused while they are listed
            at = parents.get(at, 0)
        known.update(dict.fromkeys(path, known[at]))
    return {pid: name for pid, name in known.items() if name is not None}
