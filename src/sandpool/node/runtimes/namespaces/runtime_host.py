"""What every runtime on the fork-server has of this machine: the server itself, control groups, ranges of ids, and the sandboxes that
live. Opened and closed as a whole: whatever goes wrong, nothing of it stays."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Bandwidth, Limits
from sandpool.node.runtimes.namespaces import disk_bandwidth, machine_numbers
from sandpool.node.runtimes.namespaces.cgroups import Cgroups
from sandpool.node.runtimes.namespaces.forked.cgroup_files import read
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.group_journal import GroupJournal
from sandpool.node.runtimes.namespaces.hierarchies import IO
from sandpool.node.runtimes.namespaces.host import make_skeleton
from sandpool.node.runtimes.namespaces.server import ForkServer
from sandpool.node.runtimes.namespaces.slots import Slots
from sandpool.node.runtimes.namespaces.tenant_groups import TenantGroups
from sandpool.telemetry.log import logger

log = logger(__name__)

JOURNAL = "cgroups.json"
PROBE = "probe"
FOR_ALL = 0.9  # of the machine's memory and process numbers, at most, for all sandboxes together


class Lodger(Protocol):
    """A sandbox as the nursery knows it."""

    @property
    def base(self) -> int: ...

    async def open(self) -> None: ...

    async def destroy(self) -> None: ...


S = TypeVar("S", bound=Lodger)


class Nursery(Generic[S]):
    """`whole`: for any program; a probe needs a shell and no more of the machine's files, which are many."""

    def __init__(
        self, folder: Path, installation: str, entry: tuple[str, ...], *, ranged: bool, whole: bool = True,
        io_rate: int | None = None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._whole = whole
        self.skeleton = folder / "host"
        self.cgroups = groups_of(installation, folder)
        self.tenants = TenantGroups(self.cgroups)
        self._slots = Slots(installation)
        self._ranged = ranged
        self._entry = entry
        self._server: ForkServer | None = None
        self._starting = asyncio.Lock()
        self._preparing: asyncio.Task[None] | None = None
        self._sandboxes: set[S] = set()
        self._io_rate = io_rate
        self._disk = ""

    async def open(self) -> None:
        """Begins to take away what an earlier process left and to lay out what sandboxes need. That may take a while, and only
        the first sandbox waits for it: nothing of this process runs beside what is left of an earlier one."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unprepared(error) from error
        self._prepare()

    async def prepared(self) -> None:
        """Returns when sandboxes can be made. NodeError if something is in the way; the next call tries again."""
        task = self._preparing
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._prepare()
        await asyncio.shield(task)

    def _prepare(self) -> asyncio.Task[None]:
        self._preparing = asyncio.create_task(self._lay_out())
        self._preparing.add_done_callback(_told)
        return self._preparing

    async def _lay_out(self) -> None:
        try:
            await asyncio.to_thread(self._lay_out_now)
        except OSError as error:
            raise self._unprepared(error) from error

    def _lay_out_now(self) -> None:
        self._find_disk()
        if self._ranged:
            machine_numbers.lift()
        self.cgroups.open(for_all_sandboxes())
        make_skeleton(self.skeleton, whole=self._whole)

    def _unprepared(self, error: OSError) -> NodeError:
        return NodeError("Folder", f"cannot prepare {self._folder}: {error.strerror}")

    def _find_disk(self) -> None:
        self._disk = disk_bandwidth.disk_of(self._folder)
        self.cgroups.io = Bandwidth(self._disk, self._io_rate) if self._disk and self._io_rate else None
        self.cgroups.shares_io = disk_bandwidth.weighs(self._disk, read("/sys/fs/cgroup/io.cost.qos"))

    def unheld_io(self) -> str:
        place = self.cgroups.places.get(IO)
        return disk_bandwidth.note(self._io_rate, self._disk, place.version if place else None)

    async def close(self) -> None:
        if self._preparing is not None:
            await asyncio.wait([self._preparing])  # a thread cannot be stopped, and what it makes must be taken away
            self._preparing = None
        ends = await asyncio.gather(*(each.destroy() for each in list(self._sandboxes)), return_exceptions=True)
        if self._server is not None:
            await self._server.close()  # and with it all processes, whatever went wrong before
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
        """The first id of a range that no other sandbox has; 0 where sandboxes have no ranges. Not every one that is begun has
        opened all its files yet: so they are counted, and not only looked at."""
        if len(self._sandboxes) >= descriptors.sandboxes_for(descriptors.allowed()):
            raise NodeError("OutOfDescriptors", descriptors.told())
        base = self._slots.take(tenant) if self._ranged else 0
        if base is None:
            raise NodeError("TooManySandboxes", "all ranges of user ids are in use; end some sandboxes")
        return base

    async def admit(self, sandbox: S) -> S:
        """Opens it; one that cannot be opened is taken away again."""
        self._sandboxes.add(sandbox)
        try:
            await self.prepared()
            await sandbox.open()
        except BaseException:
            await asyncio.shield(sandbox.destroy())
            raise
        return sandbox

    def forget(self, sandbox: S) -> None:
        if sandbox not in self._sandboxes:
            return
        self._sandboxes.remove(sandbox)
        if self._ranged:
            self._slots.give_back(sandbox.base)

    async def living_server(self) -> ForkServer:
        """The fork-server; another one if it died."""
        async with self._starting:
            if self._server is not None and not self._server.alive:
                await self._server.close()
                self._server = None
            if self._server is None:
                server = ForkServer(self._entry)
                await server.start()
                self._server = server
            return self._server


def groups_of(installation: str, folder: Path) -> Cgroups:
    return Cgroups(f"sandpool-{installation}", GroupJournal(folder / JOURNAL))


def groups_of_probe(installation: str, folder: Path) -> Cgroups:
    """Those that a probe of the same runtime had, if it was killed before it took them away."""
    return groups_of(f"{installation}-{PROBE}", folder / PROBE)


def _told(preparing: asyncio.Task[None]) -> None:
    if not preparing.cancelled() and (error := preparing.exception()) is not None:
        log.warning("no sandbox can be made yet", error=str(error))


def for_all_sandboxes() -> Limits:
    """Together they leave something to the machine and to the process that looks after them."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Limits(memory=int(memory * FOR_ALL), pids=int(machine_numbers.processes() * FOR_ALL))
