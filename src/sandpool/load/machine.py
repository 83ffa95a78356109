"""The conditions of a run and the resource usage of processes, read from /proc."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_IN_MEMORY = {"tmpfs", "ramfs"}


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process, from its start."""

    cpu: float  # seconds, of all threads, user and system
    peak: int  # bytes of memory at its highest


def usage(pid: int) -> Usage | None:
    """None if the process is gone or may not be read."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    peak = next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:")), 0)
    return Usage((int(stat[11]) + int(stat[12])) / _TICKS, peak)


def conditions() -> dict[str, Any]:
    """The conditions of this machine now."""
    return {
        "machine": f"{platform.machine()}, {_processor()}",
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {name: _version(name) for name in ("sandpool", "aiohttp", "uvloop", "msgspec")},
        "load_average_before": [round(value, 2) for value in os.getloadavg()],
    }


def is_durable(directory: str) -> tuple[bool, str]:
    """Whether fsync there is durable, and the type of the file system."""
    kind = _file_system(os.path.realpath(directory))
    return kind not in _IN_MEMORY, kind


def _file_system(directory: str) -> str:
    best, kind = "", "unknown"
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return kind
    for line in lines:
        fields = line.split(" ")
        point = fields[1].encode().decode("unicode_escape", "replace")
        inside = directory == point or directory.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
