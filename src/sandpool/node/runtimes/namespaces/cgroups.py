"""The control groups of sandboxes, and what is written there. Decisions are pure; `Cgroups` reads and writes.

Controllers may be on version 1, on version 2 or some here, some there; each is taken where it is, below the group that this
process itself is in. What cannot be written is not enforced, and is told.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Bandwidth, Limits
from sandpool.node.runtimes.namespaces import disk_bandwidth
from sandpool.node.runtimes.namespaces.forked.cgroup_files import Group, Setting, read, write
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.forked.processes import descendants, listed
from sandpool.node.runtimes.namespaces.forked.removal import remove_cgroups
from sandpool.node.runtimes.namespaces.group_journal import GroupJournal, ours, remove_empty
from sandpool.node.runtimes.namespaces.group_readings import Groups
from sandpool.node.runtimes.namespaces.hierarchies import (
    IO,
    UNIFIED,
    Place,
    locate,
    parse_membership,
    parse_mounts,
)

PERIOD = 100_000
LEAST_QUOTA = 1_000
# Version 1 counts the buffers of sockets apart from all other memory, and only where they have a limit.
SOCKETS = "memory.kmem.tcp.limit_in_bytes"
SOCKET_PART, LEAST_SOCKET_BYTES, DEFAULT_SOCKET_BYTES = 8, 8 << 20, 256 << 20
ASIDE = "-main"
TENANT = "tenant-"
SHARED = "-shared"  # no container has such a name


def settings(version: int, controller: str, limits: Limits) -> list[Setting]:
    match controller:
        case "memory" if limits.memory is not None and version == 1:
            return [
                ("memory.limit_in_bytes", str(limits.memory), True),
                ("memory.memsw.limit_in_bytes", str(limits.memory), False),
                ("memory.swappiness", "0", False),
                (SOCKETS, str(socket_bytes(limits.memory)), False),
            ]
        case "memory" if limits.memory is not None:
            return [("memory.max", str(limits.memory), True), ("memory.swap.max", "0", False)]
        case "cpu" if limits.cpu is not None:
            quota = max(LEAST_QUOTA, round(limits.cpu * PERIOD))
            if version == 1:
                return [("cpu.cfs_period_us", str(PERIOD), True), ("cpu.cfs_quota_us", str(quota), True)]
            return [("cpu.max", f"{quota} {PERIOD}", True)]
        case "pids" if limits.pids is not None:
            return [("pids.max", str(limits.pids), True)]
        case "io" if limits.io is not None:
            return disk_bandwidth.settings(version, limits.io)
    return []


def socket_bytes(memory: int) -> int:
    """What the buffers of sockets may take on top of a limit of memory that does not count them."""
    return max(LEAST_SOCKET_BYTES, memory // SOCKET_PART)


def socket_bytes_of_all(memory: int, tcp_mem: str, page: int) -> int:
    """Of all sandboxes together: never so much that the kernel presses all connections of the machine, whose three bounds, in
    pages, `tcp_mem` holds."""
    bounds = [int(each) for each in tcp_mem.split() if each.isdigit()]
    return min([socket_bytes(memory), *(pages * page // 2 for pages in bounds[1:2])])


def weight(version: int, cpus: int) -> Setting:
    """What all sandboxes together count where processes compete for CPUs: as much as one busy process for each CPU. A group
    without it counts as one process, however many are in it."""
    return (
        ("cpu.shares", str(1024 * cpus), False) if version == 1 else ("cpu.weight", str(min(100 * cpus, 10_000)), False)
    )


def folders(places: Mapping[str, Place]) -> dict[str, dict[str, Place]]:
    """The hierarchies, by folder, with the controllers of each."""
    found: dict[str, dict[str, Place]] = {}
    for name, place in places.items():
        found.setdefault(place.folder, {})[name] = place
    return found


def handed_down(here: Mapping[str, Place]) -> list[Setting]:
    """On version 2 a group with limited groups in it says so, and holds no processes of its own."""
    names = [f"+{name}" for name, place in here.items() if place.version == 2 and name != UNIFIED]
    return [("cgroup.subtree_control", " ".join(names), True)] if names else []


def places_of(places: Mapping[str, Place], tenant: str) -> dict[str, Place]:
    """The parents of a tenant's sandboxes. On the hierarchy that counts memory it is a group of the tenant's own; on others there
    is nothing to be counted for a tenant. Sandboxes of nobody, as those of a probe, have none."""
    memory = places.get("memory")
    if memory is None or not tenant:
        return dict(places)
    own = f"{memory.folder}/{TENANT}{tenant}"
    return {
        name: Place(place.version, own) if place.folder == memory.folder else place for name, place in places.items()
    }


def tenant_group(places: Mapping[str, Place], tenant: str) -> Group | None:
    """The group in which memory is counted for a tenant, as it is made; its limits follow."""
    memory = places_of(places, tenant).get("memory") if tenant else None
    if memory is None:
        return None
    here = {name: place for name, place in places_of(places, tenant).items() if place.folder == memory.folder}
    counted: list[Setting] = [("memory.use_hierarchy", "1", False)] if memory.version == 1 else []  # before Linux 5.11
    return memory.folder, [*counted, *handed_down(here)]


def sandbox_groups(places: Mapping[str, Place], sandbox: str, limits: Limits) -> list[Group]:
    """One group on each hierarchy, with the limits of all its controllers."""
    return [
        (f"{folder}/{sandbox}", [*_all_settings(here, limits), *_uncounted(here, limits), *handed_down(here)])
        for folder, here in folders(places).items()
    ]


def _uncounted(here: Mapping[str, Place], limits: Limits) -> list[Setting]:
    """A sandbox without a limit of memory still has one for sockets: without, nobody counts its part of what all have."""
    place = here.get("memory")
    if place is None or place.version != 1 or limits.memory is not None:
        return []
    return [(SOCKETS, str(DEFAULT_SOCKET_BYTES), False)]


def container_groups(
    places: Mapping[str, Place], sandbox: str, name: str, limits: Limits
) -> tuple[list[Group], list[str]]:
    """The groups of a container of its own, where it has limits of its own or must not be in the sandbox's; and those that it
    is in."""
    made: list[Group] = []
    joined: list[str] = []
    for folder, here in folders(places).items():
        values = _all_settings(here, limits)
        path = f"{folder}/{sandbox}"
        if values or handed_down(here):
            path = f"{path}/{name}"
            made.append((path, values))
        joined.append(path)
    return made, joined


def shared_groups(places: Mapping[str, Place], sandbox: str) -> tuple[list[Group], list[str]]:
    """The groups for whoever makes what the containers of a sandbox share, and those that it joins: namespaces and volumes are memory of
    the kernel, which stays as long as somebody holds them. Nothing but memory is counted for them."""
    memory = places.get("memory")
    here = {name: place for name, place in places.items() if memory is not None and place.folder == memory.folder}
    return container_groups(here, sandbox, SHARED, Limits())


def _all_settings(here: Mapping[str, Place], limits: Limits) -> list[Setting]:
    return [setting for name, place in here.items() for setting in settings(place.version, name, limits)]


def step_aside(folder: str, leaf: str) -> None:
    """Moves this process and its own out of a group, if nobody else is in it."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        family = {os.getpid(), *descendants(listed(proc), os.getpid())}
    finally:
        os.close(proc)
    members = [int(pid) for pid in read(f"{folder}/cgroup.procs").split()]
    if not family.issuperset(members):
        raise OSError(errno.EBUSY, "others are in the same group", folder)
    with contextlib.suppress(FileExistsError):
        os.mkdir(leaf)
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            write(f"{leaf}/cgroup.procs", str(pid))


