"""What the process rehearses from which each boxd is forked."""

from __future__ import annotations

import os
import subprocess
import sys

from sandpool.boxd.forked import rehearse

FORKED = """
import sys, threading
from sandpool.boxd.forked import rehearse
before = set(sys.modules)
rehearse()
print(threading.active_count(), sorted(set(sys.modules) - before))
"""


def files() -> list[str]:
    return sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd))


def _is_open(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


def test_it_leaves_nothing_for_the_sandboxes_to_find() -> None:
    before = files()
    for _ in range(3):
        rehearse()
    assert files() == before


def test_it_starts_no_thread_and_loads_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "1 []"
