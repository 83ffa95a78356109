"""A gVisor sandbox: one gVisor kernel for all containers of a pod, below its shim."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sandpool.base.errors import NodeError
from sandpool.node.backend import Stats
from sandpool.node.runtimes.contract import ContainerPlan, Ended, Limits, SandboxPlan, Stdio
from sandpool.node.runtimes.gvisor import requests
from sandpool.node.runtimes.gvisor.container import LOST, GvisorContainer, GvisorTask, as_ended, exit_status
from sandpool.node.runtimes.gvisor.shim_client import ShimClient
from sandpool.node.runtimes.namespaces import cgroup_hierarchy
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import CgroupReader
from sandpool.node.runtimes.namespaces.cgroup_manager import CgroupManager
from sandpool.node.runtimes.namespaces.cgroup_settings import container_groups, sandbox_groups
from sandpool.node.runtimes.namespaces.fork_server import (
    ForkServer,
    close_files,
    measure_directories,
    with_descendants,
)
from sandpool.node.runtimes.namespaces.forked.frames import Message
from sandpool.node.runtimes.namespaces.tenant_groups import TenantGroups

PATIENCE = 5.0
ANSWER = 10.0  # seconds for a sandbox to report its usage
KERNEL = "kernel"  # the subgroup for processes: cgroup v2 allows processes only in leaf groups


class Runtime(Protocol):
    """What a sandbox needs from its runtime."""

    async def living_server(self) -> ForkServer: ...

    def forget(self, sandbox: GvisorSandbox) -> None:
        """Drops a sandbox of which nothing is left."""
        ...


@dataclass(frozen=True, slots=True)
class Machine:
    """What all sandboxes of a runtime share. `ranged`: we are root, and each sandbox has its own range of ids."""

    skeleton: Path
    cgroups: CgroupManager
    tenants: TenantGroups
    ranged: bool


class GvisorSandbox:
    """One pod on a gVisor kernel, from `open` to `destroy`."""

    def __init__(
        self, plan: SandboxPlan, machine: Machine, runsc: Path, server: ForkServer, base: int, runtime: Runtime
    ) -> None:
        self.plan = plan
        self.base = base
        self._machine = machine
        self._runsc = runsc
        self._runtime = runtime
        self._server = server
        self._shim = ShimClient(server.worker(), self._on_event, self._lost)
        self._egress: socket.socket | None = None
        self._tasks: dict[int, GvisorTask] = {}
        self._containers: dict[str, GvisorContainer] = {}
        self._volumes: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._joined: list[str] = []
        self._ooms = 0
        self._paused = False
        self._frozen = False
        self.killed: set[int] = set()

    @property
    def shim(self) -> ShimClient:
        return self._shim

    async def open(self) -> None:
        places, limits = self._groups.places, requests.machine_limits(self.plan.limits, self._machine.cgroups.io)
        made = [
            *self._machine.tenants.enter(self.plan.tenant, self.plan.id, limits.memory),
            *sandbox_groups(places, self.plan.id, limits),
        ]
        own, self._joined = container_groups(places, self.plan.id, KERNEL, Limits())
        ids = (0, self.base, 65536) if self._machine.ranged else (0, 0, 1)
        request = requests.shim_request(
            self.plan, self._runsc, ids, self._machine.skeleton, ranged=self._machine.ranged
        )
        files = await self._shim.begin(request | {"cgroups": [*made, *own], "joined": self._joined})
        if len(files) != 1:
            close_files(files)
            raise NodeError("Gvisor", "the keeper of a sandbox returned an unexpected answer")
        self._egress = socket.socket(fileno=files[0])
        self._egress.setblocking(False)
        self._machine.tenants.begin(self.plan.tenant)

    @property
    def _groups(self) -> CgroupReader:
        return self._machine.cgroups.of(self.plan.tenant)

    def keep(self, name: str, note: Mapping[str, Any]) -> None:
        """It ends with this process."""

    def take_egress(self) -> socket.socket | None:
        egress, self._egress = self._egress, None
        return egress

    async def start(self, plan: ContainerPlan, stdio: Stdio) -> GvisorContainer:
        self._living()
        requests.check_command(plan.argv, plan.env)
        number = self.number()
        name = f"c{number:09}"  # fixed length, because runsc accepts a prefix as a name
        for each in plan.mounts:
            if each.source is None:
                self._volumes.setdefault(each.volume, str(len(self._volumes)))
        request = requests.start_request(plan, stdio, self.plan, self._machine.skeleton, self._volumes)
        request |= {
            "number": number,
            "name": name,
            "volumes": requests.memory_volumes(plan, self._volumes, self.base, ranged=self._machine.ranged),
        }
        container = GvisorContainer(self, name, requests.container_config(plan, self.plan)["process"])
        self.track(number, container)
        asked = self._shim.ask(request, requests.stdio_files(stdio, tty=plan.tty))
        try:
            message, files = await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(lambda answer: self._abandon(container, answer))
            raise
        except NodeError as error:
            container.finish(Ended(LOST, 9, message=error.message))
            raise NodeError(error.reason, f"container {plan.name!r}: {error.message}") from error
        container.runs_as(message.get("who"))
        container.give_terminal(files)
        self._containers[name] = container
        container.ended.add_done_callback(lambda done: self._containers.pop(name, None))
        return container

    def _abandon(self, container: GvisorContainer, answer: asyncio.Future[tuple[Message, list[int]]]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        close_files(answer.result()[1])
        ending = asyncio.ensure_future(container.kill())
        ending.add_done_callback(lambda done: done.cancelled() or done.exception())

    def number(self) -> int:
        return next(self._numbers)

    def track(self, number: int, task: GvisorTask) -> None:
        self._tasks[number] = task
        task.ended.add_done_callback(lambda done: self._tasks.pop(number, None))

    def awake(self) -> None:
        self._living()

    def ooms(self) -> int:
        return self._groups.ooms(self._joined)

    def _living(self) -> None:
        if not self._shim.alive:
            raise NodeError("SandboxGone", f"the sandbox {self.plan.id} has ended; it must be made anew")
        if self._paused:
            raise NodeError("Paused", f"the sandbox {self.plan.id} is paused; resume it first")

    def _on_event(self, message: Message) -> None:
        match message:
            case {"ended": int(number), "said": str(said)} if number in self._tasks:
                status = exit_status(said)
                if status is not None:
                    self._tasks[number].finish(as_ended(status))
                elif self._shim.alive:  # most likely the whole sandbox is ending; the next event says why
                    lost = Ended(LOST, 9, message="runsc lost the container")
                    later = asyncio.get_running_loop().call_later(PATIENCE, self._tasks[number].finish, lost)
                    self._tasks[number].ended.add_done_callback(lambda done: later.cancel())
            case {"ended": int(number), "code": code} if number in self._tasks:
                self._tasks[number].finish(as_ended(code))

    def _lost(self) -> None:
        """Handles the end of the sandbox's kernel, which ends all containers."""
        oom = self.ooms() > self._ooms
        why = lost_by(oom=oom, pids=self._groups.refused_processes(self.plan.id) > 0)
        for task in list(self._tasks.values()):
            task.finish(Ended(LOST, 9, oom, why))

    async def dial(self, port: int) -> socket.socket:
        self._living()
        _, files = await self._shim.ask({"do": "dial", "port": port})
        if len(files) != 1:
            close_files(files)
            raise NodeError("Gvisor", "the keeper of a sandbox returned an unexpected answer")
        connection = socket.socket(fileno=files[0])
        connection.setblocking(False)
        return connection

    async def pause(self) -> None:
        if not self._paused:
            self._living()
            await self._command("pause", requests.ROOT)
            self._paused = True

    async def resume(self) -> None:
        if self._paused:
            await self._command("resume", requests.ROOT)
            self._paused = False

    async def _command(self, *argv: str) -> str:
        code, said, log = await self._shim.run(*argv)
        if code:
            raise NodeError("Gvisor", f"runsc {argv[0]}: {log.strip() or said.strip() or f'code {code}'}")
        return said

    async def freeze(self) -> None:
        """Freezes the processes of its kernel. Where control groups cannot do that, the gVisor kernel pauses what runs on it."""
        if self._shim.alive and not self._paused:
            before, self._frozen = self._frozen, True
            if (
                not await cgroup_hierarchy.freeze(self._groups, self.plan.id, cgroup_hierarchy.BRIEF_TIMEOUT)
                and not before
            ):
                await self._command("pause", requests.ROOT)

    async def thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            if not await cgroup_hierarchy.thaw(self._groups, self.plan.id) and not self._paused:
                await self._command("resume", requests.ROOT)

    async def measure(self, directories: Sequence[Path]) -> list[tuple[int, int]]:
        return await measure_directories(await self._runtime.living_server(), directories)

    async def processes(self) -> Collection[int]:
        members = self._groups.members(self.plan.id)
        return members if members is not None else with_descendants([self._shim.pid])

    async def stats(self) -> Stats:
        try:
            async with asyncio.timeout(ANSWER):
                return await self._stats()
        except TimeoutError:
            raise NodeError("Timeout", f"the sandbox {self.plan.id} gave no answer for {ANSWER:.0f} s") from None

    async def _stats(self) -> Stats:
        seconds, memory, _ = self._groups.usage(self.plan.id)
        if seconds is None:
            message, files = await self._shim.ask({"do": "usage"})
            close_files(files)
            seconds = float(message.get("seconds", 0.0))
        if memory is None:
            memory = used_memory(await self._command("events", "--stats", requests.ROOT))
        return Stats(seconds, memory, await self._processes())

    async def _processes(self) -> int:
        count = 0
        for name in () if self._paused else list(self._containers):
            code, said, _ = await self._shim.run("ps", "--format=json", name)
            with contextlib.suppress(ValueError, TypeError):
                count += len(set(json.loads(said)) - self.killed) if code == 0 else 0
        return count

    async def destroy(self) -> None:
        """Kills and removes everything. If it fails, another call continues where it stopped."""
        with contextlib.suppress(NodeError):
            await cgroup_hierarchy.thaw(self._groups, self.plan.id)
        await self._shim.end()
        if self._egress is not None:
            self._egress.close()
            self._egress = None
        made = sandbox_groups(self._groups.places, self.plan.id, Limits())
        request: Message = {
            "do": "remove", "cgroups": [path for path, _ in made], "directory": str(self.plan.directory), "itself": False,
        }  # fmt: skip
        server = await self._runtime.living_server()
        await server.once(request, patience=None)
        self._machine.tenants.leave(self.plan.tenant, self.plan.id)
        self._runtime.forget(self)


def lost_by(*, oom: bool, pids: bool) -> str:
    """Why the sandbox ended. gVisor's kernel does not survive hitting a limit of the machine, and all containers end with it."""
    if oom:
        return "out of memory: the whole sandbox was ended"
    if pids:
        return "the limit of processes was reached: the whole sandbox was ended"
    return "the sandbox was ended from outside"


def used_memory(said: str) -> int:
    """The memory that gVisor's kernel counts, from `runsc events --stats`. Its host processes share most of theirs, so they cannot be summed."""
    try:
        return int(json.loads(said)["data"]["memory"]["usage"]["usage"])
    except (ValueError, KeyError, TypeError):
        return 0
