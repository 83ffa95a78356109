"""What there is of a world on the machine, counted: processes, mounts, control groups, open files, folders."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Census:
    processes: int  # below this one, without those that a sandbox's own kernel lets its programs run in
    mounts: (
        int  # that this process sees, without what others that run at the same time mount in their temporary folders
    )
    groups: int
    files: int  # open in this process
    folders: int  # of pods and their volumes


def census(folder: Path, installation: str) -> Census:
    groups = sum(
        installation in name for top, names, _ in os.walk("/sys/fs/cgroup") for name in _below(top, names, installation)
    )
    kept = [path for part in ("pods", "volumes/pods") for path in (folder / "data" / part).glob("*/*")]
    return Census(
        len(descendants(os.getpid()) - stubs(os.getpid())),
        sum(_counts(line.split(" ", 5)[4], folder) for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        groups,
        len(os.listdir("/proc/self/fd")),
        len(kept),
    )


def _counts(mounted_at: str, folder: Path) -> bool:
    return mounted_at.startswith(str(folder)) or not mounted_at.startswith(("/tmp/", "/var/tmp/"))


def _below(top: str, names: list[str], installation: str) -> list[str]:
    """All folders of ours, and no further down others'."""
    if installation in top:
        return [f"{installation}/{name}" for name in names]
    depth = top.removeprefix("/sys/fs/cgroup").count("/")
    if depth >= 8:
        names.clear()
    return names


def stubs(pid: int) -> set[int]:
    """What runs below gVisor's kernels that run below a process. They come and go with what a sandbox does, and end with its
    kernel: one that does not is no longer below it, and is counted."""
    kernels = {each for each in descendants(pid) if _arguments(each).startswith(b"runsc-sandbox\0")}
    return {below for kernel in kernels for below in descendants(kernel)}


def _arguments(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> set[int]:
    """All processes below one, living or not yet reaped."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                line = Path("/proc", name, "stat").read_text(errors="replace")
            except OSError:
                continue
            parents[int(name)] = int(line[line.rfind(")") + 2 :].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def marked(mark: str) -> set[int]:
    """The processes of the machine that have these words in their arguments."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if mark.encode() in Path("/proc", name, "cmdline").read_bytes():
                    found.add(int(name))
            except OSError:
                continue
    return found
