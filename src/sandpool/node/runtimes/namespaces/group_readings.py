"""What the control groups of sandboxes say: processes, memory, processor time, and whom the kernel ended or refused."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandpool.node.runtimes.namespaces.forked.cgroup_files import read
from sandpool.node.runtimes.namespaces.hierarchies import ACCOUNTING, UNIFIED, Place


def number(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0


def keyed(text: str, key: str) -> int:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return number(value)
    return 0


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one tenant's sandboxes: `places` are their parents, by controller."""

    places: Mapping[str, Place]

    def ooms(self, joined: Sequence[str]) -> int:
        """How many processes of a container, by the groups that it is in, were ended because memory was used up."""
        place = self.places.get("memory")
        group = next((path for path in joined if place and path.startswith(f"{place.folder}/")), None)
        if place is None or group is None:
            return 0
        return keyed(read(f"{group}/{'memory.oom_control' if place.version == 1 else 'memory.events'}"), "oom_kill")

    def refused_processes(self, group: str) -> int:
        """How often a process of a group could not be started because there were too many."""
        place = self.places.get("pids")
        return keyed(read(f"{place.folder}/{group}/pids.events"), "max") if place else 0

    def members(self, group: str) -> set[int] | None:
        """The processes of a group and of those in it; None where there are no groups."""
        place = self.places.get("pids") or next(iter(self.places.values()), None)
        if place is None:
            return None
        found: set[int] = set()
        for folder, _, _ in os.walk(f"{place.folder}/{group}"):
            found |= {int(pid) for pid in read(f"{folder}/cgroup.procs").split() if pid.isdigit()}
        return found - {0}

    def usage(self, group: str) -> tuple[float | None, int | None, int | None]:
        """Seconds, bytes and processes of a group; None where nobody counts."""
        return self._seconds(group), self._memory(group), self._processes(group)

    def _seconds(self, group: str) -> float | None:
        if place := self.places.get(UNIFIED):
            return keyed(read(f"{place.folder}/{group}/cpu.stat"), "usage_usec") / 1e6
        if place := self.places.get(ACCOUNTING):
            return number(read(f"{place.folder}/{group}/cpuacct.usage")) / 1e9
        return None

    def _memory(self, group: str) -> int | None:
        if (place := self.places.get("memory")) is None:
            return None
        files = (
            ("memory.usage_in_bytes", "total_inactive_file")
            if place.version == 1
            else ("memory.current", "inactive_file")
        )
        folder = f"{place.folder}/{group}"
        return max(0, number(read(f"{folder}/{files[0]}")) - keyed(read(f"{folder}/memory.stat"), files[1]))

    def _processes(self, group: str) -> int | None:
        place = self.places.get("pids")
        return number(read(f"{place.folder}/{group}/pids.current")) if place else None