@dataclass(slots=True)
class Cgroups:
    """The groups of one installation. `places` are the parents of its sandboxes' and tenants' groups, by controller; `journal` is
    where they are written down for those who come after this process."""

    name: str
    journal: GroupJournal | None = None
    places: dict[str, Place] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    io: Bandwidth | None = None  # of each sandbox
    shares_io: bool = False  # whether a group is of use without a limit

    def open(self, limits: Limits) -> None:
        """Takes away what an earlier process left, and makes the parents; `limits` are those of all sandboxes together."""
        self.places, self.notes = {}, []
        located = self._located()
        if not self._uses_io and (place := located.pop(IO, None)) is not None:
            with contextlib.suppress(Refused):  # of a process that did use it
                remove_cgroups([f"{place.folder}/{self.name}"])
        used = folders(located)
        parents = [f"{folder}/{self.name}" for folder in used]
        self._remember(parents)
        try:
            self.remove_left(but=parents)
        except Refused as refused:
            raise NodeError(refused.reason, refused.message) from refused
        for folder, here in used.items():
            if self._open_parent(folder, here):
                self._limit(here, limits)
        self._check_io()

    def _check_io(self) -> None:
        """A kernel may have the groups and not the limit."""
        place = self.places.get(IO)
        if place is None or self.io is None:
            return
        wanted = disk_bandwidth.settings(place.version, self.io)
        if all(os.path.exists(f"{place.folder}/{file}") for file, _, _ in wanted):
            return
        self.notes.append(f"{IO}: this kernel cannot limit it")
        del self.places[IO]
        if place.version == 1:
            remove_cgroups([place.folder])

    @property
    def _uses_io(self) -> bool:
        return self.io is not None or self.shares_io

    def sweep(self) -> None:
        """Takes away what an earlier process left, and makes nothing."""
        for folder in folders(self._located()):
            with contextlib.suppress(Refused):
                remove_cgroups([f"{folder}/{self.name}"])
        with contextlib.suppress(Refused):
            self.remove_left()

    def left(self) -> list[str]:
        """The groups of earlier processes that are still there, wherever those ran, by what they wrote down."""
        return self._written_down(self.name)

    def remove_left(self, but: Sequence[str] = ()) -> None:
        """With whoever is still in them. Refused if one stays; what is gone is forgotten."""
        if self.journal is None:
            return
        remove_cgroups([path for path in self.left() if path not in but])
        aside = f"{self.name}{ASIDE}"
        remove_empty(self._written_down(aside))  # this process, or whoever started the earlier one, may be there
        self.journal.keep([*but, *self._written_down(aside)])

    def _written_down(self, name: str) -> list[str]:
        if self.journal is None:
            return []
        mounted = [hierarchy.folder for hierarchy in parse_mounts(read("/proc/self/mountinfo"))]
        return [path for path in ours(self.journal.read(), name, mounted) if os.path.isdir(path)]

    def _remember(self, paths: Sequence[str]) -> None:
        if self.journal is not None:
            self.journal.add(paths)

    def _located(self) -> dict[str, Place]:
        hierarchies, membership = (
            parse_mounts(read("/proc/self/mountinfo")),
            parse_membership(read("/proc/self/cgroup")),
        )
        membership = {name: path.removesuffix(f"/{self.name}{ASIDE}") for name, path in membership.items()}
        unified = locate(hierarchies, membership, frozenset()).get(UNIFIED)
        offered = frozenset(read(f"{unified.folder}/cgroup.controllers").split() if unified else [])
        found = locate(hierarchies, membership, offered if self._uses_io else offered - {IO})
        top = next((hierarchy.folder for hierarchy in hierarchies if hierarchy.version == 2), None)
        if unified is not None and top is not None and top != unified.folder:
            found = self._chosen(found, unified.folder, top)
        return found

    def _chosen(self, found: dict[str, Place], own: str, top: str) -> dict[str, Place]:
        """Version 2 hands controllers down only from groups without processes. Below our own group is best: what limits us
        limits sandboxes, too. If others live there, below the top, where root may."""
        if all(self._handed(own, name) for name, place in found.items() if place.folder == own and name != UNIFIED):
            return found
        if not os.access(top, os.W_OK):
            return found
        return {name: Place(2, top) if place.folder == own else place for name, place in found.items()}

    def _handed(self, folder: str, name: str) -> bool:
        try:
            if name not in read(f"{folder}/cgroup.subtree_control").split():
                self._hand_down(folder, name)
        except OSError as error:
            self.notes.append(f"{name}: {folder} does not hand it down ({(error.strerror or '').lower()})")
            return False
        return True

    def _hand_down(self, folder: str, name: str) -> None:
        try:
            write(f"{folder}/cgroup.subtree_control", f"+{name}")
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            leaf = f"{folder}/{self.name}{ASIDE}"
            self._remember([leaf])
            step_aside(folder, leaf)
            write(f"{folder}/cgroup.subtree_control", f"+{name}")

    def _open_parent(self, folder: str, here: Mapping[str, Place]) -> bool:
        parent = f"{folder}/{self.name}"
        try:
            remove_cgroups([parent] if os.path.isdir(parent) else [])
            os.mkdir(parent)
        except OSError as error:
            self.notes.append(f"{'/'.join(here)}: {folder} is not writable ({(error.strerror or '').lower()})")
            return False
        except Refused as refused:
            raise NodeError(refused.reason, refused.message) from refused
        for name, place in here.items():
            if place.version == 1 or name == UNIFIED or (self._handed(folder, name) and self._handed(parent, name)):
                self.places[name] = Place(place.version, parent)
        return True

    def _limit(self, here: Mapping[str, Place], limits: Limits) -> None:
        for name in here:
            if (place := self.places.get(name)) is not None:
                more = [weight(place.version, os.cpu_count() or 1)] if name == "cpu" else []
                if name == "memory" and place.version == 1 and limits.memory is not None:
                    page, bounds = os.sysconf("SC_PAGE_SIZE"), read("/proc/sys/net/ipv4/tcp_mem")
                    more = [(SOCKETS, str(socket_bytes_of_all(limits.memory, bounds, page)), False)]
                for file, value, _ in [*settings(place.version, name, limits), *more]:
                    with contextlib.suppress(OSError):
                        write(f"{place.folder}/{file}", value)

    def of(self, tenant: str) -> Groups:
        return Groups(places_of(self.places, tenant))

    def close(self) -> None:
        remove_cgroups(list(dict.fromkeys(place.folder for place in self.places.values())))
        self.places = {}
