"""The runtime `gvisor`: runsc gives every pod its own kernel.

As root, each sandbox has its own range of ids, and its root is an unprivileged user outside. As an ordinary user, every sandbox has only
that user's id. Either way runsc sees nothing of the machine's files and network, and nothing outlives this process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.backend import Probe
from sandpool.node.runtimes.contract import FoundSandbox, Limits, SandboxPlan, without
from sandpool.node.runtimes.gvisor import probe
from sandpool.node.runtimes.gvisor.sandbox import GvisorSandbox, Machine
from sandpool.node.runtimes.namespaces.fork_server import isolated_python
from sandpool.node.runtimes.namespaces.probe import cached_probe
from sandpool.node.runtimes.namespaces.runtime_host import PROBE, RuntimeHost, groups_of_probe

VARIABLE = "SANDPOOL_RUNSC"
ENTRY = isolated_python("from sandpool.node.runtimes.gvisor.forked.shim import main; main()")


def gvisor(installation: str) -> str:
    """The installation name for this runtime, so that its control groups and ids differ from those of `namespaces`."""
    return f"gvisor-{installation}"


class GvisorRuntime:
    """The runtime. `directory` is its private state. `installation` is a short name, unique on this machine. `runsc` is the program; by default
    the one in SANDPOOL_RUNSC or on PATH."""

    def __init__(
        self, directory: Path, *, installation: str, runsc: Path | None = None, io_rate: int | None = None
    ) -> None:
        self._io_rate = io_rate
        self._directory = directory
        self._installation = installation
        self._given = runsc or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
        self._probing = asyncio.Lock()
        ranged = os.geteuid() == 0
        self.runtime_host: RuntimeHost[GvisorSandbox] = RuntimeHost(
            directory, gvisor(installation), ENTRY, ranged=ranged, io_rate=io_rate
        )
        self._machine = Machine(
            self.runtime_host.skeleton, self.runtime_host.cgroups, self.runtime_host.tenants, ranged
        )
        self._runsc: probe.Runsc | None = None

    @property
    def name(self) -> str:
        return "gvisor"

    def unheld(self, limits: Limits) -> str:
        missing = " and ".join(without(limits, self.runtime_host.cgroups.places))
        held = f"Limits of {missing} are not held: this user may not write control groups." if missing else ""
        return " ".join(note for note in (held, self.runtime_host.unheld_io()) if note)

    async def open(self) -> None:
        self._runsc = await probe.ask_version(self._given)
        async with self._probing:  # removes what a process left that died while it probed
            await asyncio.to_thread(groups_of_probe(gvisor(self._installation), self._directory).sweep)
        await self.runtime_host.open()

    async def close(self) -> None:
        await self.runtime_host.close()

    async def probe(self) -> Probe:
        try:
            program = probe.find_runsc(self._given)
            facts = {
                "runsc": f"{program} {program.stat().st_mtime_ns} {program.stat().st_size}",
                "io": str(self._io_rate),
            }
        except (NodeError, OSError):
            facts = {}  # the probe will report what is wrong with it
        async with self._probing:
            return await cached_probe(self._directory, facts, self._probe)

    async def _probe(self) -> Probe:
        own = GvisorRuntime(
            self._directory / PROBE,
            installation=f"{self._installation}-{PROBE}",
            runsc=self._given,
            io_rate=self._io_rate,
        )
        directory = self._directory / PROBE / "sandbox"
        try:
            return await probe.probe(own, directory, lambda: frozenset(own.runtime_host.cgroups.places))
        finally:
            await asyncio.to_thread(shutil.rmtree, self._directory / PROBE, ignore_errors=True)

    async def create(self, plan: SandboxPlan) -> GvisorSandbox:
        if self._runsc is None:
            raise NodeError("Gvisor", "the runtime is not open")
        server = await self.runtime_host.living_server()
        base = self.runtime_host.take_ids(plan.tenant)
        runsc = self._runsc.path
        return await self.runtime_host.admit(GvisorSandbox(plan, self._machine, runsc, server, base, self.runtime_host))

    async def find(self) -> list[FoundSandbox[GvisorSandbox]]:
        return []
