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

from sandpool.node.backend import Probe
from sandpool.node.runtimes.contract import Limits, SandboxPlan, without
from sandpool.node.runtimes.namespaces import orders, probing
from sandpool.node.runtimes.namespaces.forked import kernel, shares
from sandpool.node.runtimes.namespaces.remembered import remembering
from sandpool.node.runtimes.namespaces.runtime_host import PROBE, Nursery, groups_of_probe
from sandpool.node.runtimes.namespaces.sandbox import Machine, NamespaceSandbox
from sandpool.node.runtimes.namespaces.server import isolated


class NamespacesRuntime:
    """`folder` is private state; `installation` a short name that no other installation on this machine has; `entry` starts
    the fork-server, with the number of its socket as the last argument. Not `whole`, sandboxes can run a shell and little else.
    `io_rate`: bytes a second that each may read from, and write to, the disk of that folder."""

    def __init__(
        self, folder: Path, *, installation: str, entry: tuple[str, ...] | None = None, whole: bool = True,
        io_rate: int | None = None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._io_rate = io_rate
        self._entry = entry or isolated()
        self._installation = installation
        self._probing = asyncio.Lock()
        ranged = os.geteuid() == 0
        self._nursery: Nursery[NamespaceSandbox] = Nursery(
            folder, installation, self._entry, ranged=ranged, whole=whole, io_rate=io_rate
        )
        counts = counts_processes(platform.release())
        quotas = {} if ranged else shares.of_one_sandbox(shares.of_this_user())
        self._machine = Machine(
            self._nursery.skeleton, self._nursery.cgroups, self._nursery.tenants, ranged, counts, quotas
        )

    @property
    def name(self) -> str:
        return "namespaces"

    def unheld(self, limits: Limits) -> str:
        missing = without(limits, self._nursery.cgroups.places)
        instead = " Memory is limited for each process by itself." if "memory" in missing else ""
        names = " and ".join(missing)
        held = f"Limits of {names} are not held: this user may not write control groups.{instead}" if missing else ""
        return " ".join(note for note in (held, self._nursery.unheld_io()) if note)

    async def open(self) -> None:
        async with self._probing:  # of a process that died while it probed
            await asyncio.to_thread(groups_of_probe(self._installation, self._folder).sweep)
        await self._nursery.open()

    async def close(self) -> None:
        try:
            await self._nursery.close()
        finally:
            await self._machine.terminals.close()

    async def probe(self) -> Probe:
        async with self._probing:
            return await remembering(self._folder, {"io": str(self._io_rate)}, self._probe)

    async def _probe(self) -> Probe:
        own = NamespacesRuntime(
            self._folder / PROBE, installation=f"{self._installation}-{PROBE}", entry=self._entry, whole=False,
            io_rate=self._io_rate,
        )  # fmt: skip
        try:
            return await probing.probe(
                own,
                self._folder / PROBE / "sandbox",
                controllers=lambda: frozenset(own._nursery.cgroups.places),
                landlock=kernel.landlock_abi() > 0,
            )
        finally:
            await asyncio.to_thread(shutil.rmtree, self._folder / PROBE, ignore_errors=True)

    async def create(self, plan: SandboxPlan) -> NamespaceSandbox:
        orders.check_name(plan.id)
        server = await self._nursery.living_server()
        base = self._nursery.take_ids(plan.tenant)
        return await self._nursery.admit(NamespaceSandbox(plan, self._machine, server, base, self._nursery))


def counts_processes(release: str) -> bool:
    """Since Linux 5.14 a limit on processes counts those of one user namespace, not all of a person's."""
    numbers = release.split(".")[:2]
    return all(each.isdigit() for each in numbers) and tuple(int(each) for each in numbers) >= (5, 14)
