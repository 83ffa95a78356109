"""The cgroup manager of one installation: creates the parent groups of its sandboxes and removes what earlier processes left.

Controllers may be on version 1, on version 2, or some on each. Each is used where it is, below the group of this process. A limit that
cannot be written is not enforced, and a note says so.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Bandwidth, Limits
from sandpool.node.runtimes.namespaces import cgroup_settings
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import (
    IO,
    UNIFIED,
    CgroupReader,
    ControllerPath,
    locate_controllers,
    parse_membership,
    parse_mounts,
)
from sandpool.node.runtimes.namespaces.cgroup_settings import (
    SOCKETS,
    by_hierarchy,
    places_of,
    settings,
    socket_bytes_of_all,
    weight,
)
from sandpool.node.runtimes.namespaces.forked.cgroups import read, remove_cgroups, write
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.forked.processes import descendants, listed

MOST_BYTES = 1 << 20


def own_groups(paths: Iterable[str], name: str, mounted: Sequence[str]) -> list[str]:
    """The paths that are groups of this installation: by their last component, below a mounted hierarchy, without `..`."""
    found = []
    for path in dict.fromkeys(paths):
        parent, _, last = path.rpartition("/")
        straight = os.path.normpath(path) == path
        if straight and last == name and any(parent == top or parent.startswith(f"{top}/") for top in mounted):
            found.append(path)
    return found


@dataclass(frozen=True, slots=True)
class CgroupJournal:
    """A list of the control groups that this installation has created, in its data directory. With it, a later process finds them even if it
    runs in another control group than the process that was killed.

    A path is written durably before the group is created. The file is only a hint: a group is removed only if it has this installation's name
    and is below a hierarchy that is mounted here. A damaged file counts as empty.
    """

    file: Path

    def read(self) -> list[str]:
        try:
            with self.file.open("rb") as file:
                found = json.loads(file.read(MOST_BYTES))
        except (OSError, ValueError):
            return []
        return [path for path in found if isinstance(path, str)] if isinstance(found, list) else []

    def add(self, paths: Iterable[str]) -> None:
        """Adds paths durably. Writes nothing if all are there."""
        known = self.read()
        if new := [path for path in dict.fromkeys(paths) if path not in known]:
            self._write([*known, *new])

    def keep(self, paths: Iterable[str]) -> None:
        """Drops all other paths."""
        if kept := [path for path in self.read() if path in set(paths)]:
            self._write(kept)
        else:
            self.file.unlink(missing_ok=True)

    def _write(self, paths: list[str]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self.file.with_suffix(".new")
        with temporary.open("w") as file:
            json.dump(paths, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.file)
        directory = os.open(self.file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _mount_of(path: str, mounts: Sequence[str]) -> str:
    """The hierarchy that a group is on, by where it is mounted."""
    return max((top for top in mounts if path == top or path.startswith(f"{top}/")), key=len, default="")


def remove_empty(paths: Iterable[str]) -> None:
    """Removes groups that are empty. Others stay, because processes that are not ours may be in them."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.rmdir(path)


ASIDE = "-main"


