"""Facts of the machine, from its own kernel, by which a sandbox would give away that it sees more than itself; and what a kernel
of a sandbox's own might change on the machine."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.escape.census import descendants, marked

# Every pod may try to change these: each is harmless on the machine, should it succeed.
SETTINGS = tuple(
    f"/proc/sys/{name}"
    for name in ("net/core/somaxconn", "net/ipv4/tcp_retries2", "net/ipv4/tcp_syn_retries", "kernel/msgmax",
                 "kernel/shmmni", "vm/max_map_count", "net/core/rmem_max")
)  # fmt: skip
# Mounted by every kernel for itself, with the same words.
OWN_KINDS = {"proc", "sysfs", "tmpfs", "devpts", "devtmpfs", "mqueue", "cgroup", "cgroup2", "overlay"}
BATCH = {0, 3, 5}  # SCHED_OTHER, SCHED_BATCH, SCHED_IDLE


def facts() -> dict[str, Any]:
    return {
        "kernel": [os.uname().version, Path("/proc/sys/kernel/random/boot_id").read_text().strip()],
        "log": log(),
        "namespaces": [os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "net", "pid", "ipc", "uts")],
        "hardware": hardware(),
        "mounts": mounts(),
    }


def log() -> list[str]:
    """The kernel's messages, if they are ours to read."""
    buffer = ctypes.create_string_buffer(1 << 20)
    length = ctypes.CDLL(None).klogctl(3, buffer, len(buffer))
    lines = buffer.raw[: max(0, length)].decode(errors="replace").splitlines()
    return [words for line in lines if len(words := line.partition("] ")[2]) > 20][-200:]


def hardware() -> list[str]:
    places = (
        "/sys/block",
        "/sys/class/net",
        "/sys/bus/pci/devices",
        "/sys/bus/virtio/devices",
        "/sys/bus/platform/devices",
    )
    found = {name for place in places if os.path.isdir(place) for name in os.listdir(place)}
    modules = Path("/proc/modules")
    if modules.exists():
        found |= {line.split()[0] for line in modules.read_text().splitlines()}
    return sorted(found - {"lo"})


def mounts() -> list[tuple[str, ...]]:
    """What is mounted: which part, where, of what kind, from where."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        if tail.split()[0] not in OWN_KINDS or len(head.split()[3]) > 1:
            found.append((*head.split()[3:5], *tail.split()[:2]))
    return found


def settings() -> dict[str, str]:
    return {name: Path(name).read_text() for name in SETTINGS if os.path.exists(name)}


def capable(folders: Iterable[Path]) -> list[Path]:
    """Files whose capabilities the machine's kernel would honour. Each is told once."""
    found = []
    for path in (path for folder in folders for path in folder.rglob("capable-*")):
        try:
            os.getxattr(path, "security.capability", follow_symlinks=False)
        except OSError:
            continue
        path.unlink()
        found.append(path)
    return found


def first_ones(mark: str) -> list[str]:
    """Processes below this one, or with the mark, that the machine prefers to this one."""
    mine, found = _rank(os.getpid()), []
    for pid in descendants(os.getpid()) | marked(mark):
        try:
            rank = _rank(pid)
        except OSError:
            continue
        if rank[0] < mine[0] or rank[1] < mine[1] or rank[2] not in BATCH:
            found.append(f"{pid}: memory {rank[0]}, nice {rank[1]}, scheduler {rank[2]}")
    return found


def _rank(pid: int) -> tuple[int, int, int]:
    memory = int(Path("/proc", str(pid), "oom_score_adj").read_text())
    return memory, os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)
