"""The default runtime: every sandbox has its own namespaces and is forked from one small process.

As root, each sandbox has its own range of ids, and its root is an unprivileged user outside. As an ordinary user, every sandbox has
only that user's id. Sandboxes belong to the machine: they outlive the fork-server and, if the runtime is `lasting`, this process, too.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from pathlib import Path

from sandpool.node.backend import Probe
from sandpool.node.runtimes.contract import FoundSandbox, Limits, SandboxPlan, without
from sandpool.node.runtimes.namespaces import probe, spawn_requests
from sandpool.node.runtimes.namespaces.fork_server import isolated_python
from sandpool.node.runtimes.namespaces.forked import kernel, namespaces
from sandpool.node.runtimes.namespaces.machine import Machine
from sandpool.node.runtimes.namespaces.probe import cached_probe
from sandpool.node.runtimes.namespaces.runtime_host import PROBE, RuntimeHost, groups_of_probe, shims_of
from sandpool.node.runtimes.namespaces.sandbox import NamespaceSandbox
from sandpool.node.runtimes.namespaces.socket_memory import SocketMemoryGuard
from sandpool.node.runtimes.namespaces.takeover import take_over
from sandpool.node.runtimes.namespaces.uncharged_memory import UnchargedMemoryGuard


class NamespacesRuntime:
    """The runtime. `directory` is its private state. `installation` is a short name, unique on this machine. `entry` is the command line of the
        fork-server, to which the number of its socket is appended. Without `whole`, sandboxes can run a shell and little else. `io_rate` limits
        each sandbox's reads from, and writes to, the disk of that directory, in bytes per second. `lasting`: sandboxes stay when this process dies, and
    the next one finds them."""

    def __init__(
        self, directory: Path, *, installation: str, entry: tuple[str, ...] | None = None, whole: bool = True,
        io_rate: int | None = None, lasting: bool = False,
    ) -> None:  # fmt: skip
        self._directory = directory
        self._lasting = lasting
        self._io_rate = io_rate
        self._entry = entry or isolated_python()
        self._installation = installation
        self._probing = asyncio.Lock()
        ranged = os.geteuid() == 0
        self.runtime_host: RuntimeHost[NamespaceSandbox] = RuntimeHost(
            directory, installation, self._entry, ranged=ranged, whole=whole, io_rate=io_rate, lasting=lasting
        )
        self.socket_memory = SocketMemoryGuard(
            lambda: self.runtime_host.cgroups.places, lambda: self.runtime_host.sandboxes
        )
        self.uncharged_memory = UnchargedMemoryGuard(lambda: self.runtime_host.sandboxes)
        counts = counts_processes(platform.release())
        quotas = {} if ranged else namespaces.sandbox_quotas(namespaces.user_quotas())
        self.machine = Machine(
            self.runtime_host.skeleton, self.runtime_host.cgroups, self.runtime_host.tenants, ranged, counts, quotas,
            run_directory=shims_of(directory) if lasting else None,
        )  # fmt: skip

    @property
    def name(self) -> str:
        return "namespaces"

    def unheld(self, limits: Limits) -> str:
        missing = without(limits, self.runtime_host.cgroups.places)
        instead = " Memory is limited for each process by itself." if "memory" in missing else ""
        names = " and ".join(missing)
        held = f"Limits of {names} are not held: this user may not write control groups.{instead}" if missing else ""
        return " ".join(note for note in (held, self.runtime_host.unheld_io()) if note)

    async def open(self) -> None:
        async with self._probing:  # removes what a process left that died while it probed
            await asyncio.to_thread(groups_of_probe(self._installation, self._directory).sweep)
        await self.runtime_host.open()

    async def close(self) -> None:
        await self.socket_memory.close()
        await self.uncharged_memory.close()
        try:
            await self.runtime_host.close()
        finally:
            await self.machine.terminals.close()

    async def probe(self) -> Probe:
        async with self._probing:
            return await cached_probe(self._directory, {"io": str(self._io_rate)}, self._probe)

    async def _probe(self) -> Probe:
        own = NamespacesRuntime(
            self._directory / PROBE, installation=f"{self._installation}-{PROBE}", entry=self._entry, whole=False,
            io_rate=self._io_rate,
        )  # fmt: skip
        try:
            return await probe.probe(
                own,
                self._directory / PROBE / "sandbox",
                controllers=lambda: frozenset(own.runtime_host.cgroups.places),
                landlock=kernel.landlock_abi() > 0,
            )
        finally:
            await asyncio.to_thread(shutil.rmtree, self._directory / PROBE, ignore_errors=True)

    async def create(self, plan: SandboxPlan) -> NamespaceSandbox:
        spawn_requests.check_name(plan.id)
        base = self.runtime_host.take_ids(plan.tenant)
        sandbox = NamespaceSandbox(plan, self.machine, base, self.runtime_host)
        await self.runtime_host.admit(sandbox)
        self.socket_memory.wake()
        self.uncharged_memory.wake()
        return sandbox

    async def find(self) -> list[FoundSandbox[NamespaceSandbox]]:
        if not self._lasting:
            return []
        found = await self.runtime_host.find(lambda shim: take_over(shim, self.machine, self.runtime_host))
        if found:
            self.socket_memory.wake()
            self.uncharged_memory.wake()
        return found


def counts_processes(release: str) -> bool:
    """Whether RLIMIT_NPROC counts the processes of one user namespace, as since Linux 5.14, and not all processes of the user."""
    numbers = release.split(".")[:2]
    return all(each.isdigit() for each in numbers) and tuple(int(each) for each in numbers) >= (5, 14)