def step_aside(directory: str, leaf: str) -> None:
    """Moves this process and its children into a subgroup, if no other process is in the group."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        family = {os.getpid(), *descendants(listed(proc), os.getpid())}
    finally:
        os.close(proc)
    members = [int(pid) for pid in read(f"{directory}/cgroup.procs").split()]
    if not family.issuperset(members):
        raise OSError(errno.EBUSY, "others are in the same group", directory)
    with contextlib.suppress(FileExistsError):
        os.mkdir(leaf)
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            write(f"{leaf}/cgroup.procs", str(pid))


@dataclass(slots=True)
class CgroupManager:
    """The groups of one installation. `places` are the parents of its sandbox and tenant groups, by controller. `journal` lists them for later
    processes."""

    name: str
    journal: CgroupJournal | None = None
    places: dict[str, ControllerPath] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    io: Bandwidth | None = None  # of each sandbox
    shares_io: bool = False  # whether the disk is shared by group, so that I/O groups help even without a limit

    def open(self, limits: Limits, *, keep: bool = False) -> None:
        """Removes what an earlier process left, and creates the parents; `limits` are those of all sandboxes together. `keep`: sandboxes of an earlier
        process still run, and the parents stay where they are, also if this process runs in another control group."""
        self.places, self.notes = {}, []
        located = self._where_they_were(self._located()) if keep else self._located()
        if not self._uses_io and (place := located.pop(IO, None)) is not None:
            with contextlib.suppress(Refused):  # left by an earlier process that used it
                remove_cgroups([f"{place.directory}/{self.name}"])
        used = by_hierarchy(located)
        parents = [f"{directory}/{self.name}" for directory in used]
        self._remember(parents)
        try:
            self.remove_leftovers(keep=parents)
        except Refused as refused:
            raise NodeError(refused.reason, refused.message) from refused
        for directory, here in used.items():
            if self._open_parent(directory, here, keep=keep):
                self._limit(here, limits)
        self._check_io()

    def _check_io(self) -> None:
        """Checks that the limit's file exists: a kernel may have the controller but not the limit."""
        place = self.places.get(IO)
        if place is None or self.io is None:
            return
        wanted = cgroup_settings.io_settings(place.version, self.io)
        if all(os.path.exists(f"{place.directory}/{file}") for file, _, _ in wanted):
            return
        self.notes.append(f"{IO}: this kernel cannot limit it")
        del self.places[IO]
        if place.version == 1:
            remove_cgroups([place.directory])

    @property
    def _uses_io(self) -> bool:
        return self.io is not None or self.shares_io

    def sweep(self) -> None:
        """Removes what an earlier process left, and creates nothing."""
        for directory in by_hierarchy(self._located()):
            with contextlib.suppress(Refused):
                remove_cgroups([f"{directory}/{self.name}"])
        with contextlib.suppress(Refused):
            self.remove_leftovers()

    def leftover_groups(self) -> list[str]:
        """Groups of earlier processes that still exist, from the journal, wherever those processes ran."""
        return self._written_down(self.name)

    def remove_leftovers(self, keep: Sequence[str] = ()) -> None:
        """Removes leftover groups and kills the processes in them. Refused if one cannot be removed. Removed groups are dropped from the journal."""
        if self.journal is None:
            return
        remove_cgroups([path for path in self.leftover_groups() if path not in keep])
        aside = f"{self.name}{ASIDE}"
        remove_empty(
            self._written_down(aside)
        )  # not empty if this process, or the one that started the earlier one, is in it
        self.journal.keep([*keep, *self._written_down(aside)])

    def _written_down(self, name: str) -> list[str]:
        if self.journal is None:
            return []
        mounted = [hierarchy.directory for hierarchy in parse_mounts(read("/proc/self/mountinfo"))]
        return [path for path in own_groups(self.journal.read(), name, mounted) if os.path.isdir(path)]

    def _remember(self, paths: Sequence[str]) -> None:
        if self.journal is not None:
            self.journal.add(paths)

    def _located(self) -> dict[str, ControllerPath]:
        hierarchies, membership = (
            parse_mounts(read("/proc/self/mountinfo")),
            parse_membership(read("/proc/self/cgroup")),
        )
        membership = {name: path.removesuffix(f"/{self.name}{ASIDE}") for name, path in membership.items()}
        unified = locate_controllers(hierarchies, membership, frozenset()).get(UNIFIED)
        offered = frozenset(read(f"{unified.directory}/cgroup.controllers").split() if unified else [])
        found = locate_controllers(hierarchies, membership, offered if self._uses_io else offered - {IO})
        top = next((hierarchy.directory for hierarchy in hierarchies if hierarchy.version == 2), None)
        if unified is not None and top is not None and top != unified.directory:
            found = self._chosen(found, unified.directory, top)
        return found

    def _chosen(self, found: dict[str, ControllerPath], own: str, top: str) -> dict[str, ControllerPath]:
        """Chooses where to create our groups. Version 2 delegates controllers only from groups without processes. Our own group is the best
        parent, because its limits then apply to sandboxes, too. If other processes are in it, root uses the top of the hierarchy instead."""
        if all(self._handed(own, name) for name, place in found.items() if place.directory == own and name != UNIFIED):
            return found
        if not os.access(top, os.W_OK):
            return found
        return {name: ControllerPath(2, top) if place.directory == own else place for name, place in found.items()}

    def _handed(self, directory: str, name: str) -> bool:
        try:
            if name not in read(f"{directory}/cgroup.subtree_control").split():
                self._hand_down(directory, name)
        except OSError as error:
            self.notes.append(f"{name}: {directory} does not hand it down ({(error.strerror or '').lower()})")
            return False
        return True

    def _hand_down(self, directory: str, name: str) -> None:
        try:
            write(f"{directory}/cgroup.subtree_control", f"+{name}")
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            leaf = f"{directory}/{self.name}{ASIDE}"
            self._remember([leaf])
            step_aside(directory, leaf)
            write(f"{directory}/cgroup.subtree_control", f"+{name}")

    def _where_they_were(self, located: dict[str, ControllerPath]) -> dict[str, ControllerPath]:
        """The same controllers, but below the existing groups of an earlier process on the same hierarchy."""
        mounts = [hierarchy.directory for hierarchy in parse_mounts(read("/proc/self/mountinfo"))]
        was = {_mount_of(path, mounts): os.path.dirname(path) for path in self.leftover_groups()}
        return {
            name: ControllerPath(place.version, was.get(_mount_of(place.directory, mounts), place.directory))
            for name, place in located.items()
        }

    def remove_others(self, living: Collection[str]) -> None:
        """Removes the groups of sandboxes that are not among these: their shim ended while no process looked after them."""
        for parent in dict.fromkeys(place.directory for place in self.places.values()):
            own = [entry.path for entry in os.scandir(parent) if entry.is_dir()]
            tenants = [path for path in own if os.path.basename(path).startswith(cgroup_settings.TENANT)]
            below = [entry.path for path in tenants for entry in os.scandir(path) if entry.is_dir()]
            found = [path for path in (*own, *below) if path not in tenants]
            with contextlib.suppress(Refused):
                remove_cgroups([path for path in found if os.path.basename(path) not in living])

    def _open_parent(self, directory: str, here: Mapping[str, ControllerPath], *, keep: bool) -> bool:
        parent = f"{directory}/{self.name}"
        try:
            if not keep or not os.path.isdir(parent):
                remove_cgroups([parent] if os.path.isdir(parent) else [])
                os.mkdir(parent)
        except OSError as error:
            self.notes.append(f"{'/'.join(here)}: {directory} is not writable ({(error.strerror or '').lower()})")
            return False
        except Refused as refused:
            raise NodeError(refused.reason, refused.message) from refused
        for name, place in here.items():
            if place.version == 1 or name == UNIFIED or (self._handed(directory, name) and self._handed(parent, name)):
                self.places[name] = ControllerPath(place.version, parent)
        return True

    def _limit(self, here: Mapping[str, ControllerPath], limits: Limits) -> None:
        for name in here:
            if (place := self.places.get(name)) is not None:
                more = [weight(place.version, os.cpu_count() or 1)] if name == "cpu" else []
                if name == "memory" and place.version == 1 and limits.memory is not None:
                    page, bounds = os.sysconf("SC_PAGE_SIZE"), read("/proc/sys/net/ipv4/tcp_mem")
                    more = [(SOCKETS, str(socket_bytes_of_all(limits.memory, bounds, page)), False)]
                for file, value, _ in [*settings(place.version, name, limits), *more]:
                    with contextlib.suppress(OSError):
                        write(f"{place.directory}/{file}", value)

    def of(self, tenant: str) -> CgroupReader:
        return CgroupReader(places_of(self.places, tenant))

    def close(self) -> None:
        remove_cgroups(list(dict.fromkeys(place.directory for place in self.places.values())))
        self.places = {}
