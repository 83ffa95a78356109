"""Numbers of which the kernel has one for the whole machine, which all sandboxes share and no control group divides.

The kernel charges what is counted here to the memory of whoever has it, so that memory is the bound that holds; but one tenant could reach
the number alone, with many pods, or with what ended ones have left with others (an open file of /proc/self/ns keeps a
namespace). systemd lifts some of them on every machine that it runs; root does it here.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

SETTINGS = Path("/proc/sys")
PROCESSES = 1 << 22  # the most that the kernel can number
KINDS = ("cgroup", "ipc", "mnt", "net", "pid", "uts")  # of namespaces; those of users count for each sandbox by itself
LIFTED = {
    "fs/file-max": 2**63 - 1,
    "kernel/pid_max": PROCESSES,
    "kernel/threads-max": PROCESSES,
    "kernel/pty/max": 1 << 20,
    "net/ipv4/tcp_max_orphans": 1
    << 20,  # connections that were closed before all was sent; with more, those of everybody are cut
    **{f"user/max_{kind}_namespaces": 2**31 - 1 for kind in KINDS},
}


def lift(settings: Path = SETTINGS) -> None:
    """A machine that does not let one be written keeps its number; docs/explanation/threat-model.md says what that means."""
    for name, most in LIFTED.items():
        found = read(settings / name)
        if found is not None and found < most:
            with contextlib.suppress(OSError):
                (settings / name).write_text(str(most))


def processes(settings: Path = SETTINGS) -> int:
    """How many processes and threads the machine can have."""
    found = (read(settings / "kernel" / name) for name in ("pid_max", "threads-max"))
    return min((each for each in found if each is not None), default=32768)


def read(setting: Path) -> int | None:
    try:
        return int(setting.read_text())
    except (OSError, ValueError):
        return None
