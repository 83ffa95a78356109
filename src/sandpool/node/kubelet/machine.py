"""The capacity and identity of this machine: processors, memory, kernel, operating system."""

from __future__ import annotations

import os
import platform
from pathlib import Path

MOST_PODS = 9_999
"""Not a multiple of 1000: an API server writes 10000 as `10k`, and some clients only parse digits."""
_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}


def capacity() -> dict[str, str]:
    """The capacity for the Node object. Counts the CPUs that this process may use."""
    try:
        processors = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        processors = os.cpu_count() or 1
    return {"cpu": str(processors), "memory": f"{_memory() // 1024}Ki", "pods": str(MOST_PODS)}


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 4 * 2**30


def architecture() -> str:
    machine = platform.machine()
    return _NAMES.get(machine, machine)


def system() -> str:
    return platform.system().lower()


def system_name() -> str:
    """The PRETTY_NAME of the distribution."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME") or platform.system()
    except OSError:
        return platform.system()


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
