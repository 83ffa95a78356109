"""Raises kernel limits of the whole machine, which all sandboxes share and no control group divides.

What these limits count is also charged as memory, so memory limits are the effective bound. But a single tenant could reach such a limit
with many pods, or with what ended pods have passed to others (an open file of /proc/self/ns keeps a namespace). systemd raises some of them
on every machine; as root, we raise all of them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

SYSCTLS = Path("/proc/sys")
PROCESSES = 1 << 22  # the kernel's largest pid_max
KINDS = ("cgroup", "ipc", "mnt", "net", "pid", "uts")  # kinds of namespaces; user namespaces are counted per sandbox
RAISED = {
    "fs/file-max": 2**63 - 1,
    "kernel/pid_max": PROCESSES,
    "kernel/threads-max": PROCESSES,
    "kernel/pty/max": 1 << 20,
    "net/ipv4/tcp_max_orphans": 1
    << 20,  # connections closed before all was sent; above the limit the kernel resets those of everybody
    **{f"user/max_{kind}_namespaces": 2**31 - 1 for kind in KINDS},
}


def raise_limits(settings: Path = SYSCTLS) -> None:
    """Raises the limits. One that cannot be written keeps its value; docs/explanation/threat-model.md says what that means."""
    for name, most in RAISED.items():
        found = read_sysctl(settings / name)
        if found is not None and found < most:
            with contextlib.suppress(OSError):
                (settings / name).write_text(str(most))


def process_limit(settings: Path = SYSCTLS) -> int:
    """How many processes and threads the machine can have."""
    found = (read_sysctl(settings / "kernel" / name) for name in ("pid_max", "threads-max"))
    return min((each for each in found if each is not None), default=32768)


def read_sysctl(setting: Path) -> int | None:
    try:
        return int(setting.read_text())
    except (OSError, ValueError):
        return None
