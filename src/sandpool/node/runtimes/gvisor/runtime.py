"""The runtime `gvisor`: every pod on a kernel of its own, run by runsc.

As root, each sandbox has a range of ids of its own and its root is nobody outside; as an ordinary user, a sandbox is that user
and nobody else. Either way runsc sees nothing of the machine's files and network, and nothing outlives this process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.backend import Probe
from sandpool.node.runtimes.contract import Limits, SandboxPlan, without
from sandpool.node.runtimes.gvisor import binary, probing
from sandpool.node.runtimes.gvisor.sandbox import GvisorSandbox, Machine
from sandpool.node.runtimes.namespaces.remembered import remembering
from sandpool.node.runtimes.namespaces.runtime_host import PROBE, Nursery, groups_of_probe
from sandpool.node.runtimes.namespaces.server import isolated

VARIABLE = "SANDPOOL_RUNSC"
ENTRY = isolated("from sandpool.node.runtimes.gvisor.forked.entry import main; main()")


def gvisor(installation: str) -> str:
    """Its control groups and ids are not those of the runtime `namespaces`."""
    return f"gvisor-{installation}"


class GvisorRuntime:
    """`folder` is private state; `installation` a short name that no other installation on this machine has; `runsc` the
    program, if it is not the one that SANDPOOL_RUNSC names or PATH has."""

    def __init__(
        self, folder: Path, *, installation: str, runsc: Path | None = None, io_rate: int | None = None
    ) -> None:
        self._io_rate = io_rate
        self._folder = folder
        self._installation = installation
        self._given = runsc or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
        self._probing = asyncio.Lock()
        ranged = os.geteuid() == 0
        self._nursery: Nursery[GvisorSandbox] = Nursery(
            folder, gvisor(installation), ENTRY, ranged=ranged, io_rate=io_rate
        )
        self._machine = Machine(self._nursery.skeleton, self._nursery.cgroups, self._nursery.tenants, ranged)
        self._runsc: binary.Runsc | None = None

    @property
    def name(self) -> str:
        return "gvisor"

    def unheld(self, limits: Limits) -> str:
        missing = " and ".join(without(limits, self._nursery.cgroups.places))
        held = f"Limits of {missing} are not held: this user may not write control groups." if missing else ""
        return " ".join(note for note in (held, self._nursery.unheld_io()) if note)

    async def open(self) -> None:
        self._runsc = await binary.ask(self._given)
        async with self._probing:  # of a process that died while it probed
            await asyncio.to_thread(groups_of_probe(gvisor(self._installation), self._folder).sweep)
        await self._nursery.open()

    async def close(self) -> None:
        await self._nursery.close()

    async def probe(self) -> Probe:
        try:
            program = binary.find(self._given)
            facts = {
                "runsc": f"{program} {program.stat().st_mtime_ns} {program.stat().st_size}",
                "io": str(self._io_rate),
            }
        except (NodeError, OSError):
            facts = {}  # the probe says what is wrong with it
        async with self._probing:
            return await remembering(self._folder, facts, self._probe)

    async def _probe(self) -> Probe:
        own = GvisorRuntime(
            self._folder / PROBE, installation=f"{self._installation}-{PROBE}", runsc=self._given, io_rate=self._io_rate
        )
        folder = self._folder / PROBE / "sandbox"
        try:
            return await probing.probe(own, folder, lambda: frozenset(own._nursery.cgroups.places))
        finally:
            await asyncio.to_thread(shutil.rmtree, self._folder / PROBE, ignore_errors=True)

    async def create(self, plan: SandboxPlan) -> GvisorSandbox:
        if self._runsc is None:
            raise NodeError("Gvisor", "the runtime is not open")
        server = await self._nursery.living_server()
        base = self._nursery.take_ids(plan.tenant)
        runsc = self._runsc.path
        return await self._nursery.admit(GvisorSandbox(plan, self._machine, runsc, server, base, self._nursery))
