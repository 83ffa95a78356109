"""The default runtime: every sandbox in namespaces of its own, forked from one small process.

As root, each sandbox has a range of ids of its own and its root is nobody outside. As an ordinary user, a sandbox is that
user and nobody else. Either way nothing outlives this process.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from pathlib import Path

from sandpool.local.backends.base import Probe
from sandpool.local.backends.namespaces import orders, probing
from sandpool.local.backends.namespaces.cgroups import Cgroups
from sandpool.local.backends.namespaces.forked import kernel
from sandpool.local.backends.namespaces.forked.frames import Refused
from sandpool.local.backends.namespaces.host import make_skeleton
from sandpool.local.backends.namespaces.sandbox import Machine, NamespaceSandbox
from sandpool.local.backends.namespaces.server import ForkServer, isolated
from sandpool.local.backends.namespaces.slots import Slots
from sandpool.local.backends.runtime import Limits, SandboxPlan, without
from sandpool.local.errors import NodeError

FOR_ALL = 0.9  # of the machine's memory and process numbers, at most, for all sandboxes together


class NamespacesRuntime:
    """`folder` is private state; `installation` a short name that no other installation on this machine has; `entry` starts
    the fork-server, with the number of its socket as the last argument."""

    def __init__(self, folder: Path, *, installation: str, entry: tuple[str, ...] | None = None) -> None:
        self._folder = folder
        self._entry = entry or isolated()
        self._cgroups = Cgroups(f"sandpool-{installation}")
        self._slots = Slots(installation)
        self._server: ForkServer | None = None
        self._starting = asyncio.Lock()
        self._probing = asyncio.Lock()
        self._installation = installation
        self._machine = Machine(folder / "host", self._cgroups, os.geteuid() == 0, counts_processes(platform.release()))
        self._sandboxes: set[NamespaceSandbox] = set()

    @property
    def name(self) -> str:
        return "namespaces"

    def unheld(self, limits: Limits) -> str:
        missing = without(limits, self._cgroups.places)
        instead = " Memory is limited for each process by itself." if "memory" in missing else ""
        names = " and ".join(missing)
        return f"Limits of {names} are not held: this user may not write control groups.{instead}" if missing else ""

    async def open(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            async with self._probing:
                Cgroups(f"{self._cgroups.name}-probe").sweep()  # of a process that died while it probed
            self._cgroups.open(for_all_sandboxes())
            try:
                await asyncio.get_running_loop().run_in_executor(None, make_skeleton, self._machine.skeleton)
            except BaseException:  # also when nobody waits for it any more
                self._cgroups.close()
                raise
        except OSError as error:
            raise NodeError("Folder", f"cannot prepare {self._folder}: {error.strerror}") from error

    async def close(self) -> None:
        ends = await asyncio.gather(*(each.destroy() for each in list(self._sandboxes)), return_exceptions=True)
        if self._server is not None:
            await self._server.close()  # and with it all processes, whatever went wrong before
            self._server = None
        try:
            self._cgroups.close()
        except Refused as refused:
            raise NodeError(refused.reason, refused.message) from refused
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def probe(self) -> Probe:
        async with self._probing:
            own = NamespacesRuntime(
                self._folder / "probe", installation=f"{self._installation}-probe", entry=self._entry
            )
            try:
                return await probing.probe(
                    own,
                    self._folder / "probe" / "sandbox",
                    controllers=lambda: frozenset(own._cgroups.places),
                    landlock=kernel.landlock_abi() > 0,
                )
            finally:
                await asyncio.to_thread(shutil.rmtree, self._folder / "probe", ignore_errors=True)

    async def create(self, plan: SandboxPlan) -> NamespaceSandbox:
        orders.check_name(plan.id)
        server = await self.living_server()
        base = self._slots.take() if self._machine.ranged else 0
        if base is None:
            raise NodeError("TooManySandboxes", "all ranges of user ids are in use; end some sandboxes")
        sandbox = NamespaceSandbox(plan, self._machine, server, base, self)
        self._sandboxes.add(sandbox)
        try:
            await sandbox.open()
        except BaseException:
            await asyncio.shield(sandbox.destroy())
            raise
        return sandbox

    def forget(self, sandbox: NamespaceSandbox) -> None:
        if sandbox not in self._sandboxes:
            return
        self._sandboxes.remove(sandbox)
        if self._machine.ranged:
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


def for_all_sandboxes() -> Limits:
    """Together they leave something to the machine and to the process that looks after them."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Limits(memory=int(memory * FOR_ALL), pids=int(pid_max() * FOR_ALL))


def pid_max() -> int:
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 32768


def counts_processes(release: str) -> bool:
    """Since Linux 5.14 a limit on processes counts those of one user namespace, not all of a person's."""
    numbers = release.split(".")[:2]
    return all(each.isdigit() for each in numbers) and tuple(int(each) for each in numbers) >= (5, 14)
