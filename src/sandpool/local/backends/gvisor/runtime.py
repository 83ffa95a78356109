"""The runtime `gvisor`: every pod on a kernel of its own, run by runsc.

As root, each sandbox has a range of ids of its own and its root is nobody outside; as an ordinary user, a sandbox is that user
and nobody else. Either way runsc sees nothing of the machine's files and network, and nothing outlives this process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import sandpool
from sandpool.local.backends.base import Probe
from sandpool.local.backends.gvisor import binary, probing
from sandpool.local.backends.gvisor.sandbox import GvisorSandbox, Machine
from sandpool.local.backends.namespaces.cgroups import Cgroups
from sandpool.local.backends.namespaces.host import make_skeleton
from sandpool.local.backends.namespaces.runtime import for_all_sandboxes
from sandpool.local.backends.namespaces.server import ForkServer
from sandpool.local.backends.namespaces.slots import Slots
from sandpool.local.backends.runtime import Limits, SandboxPlan, without
from sandpool.local.errors import NodeError

VARIABLE = "SANDPOOL_RUNSC"


def entry() -> tuple[str, ...]:
    """Isolated from the environment and the user's packages; only our own package can be imported besides the library."""
    folder = str(Path(sandpool.__file__).parents[1])
    code = (
        f"import sys; sys.path.append({folder!r}); from sandpool.local.backends.gvisor.forked.entry import main; main()"
    )
    return (sys.executable, "-I", "-S", "-c", code)


class GvisorRuntime:
    """`folder` is private state; `installation` a short name that no other installation on this machine has; `runsc` the
    program, if it is not the one that SANDPOOL_RUNSC names or PATH has."""

    def __init__(self, folder: Path, *, installation: str, runsc: Path | None = None) -> None:
        self._folder = folder
        self._installation = installation
        self._given = runsc or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
        self._cgroups = Cgroups(f"sandpool-gvisor-{installation}")
        self._slots = Slots(f"gvisor-{installation}")
        self._machine = Machine(folder / "host", self._cgroups, os.geteuid() == 0)
        self._runsc: binary.Runsc | None = None
        self._server: ForkServer | None = None
        self._starting = asyncio.Lock()
        self._probing = asyncio.Lock()
        self._sandboxes: set[GvisorSandbox] = set()

    @property
    def name(self) -> str:
        return "gvisor"

    def unheld(self, limits: Limits) -> str:
        missing = " and ".join(without(limits, self._cgroups.places))
        return f"Limits of {missing} are not held: this user may not write control groups." if missing else ""

    async def open(self) -> None:
        self._runsc = await binary.ask(self._given)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._cgroups.open(for_all_sandboxes())
            try:
                await asyncio.get_running_loop().run_in_executor(None, make_skeleton, self._machine.skeleton)
            except BaseException:  # also when nobody waits for it any more
                self._cgroups.close()
                raise
        except OSError as error:
            raise NodeError("Folder", f"cannot prepare {self._folder}: {error.strerror}") from error

    async def close(self) -> None:
        await asyncio.gather(*(each.destroy() for each in list(self._sandboxes)))
        if self._server is not None:
            await self._server.close()
            self._server = None
        self._cgroups.close()

    async def probe(self) -> Probe:
        async with self._probing:
            own = GvisorRuntime(self._folder / "probe", installation=f"{self._installation}-probe", runsc=self._given)
            return await probing.probe(own, self._folder / "probe" / "sandbox", lambda: frozenset(own._cgroups.places))

    async def create(self, plan: SandboxPlan) -> GvisorSandbox:
        if self._runsc is None:
            raise NodeError("Gvisor", "the runtime is not open")
        server = await self.living_server()
        base = self._slots.take() if self._machine.ranged else 0
        if base is None:
            raise NodeError("TooManySandboxes", "all ranges of user ids are in use; end some sandboxes")
        sandbox = GvisorSandbox(plan, self._machine, self._runsc.path, server, base, self)
        self._sandboxes.add(sandbox)
        try:
            await sandbox.open()
        except BaseException:
            await asyncio.shield(sandbox.destroy())
            raise
        return sandbox

    def forget(self, sandbox: GvisorSandbox) -> None:
        if sandbox in self._sandboxes:
            self._sandboxes.discard(sandbox)
            if self._machine.ranged:
                self._slots.give_back(sandbox.base)

    async def living_server(self) -> ForkServer:
        """The fork-server; another one if it died."""
        async with self._starting:
            if self._server is not None and not self._server.alive:
                await self._server.close()
                self._server = None
            if self._server is None:
                server = ForkServer(entry())
                await server.start()
                self._server = server
            return self._server
