"""What a cluster that has ended left on this machine: processes, control groups and mounts of its node. An orderly end leaves
nothing; one that was killed leaves it to whoever comes next."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandpool.node.directory import installation_of
from sandpool.node.runtimes.gvisor.runtime import gvisor
from sandpool.node.runtimes.namespaces.cgroups import Cgroups
from sandpool.node.runtimes.namespaces.forked.cgroup_files import read
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.runtime_host import groups_of, groups_of_probe
from sandpool.node.runtimes.process.family import marked, reap
from sandpool.node.runtimes.process.runtime import mark_of
from sandpool.node.volumes.images import detach

NAMED = 3
"""Of each kind as many are named; of the others only how many there are."""


@dataclass(frozen=True, slots=True)
class Leftovers:
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


def find(folder: Path) -> Leftovers:
    """What is there now."""
    groups = [path for each in _groups(folder) for path in each.left()]
    processes = {*_members(groups), *marked(_mark(folder))}
    return Leftovers(tuple(sorted(processes)), tuple(groups), tuple(mounts_below(folder)))


def clear(folder: Path) -> None:
    """Ends and takes away what can be. Only for whoever holds the lock of the directory; `find` says what stayed."""
    reap(_mark(folder))
    for each in _groups(folder):
        with contextlib.suppress(Refused, OSError):
            each.remove_left()
    for path in sorted(mounts_below(folder), reverse=True):
        with contextlib.suppress(OSError):
            detach(Path(path))


def mounts_below(folder: Path) -> list[str]:
    found = [_plain(line.split(" ")[4]) for line in read("/proc/self/mountinfo").splitlines()]
    return sorted({path for path in found if path.startswith(f"{folder.resolve()}/")})


def _plain(path: str) -> str:
    """Of a path as the kernel writes it, with spaces and the like as octal numbers."""
    for letter in " \t\n\\":
        path = path.replace(f"\\{ord(letter):03o}", letter)
    return path


def _members(groups: Iterable[str]) -> set[int]:
    folders = (folder for group in groups for folder, _, _ in os.walk(group))
    return {int(pid) for folder in folders for pid in read(f"{folder}/cgroup.procs").split()}


def _groups(folder: Path) -> list[Cgroups]:
    runtimes, name = folder / "runtime", installation_of(folder)
    own = ((name, runtimes / "namespaces"), (gvisor(name), runtimes / "gvisor"))
    return [make(*each) for each in own for make in (groups_of, groups_of_probe)]


def _mark(folder: Path) -> str:
    return mark_of(installation_of(folder), folder / "runtime" / "process")
