"""Finds and removes what a cluster left on this machine: processes, control groups and mounts of its node.

An orderly shutdown leaves nothing; one that was killed leaves it to the next start or to `sandpool down`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandpool.node.directory import installation_of
from sandpool.node.runtimes.gvisor.runtime import gvisor
from sandpool.node.runtimes.namespaces.cgroup_manager import CgroupManager
from sandpool.node.runtimes.namespaces.forked.cgroups import read
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.runtime_host import groups_of, groups_of_probe, shims_of
from sandpool.node.runtimes.namespaces.shim import RunDirectory
from sandpool.node.runtimes.process.runtime import mark_of
from sandpool.node.runtimes.process.supervisor_client import marked, reap
from sandpool.node.volumes.loop_image import detach

NAMED = 3
"""How many of each kind are named; the rest is only counted."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What was found, by kind."""

    processes: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.processes or self.groups or self.mounts)

    def __str__(self) -> str:
        kinds = (("process", self.processes), ("control group", self.groups), ("mount", self.mounts))
        return "; ".join(_named(kind, list(map(str, found))) for kind, found in kinds if found)


def _named(kind: str, found: list[str]) -> str:
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    many = "" if len(found) == 1 else "es" if kind.endswith("s") else "s"
    return f"{kind}{many} {', '.join(found[:NAMED])}{more}"


def find(directory: Path) -> Leftovers:
    """What is left on the machine now."""
    groups = [path for each in _groups(directory) for path in each.leftover_groups()]
    processes = {*_members(groups), *marked(_mark(directory)), *shim_pids(directory).values()}
    return Leftovers(tuple(sorted(processes)), tuple(groups), tuple(mounts_below(directory)))


def clear(directory: Path) -> None:
    """Kills and removes what it can. Call it only with the lock of the directory held; then `find` says what is left."""
    reap(_mark(directory))
    _shims(directory).end_all()
    for each in _groups(directory):
        with contextlib.suppress(Refused, OSError):
            each.remove_leftovers()
    for path in sorted(mounts_below(directory), reverse=True):
        with contextlib.suppress(OSError):
            detach(Path(path))


def mounts_below(directory: Path) -> list[str]:
    found = [_plain(line.split(" ")[4]) for line in read("/proc/self/mountinfo").splitlines()]
    return sorted({path for path in found if path.startswith(f"{directory.resolve()}/")})


def _plain(path: str) -> str:
    """Decodes a path from /proc, where the kernel writes spaces and the like as octal escapes."""
    for letter in " \t\n\\":
        path = path.replace(f"\\{ord(letter):03o}", letter)
    return path


def _members(groups: Iterable[str]) -> set[int]:
    directories = (directory for group in groups for directory, _, _ in os.walk(group))
    return {int(pid) for directory in directories for pid in read(f"{directory}/cgroup.procs").split()}


def _groups(directory: Path) -> list[CgroupManager]:
    runtimes, name = directory / "runtime", installation_of(directory)
    own = ((name, runtimes / "namespaces"), (gvisor(name), runtimes / "gvisor"))
    return [make(*each) for each in own for make in (groups_of, groups_of_probe)]


def shim_pids(directory: Path) -> dict[str, int]:
    """The pids of shims without a node process, by sandbox."""
    return _shims(directory).pids()


def _shims(directory: Path) -> RunDirectory:
    return shims_of(directory / "runtime" / "namespaces")


def _mark(directory: Path) -> str:
    return mark_of(installation_of(directory), directory / "runtime" / "process")
