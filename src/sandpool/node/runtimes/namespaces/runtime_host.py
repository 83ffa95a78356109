"""What all runtimes with a fork server have in common: the server itself, control groups, id ranges, and live sandboxes.

It is opened and closed as a whole. After an error, nothing of it is left.
"""

from __future__ import annotations

import asyncio
import os
import socket
import zlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Bandwidth, FoundSandbox, Limits, Sandbox, SandboxPlan
from sandpool.node.runtimes.namespaces import cgroup_settings, sysctls
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import IO
from sandpool.node.runtimes.namespaces.cgroup_manager import CgroupJournal, CgroupManager
from sandpool.node.runtimes.namespaces.fork_server import ForkServer, close_files
from sandpool.node.runtimes.namespaces.forked.cgroups import read
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.forked.owners import EACH, FIRST
from sandpool.node.runtimes.namespaces.host_skeleton import make_skeleton
from sandpool.node.runtimes.namespaces.shim import RunDirectory, Shim, handle_of, kill_and_wait
from sandpool.node.runtimes.namespaces.tenant_groups import TenantGroups
from sandpool.telemetry.log import logger

RANGES = 4096


@dataclass(slots=True)
class IdRanges:
    """Ranges of user ids for sandboxes, if the runtime is root. Two installations on one machine begin at different ranges.

    Nothing else uses these ids: systemd lists them as unused, and they are far above those of people, daemons and other containers. The kernel
    counts some resources by id (inotify instances, pages of pipes, files in flight), including what an ended sandbox has passed to other
    processes, for as long as they hold it. So a range that a tenant has used goes to the same tenant again, as long as there are others.
    """

    installation: str
    _taken: dict[int, str] = field(default_factory=dict)  # tenants that use a range now, by its first id
    _released: dict[int, str] = field(default_factory=dict)  # tenants that used a range last, longest unused first
    _released_by: dict[str, dict[int, None]] = field(default_factory=dict)  # the same, by tenant
    _fresh: int = 0  # how many ranges were ever used

    def take(self, tenant: str) -> int | None:
        """Takes a range and returns its first id: one that the tenant had before, else one never used, else the one that is unused for the longest
        time. None if all are in use."""
        slot = self._choose(tenant)
        if slot is None:
            return None
        self._taken[slot] = tenant
        return FIRST + slot * EACH

    def _choose(self, tenant: str) -> int | None:
        while tenant not in self._released_by and self._fresh < RANGES:
            self._fresh += 1
            fresh = (zlib.crc32(self.installation.encode()) + self._fresh - 1) % RANGES
            if fresh not in self._taken and fresh not in self._released:
                return fresh
        slot = next(iter(self._released_by.get(tenant, self._released)), None)
        if slot is not None:
            last = self._released.pop(slot)
            del self._released_by[last][slot]
            if not self._released_by[last]:
                del self._released_by[last]
        return slot

    def take_over(self, base: int, tenant: str) -> None:
        """Marks the range of a sandbox that an earlier process has made as used."""
        self._taken[(base - FIRST) // EACH] = tenant

    def give_back(self, base: int) -> None:
        slot = (base - FIRST) // EACH
        tenant = self._taken.pop(slot, None)
        if tenant is not None:
            self._released[slot] = tenant
            self._released_by.setdefault(tenant, {})[slot] = None


log = logger(__name__)

JOURNAL = "cgroups.json"
PROBE = "probe"
FOR_ALL = 0.9  # the part of the machine's memory and pids that all sandboxes together may use


class HostedSandbox(Sandbox, Protocol):
    """A sandbox as its runtime host knows it."""

    @property
    def base(self) -> int: ...

    @property
    def plan(self) -> SandboxPlan: ...

    async def open(self) -> None: ...


S = TypeVar("S", bound=HostedSandbox)


class RuntimeHost(Generic[S]):
    """The shared part of a runtime. With `whole`, the skeleton is enough for any program; a probe only needs a shell, and is faster with less."""

    def __init__(
        self, directory: Path, installation: str, entry: tuple[str, ...], *, ranged: bool, whole: bool = True,
        io_rate: int | None = None, lasting: bool = False,
    ) -> None:  # fmt: skip
        self._directory = directory
        self._shims = shims_of(directory)
        self._lasting = lasting
        self._whole = whole
        self.skeleton = directory / "host"
        self.cgroups = groups_of(installation, directory)
        self.tenants = TenantGroups(self.cgroups)
        self._slots = IdRanges(installation)
        self._ranged = ranged
        self._entry = entry
        self._server: ForkServer | None = None
        self._starting = asyncio.Lock()
        self._preparing: asyncio.Task[None] | None = None
        self._sandboxes: set[S] = set()
        self._io_rate = io_rate
        self._disk = ""

    async def open(self) -> None:
        """Starts, in the background, to remove what an earlier process left and to prepare what sandboxes need. The first sandbox waits for that, so
        that no sandbox of this process runs next to leftovers of an earlier one."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unprepared(error) from error
        self._prepare()

    async def prepared(self) -> None:
        """Waits until sandboxes can be created. NodeError if the preparation failed; the next call tries again."""
        task = self._preparing
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._prepare()
        await asyncio.shield(task)

    def _prepare(self) -> asyncio.Task[None]:
        self._preparing = asyncio.create_task(self._lay_out())
        self._preparing.add_done_callback(_log_failure)
        return self._preparing

    async def _lay_out(self) -> None:
        try:
            await asyncio.to_thread(self._lay_out_now)
        except OSError as error:
            raise self._unprepared(error) from error

    def _lay_out_now(self) -> None:
        self._find_disk()
        if self._ranged:
            sysctls.raise_limits()
        self.cgroups.open(for_all_sandboxes(), keep=self._left_running())
        make_skeleton(self.skeleton, whole=self._whole)

    def _left_running(self) -> bool:
        """Whether an earlier process left sandboxes that still run. If nobody can take them over, they are ended."""
        if not self._lasting:
            self._shims.end_all()
            return False
        living = self._shims.living()
        close_files(list(living.values()))
        return bool(living)

    def _unprepared(self, error: OSError) -> NodeError:
        return NodeError("Folder", f"cannot prepare {self._directory}: {error.strerror}")

    def _find_disk(self) -> None:
        self._disk = cgroup_settings.disk_of(self._directory)
        self.cgroups.io = Bandwidth(self._disk, self._io_rate) if self._disk and self._io_rate else None
        self.cgroups.shares_io = cgroup_settings.shares_by_weight(self._disk, read("/sys/fs/cgroup/io.cost.qos"))

    def unheld_io(self) -> str:
        place = self.cgroups.places.get(IO)
        return cgroup_settings.io_note(self._io_rate, self._disk, place.version if place else None)

    async def close(self) -> None:
        if self._preparing is not None:
            await asyncio.wait(
                [self._preparing]
            )  # a thread cannot be cancelled, and what it creates must be removed below
            self._preparing = None
        ends = await asyncio.gather(*(each.destroy() for each in list(self._sandboxes)), return_exceptions=True)
        if self._server is not None:
            await self._server.close()  # ends all processes, too, whatever went wrong before
            self._server = None
        await self.tenants.close()
        try:
            self.cgroups.close()
        except Refused as refused:
            raise NodeError(refused.reason, refused.message) from refused
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def take_ids(self, tenant: str) -> int:
        """The first id of a range that no other sandbox has; 0 if sandboxes have no ranges. Also checks the number of live sandboxes against the
        limit of open files: counting open files would not do, because sandboxes that are starting have not opened theirs yet."""
        if len(self._sandboxes) >= descriptors.sandboxes_for(descriptors.allowed()):
            raise NodeError("OutOfDescriptors", descriptors.limit_message())
        base = self._slots.take(tenant) if self._ranged else 0
        if base is None:
            raise NodeError("TooManySandboxes", "all ranges of user ids are in use; end some sandboxes")
        return base

    async def admit(self, sandbox: S) -> S:
        """Opens the sandbox; one that cannot be opened is removed again."""
        self._sandboxes.add(sandbox)
        try:
            await self.prepared()
            await sandbox.open()
        except BaseException:
            await asyncio.shield(sandbox.destroy())
            raise
        return sandbox

    async def find(self, take_over: Callable[[Shim], Awaitable[FoundSandbox[S]]]) -> list[FoundSandbox[S]]:
        """Takes over the sandboxes that an earlier process left running. Ends and removes those that cannot be taken over."""
        await self.prepared()
        found = []
        for name in self._shims.sandboxes():
            connection = self._shims.connect(name)
            sandbox = None if connection is None else await self._find_one(name, connection, take_over)
            if sandbox is None:
                self._shims.forget(name)
            else:
                found.append(sandbox)
        await asyncio.to_thread(self.cgroups.remove_others, {each.plan.id for each in found})
        return found

    async def _find_one(
        self, name: str, connection: socket.socket, take_over: Callable[[Shim], Awaitable[FoundSandbox[S]]]
    ) -> FoundSandbox[S] | None:
        handle = handle_of(connection)
        try:
            found = await take_over(await Shim.attach(connection))
        except NodeError as error:
            log.warning("a running sandbox cannot be taken over, and is ended", sandbox=name, error=error.message)
            if handle is not None:  # also of one that does not answer: its pod must not run twice
                await asyncio.to_thread(kill_and_wait, handle)
            return None
        finally:
            close_files([] if handle is None else [handle])
        self._sandboxes.add(found.sandbox)
        if self._ranged:
            self._slots.take_over(found.sandbox.base, found.plan.tenant)
        return found

    @property
    def sandboxes(self) -> Collection[S]:
        return tuple(self._sandboxes)

    def forget(self, sandbox: S) -> None:
        if sandbox not in self._sandboxes:
            return
        self._sandboxes.remove(sandbox)
        if self._ranged:
            self._slots.give_back(sandbox.base)

    async def living_server(self) -> ForkServer:
        """The fork server; a new one if it died."""
        async with self._starting:
            if self._server is not None and not self._server.alive:
                await self._server.close()
                self._server = None
            if self._server is None:
                server = ForkServer(self._entry)
                await server.start()
                self._server = server
            return self._server


def shims_of(directory: Path) -> RunDirectory:
    """Where the shims of a runtime with this directory listen."""
    return RunDirectory(directory / "shims")


def groups_of(installation: str, directory: Path) -> CgroupManager:
    return CgroupManager(f"sandpool-{installation}", CgroupJournal(directory / JOURNAL))


def groups_of_probe(installation: str, directory: Path) -> CgroupManager:
    """The control groups that a probe of the same runtime left, if it was killed."""
    return groups_of(f"{installation}-{PROBE}", directory / PROBE)


def _log_failure(preparing: asyncio.Task[None]) -> None:
    if not preparing.cancelled() and (error := preparing.exception()) is not None:
        log.warning("sandboxes cannot be created yet", error=str(error))


def for_all_sandboxes() -> Limits:
    """The limits of all sandboxes together. They leave a part to the machine and to this process."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Limits(memory=int(memory * FOR_ALL), pids=int(sysctls.process_limit() * FOR_ALL))
