"""Whether the OOM killer ended a process: the kernel counts OOM kills for each control group.

The count says that one happened, not to which process. A process that was killed, and not by us, counts as OOM-killed if the count has grown
since it started and no other process has claimed that kill.
"""

from __future__ import annotations

import os

PLACES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Where a container sees the counts of its own control group: cgroup v2, then v1."""
_LONGEST = 1024
_KEY = b"oom_kill "


class MemoryKills:
    def __init__(self, file: int | None = None) -> None:
        """`file` is one of PLACES, open, and stays the caller's; None if there is no count."""
        self._file = file
        self._taken = 0  # kills up to this count have been claimed

    def mark(self) -> bytes:
        """The file as it is now, for `ended`. Called for each start, so it is not parsed yet."""
        try:
            return os.pread(self._file, _LONGEST, 0) if self._file is not None else b""
        except OSError:
            return b""

    def ended(self, before: bytes) -> bool:
        """Whether the OOM killer ended this process, which was killed; claims the kill. `before` is the mark of its start."""
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
    """Opens the counts of our own control group, if they are visible."""
    for place in PLACES:
        try:
            return os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
    return None
