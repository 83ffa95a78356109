"""Where this machine keeps its control groups: which hierarchies are mounted, and the place of each controller. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

IO, BLOCK_IO = "io", "blkio"  # as version 2 and version 1 call it
LIMITING = ("memory", "cpu", "pids", IO)
FREEZER, UNIFIED, ACCOUNTING = "freezer", "unified", "cpuacct"
WANTED = (*LIMITING, FREEZER, ACCOUNTING, BLOCK_IO)


@dataclass(frozen=True, slots=True)
class Place:
    """The group of this process on the hierarchy that has a controller."""

    version: int
    folder: str


@dataclass(frozen=True, slots=True)
class Hierarchy:
    version: int
    controllers: frozenset[str]
    root: str  # what of it is mounted
    folder: str  # where


def parse_mounts(mountinfo: str) -> list[Hierarchy]:
    found = []
    for line in mountinfo.splitlines():
        fields, dash, rest = line.partition(" - ")
        kind, *_ = rest.split(" ")
        if not dash or kind not in ("cgroup", "cgroup2"):
            continue
        _, _, _, root, folder, *_ = fields.split(" ")
        options = frozenset(rest.split(" ")[-1].split(","))
        found.append(
            Hierarchy(1 if kind == "cgroup" else 2, options if kind == "cgroup" else frozenset(), root, folder)
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


def below(hierarchy: Hierarchy, path: str) -> str:
    """The folder of a group; outside of what is mounted, the best that can be had is all that is."""
    root = hierarchy.root.rstrip("/")
    inside = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else ""
    return hierarchy.folder + inside.rstrip("/")


def locate(
    hierarchies: Sequence[Hierarchy], membership: Mapping[str, str], unified: frozenset[str]
) -> dict[str, Place]:
    """The place of each controller; `unified` are those that version 2 offers there. And of version 2 itself, which can freeze
    and kill without any."""
    found: dict[str, Place] = {}
    for hierarchy in hierarchies:
        if hierarchy.version == 2:
            place = Place(2, below(hierarchy, membership.get("", "/")))
            found[UNIFIED] = place
            found |= {name: place for name in LIMITING if name in unified}
        else:
            for name in hierarchy.controllers & set(WANTED):
                found[IO if name == BLOCK_IO else name] = Place(1, below(hierarchy, membership.get(name, "/")))
    if UNIFIED in found:
        found.pop(FREEZER, None)
        found.pop(ACCOUNTING, None)
    return found
