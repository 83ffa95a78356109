"""Reads the control groups of this machine: mounted hierarchies, the place of each controller, usage of groups. Also freezes groups."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.forked.cgroups import read, write

IO, BLOCK_IO = "io", "blkio"  # the I/O controller's name in version 2 and in version 1
LIMITING = ("memory", "cpu", "pids", IO)
FREEZER, UNIFIED, ACCOUNTING = "freezer", "unified", "cpuacct"
WANTED = (*LIMITING, FREEZER, ACCOUNTING, BLOCK_IO)


@dataclass(frozen=True, slots=True)
class ControllerPath:
    """The group of this process in the hierarchy of a controller."""

    version: int
    directory: str


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted cgroup hierarchy."""

    version: int
    controllers: frozenset[str]
    root: str  # the part of the hierarchy that is mounted
    directory: str  # the mount point


def parse_mounts(mountinfo: str) -> list[Hierarchy]:
    found = []
    for line in mountinfo.splitlines():
        fields, dash, rest = line.partition(" - ")
        kind, *_ = rest.split(" ")
        if not dash or kind not in ("cgroup", "cgroup2"):
            continue
        _, _, _, root, directory, *_ = fields.split(" ")
        options = frozenset(rest.split(" ")[-1].split(","))
        found.append(
            Hierarchy(1 if kind == "cgroup" else 2, options if kind == "cgroup" else frozenset(), root, directory)
        )
    return found


def parse_membership(text: str) -> dict[str, str]:
    """The group of a process by controller; version 2 under the empty name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            found[name] = path
    return found


def group_path(hierarchy: Hierarchy, path: str) -> str:
    """The directory of a group; the mount point if the group is outside of the mounted part."""
    root = hierarchy.root.rstrip("/")
    inside = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else ""
    return hierarchy.directory + inside.rstrip("/")


def locate_controllers(
    hierarchies: Sequence[Hierarchy], membership: Mapping[str, str], unified: frozenset[str]
) -> dict[str, ControllerPath]:
    """The place of each controller; `unified` are those available in version 2. Also the place of version 2 itself, which can freeze and kill
    without any controller."""
    found: dict[str, ControllerPath] = {}
    for hierarchy in hierarchies:
        if hierarchy.version == 2:
            place = ControllerPath(2, group_path(hierarchy, membership.get("", "/")))
            found[UNIFIED] = place
            found |= {name: place for name in LIMITING if name in unified}
        else:
            for name in hierarchy.controllers & set(WANTED):
                found[IO if name == BLOCK_IO else name] = ControllerPath(
                    1, group_path(hierarchy, membership.get(name, "/"))
                )
    if UNIFIED in found:
        found.pop(FREEZER, None)
        found.pop(ACCOUNTING, None)
    return found


def number(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0


def keyed(text: str, key: str) -> int:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return number(value)
    return 0


@dataclass(frozen=True, slots=True)
class CgroupReader:
    """Reads the groups of one tenant's sandboxes. `places` are their parent groups, by controller."""

    places: Mapping[str, ControllerPath]

    def ooms(self, joined: Sequence[str]) -> int:
        """OOM kills in the groups of a container."""
        place = self.places.get("memory")
        group = next((path for path in joined if place and path.startswith(f"{place.directory}/")), None)
        if place is None or group is None:
            return 0
        return keyed(read(f"{group}/{'memory.oom_control' if place.version == 1 else 'memory.events'}"), "oom_kill")

    def refused_processes(self, group: str) -> int:
        """How often the pids limit of a group refused a new process."""
        place = self.places.get("pids")
        return keyed(read(f"{place.directory}/{group}/pids.events"), "max") if place else 0

    def members(self, group: str) -> set[int] | None:
        """The pids of a group and its subgroups; None if there are no groups."""
        place = self.places.get("pids") or next(iter(self.places.values()), None)
        if place is None:
            return None
        found: set[int] = set()
        for directory, _, _ in os.walk(f"{place.directory}/{group}"):
            found |= {int(pid) for pid in read(f"{directory}/cgroup.procs").split() if pid.isdigit()}
        return found - {0}

    def usage(self, group: str) -> tuple[float | None, int | None, int | None]:
        """CPU seconds, bytes of memory and processes of a group; None for each that no controller counts."""
        return self._seconds(group), self._memory(group), self._processes(group)

    def _seconds(self, group: str) -> float | None:
        if place := self.places.get(UNIFIED):
            return keyed(read(f"{place.directory}/{group}/cpu.stat"), "usage_usec") / 1e6
        if place := self.places.get(ACCOUNTING):
            return number(read(f"{place.directory}/{group}/cpuacct.usage")) / 1e9
        return None

    def _memory(self, group: str) -> int | None:
        if (place := self.places.get("memory")) is None:
            return None
        files = (
            ("memory.usage_in_bytes", "total_inactive_file")
            if place.version == 1
            else ("memory.current", "inactive_file")
        )
        directory = f"{place.directory}/{group}"
        return max(0, number(read(f"{directory}/{files[0]}")) - keyed(read(f"{directory}/memory.stat"), files[1]))

    def _processes(self, group: str) -> int | None:
        place = self.places.get("pids")
        return number(read(f"{place.directory}/{group}/pids.current")) if place else None


FREEZE_TIMEOUT = 10.0
BRIEF_TIMEOUT = 0.1
"""Seconds; enough for processes that are not in a system call. A process in a write of gigabytes freezes only when the write ends, so callers
that measure do not wait for it."""
FREEZE_POLL = 0.001


async def freeze(groups: CgroupReader, group: str, patience: float = FREEZE_TIMEOUT) -> bool:
    """Freezes a group. False if this machine cannot freeze."""
    return await _set_frozen(groups, group, patience, frozen=True)


async def thaw(groups: CgroupReader, group: str) -> bool:
    return await _set_frozen(groups, group, FREEZE_TIMEOUT, frozen=False)


async def _set_frozen(groups: CgroupReader, group: str, patience: float, *, frozen: bool) -> bool:
    place = groups.places.get(UNIFIED) or groups.places.get(FREEZER)
    if place is None:
        return False
    directory = f"{place.directory}/{group}"
    file, value = (
        ("cgroup.freeze", "01"[frozen]) if place.version == 2 else ("freezer.state", ["THAWED", "FROZEN"][frozen])
    )
    try:
        write(f"{directory}/{file}", value)
        async with asyncio.timeout(patience):
            while _is_frozen(directory, place.version) != frozen:  # noqa: ASYNC110  # the kernel has no event for it
                await asyncio.sleep(FREEZE_POLL)
    except FileNotFoundError:
        return place.version == 1  # version 2 cannot freeze before Linux 5.2. Or the sandbox is gone
    except (OSError, TimeoutError) as error:
        raise NodeError("Freezer", f"cannot {'freeze' if frozen else 'thaw'} the sandbox {group}: {error}") from error
    return True


def _is_frozen(directory: str, version: int) -> bool:
    if version == 2:
        return bool(keyed(read(f"{directory}/cgroup.events"), "frozen"))
    return read(f"{directory}/freezer.state").strip() == "FROZEN"
