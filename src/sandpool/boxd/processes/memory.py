"""Whether the kernel ended a process because the sandbox had used up its memory: it counts such ends for each control group.

A count says that it happened, not to whom. A process that somebody killed, and not we, counts as one of them if there is one that
happened since it started and that no other process has taken for itself.
"""

from __future__ import annotations

import os

PLACES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Where a container sees the counts of its own control group, with version 2 and with version 1."""
_LONGEST = 1024
_KEY = b"oom_kill "


class MemoryKills:
    def __init__(self, file: int | None = None) -> None:
        """`file` is one of PLACES, open; None where nobody counts. It stays the caller's."""
        self._file = file
        self._taken = 0  # the count up to which all are some process's

    def mark(self) -> bytes:
        """How it is now, for `ended`. Read for each process that starts, so nothing is done with it yet."""
        try:
            return os.pread(self._file, _LONGEST, 0) if self._file is not None else b""
        except OSError:
            return b""

    def ended(self, before: bytes) -> bool:
        """Whether this is what ended a process that was killed: `before` is the mark of its start."""
        known = max(counted(before), self._taken)
        if counted(self.mark()) <= known:
            return False
        self._taken = known + 1
        return True


def counted(text: bytes) -> int:
    for line in text.splitlines():
        number = line[len(_KEY) :].strip()
        if line.startswith(_KEY) and number.isdigit():
            return int(number)
    return 0


def opened() -> int | None:
    """The counts of our own control group, if they can be seen."""
    for place in PLACES:
        try:
            return os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
    return None
