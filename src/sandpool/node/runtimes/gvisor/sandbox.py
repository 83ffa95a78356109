"""A sandbox on gVisor's kernel: one process of the machine for all containers of a pod, with its keeper above it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandpool.base.errors import NodeError
from sandpool.node.backend import Stats
from sandpool.node.runtimes.contract import ContainerPlan, Ended, Limits, SandboxPlan, Stdio
from sandpool.node.runtimes.gvisor import config, orders
from sandpool.node.runtimes.gvisor.container import LOST, GvisorContainer, GvisorTask, as_ended, exit_status
from sandpool.node.runtimes.gvisor.keeping import Keeper
from sandpool.node.runtimes.namespaces import freezing
from sandpool.node.runtimes.namespaces.cgroups import Cgroups, container_groups, sandbox_groups
from sandpool.node.runtimes.namespaces.forked.frames import Message
from sandpool.node.runtimes.namespaces.group_readings import Groups
from sandpool.node.runtimes.namespaces.looking import descending, measured
from sandpool.node.runtimes.namespaces.server import ALL_LOST, ForkServer, close
from sandpool.node.runtimes.namespaces.tenant_groups import TenantGroups

PATIENCE = 5.0
ANSWER = 10.0  # seconds in which a sandbox has to say what it uses
KERNEL = "kernel"  # the control group below the sandbox's in which version 2 wants processes to be


class Runtime(Protocol):
    """What a sandbox asks of its runtime."""

    async def living_server(self) -> ForkServer: ...

    def forget(self, sandbox: GvisorSandbox) -> None:
        """Nothing of it is left."""
        ...


@dataclass(frozen=True, slots=True)
class Machine:
    """What all sandboxes of a runtime use. `ranged`: as root, each has ids of its own."""

    skeleton: Path
    cgroups: Cgroups
    tenants: TenantGroups
    ranged: bool


class GvisorSandbox:
    def __init__(
        self, plan: SandboxPlan, machine: Machine, runsc: Path, server: ForkServer, base: int, runtime: Runtime
    ) -> None:
        self.plan = plan
        self.base = base
        self._machine = machine
        self._runsc = runsc
        self._runtime = runtime
        self._server = server
        self._keeper = Keeper(server.worker(), self._told, self._lost)
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
    def keeper(self) -> Keeper:
        return self._keeper

    async def open(self) -> None:
        places, limits = self._groups.places, config.around(self.plan.limits, self._machine.cgroups.io)
        made = [
            *self._machine.tenants.enter(self.plan.tenant, self.plan.id, limits.memory),
            *sandbox_groups(places, self.plan.id, limits),
        ]
        own, self._joined = container_groups(places, self.plan.id, KERNEL, Limits())
        ids = (0, self.base, 65536) if self._machine.ranged else (0, 0, 1)
        order = orders.keep(self.plan, self._runsc, ids, self._machine.skeleton, ranged=self._machine.ranged)
        files = await self._keeper.begin(order | {"cgroups": [*made, *own], "joined": self._joined})
        if len(files) != 1:
            close(files)
            raise NodeError("Gvisor", "the keeper of a sandbox gave an answer that makes no sense")
        self._egress = socket.socket(fileno=files[0])
        self._egress.setblocking(False)
        self._machine.tenants.begin(self.plan.tenant)

    @property
    def _groups(self) -> Groups:
        return self._machine.cgroups.of(self.plan.tenant)

    def take_egress(self) -> socket.socket | None:
        egress, self._egress = self._egress, None
        return egress

    async def start(self, plan: ContainerPlan, stdio: Stdio) -> GvisorContainer:
        self._living()
        config.check(plan.argv, plan.env)
        number = self.number()
        name = f"c{number:09}"  # runsc takes the beginning of a name for the name
        for each in plan.mounts:
            if each.source is None:
                self._volumes.setdefault(each.volume, str(len(self._volumes)))
        order = orders.start(plan, stdio, self.plan, self._machine.skeleton, self._volumes)
        order |= {
            "number": number,
            "name": name,
            "volumes": orders.volumes(plan, self._volumes, self.base, ranged=self._machine.ranged),
        }
        container = GvisorContainer(self, name, config.container_config(plan, self.plan)["process"])
        self.follow(number, container)
        asked = self._keeper.ask(order, orders.files(stdio, tty=plan.tty))
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
        close(answer.result()[1])
        ending = asyncio.ensure_future(container.kill())
        ending.add_done_callback(lambda done: done.cancelled() or done.exception())

    def number(self) -> int:
        return next(self._numbers)

    def follow(self, number: int, task: GvisorTask) -> None:
        self._tasks[number] = task
        task.ended.add_done_callback(lambda done: self._tasks.pop(number, None))

    def awake(self) -> None:
        self._living()

    def ooms(self) -> int:
        return self._groups.ooms(self._joined)

    def _living(self) -> None:
        if not self._keeper.alive:
            raise NodeError("SandboxGone", f"the sandbox {self.plan.id} has ended; it must be made anew")
        if self._paused:
            raise NodeError("Paused", f"the sandbox {self.plan.id} is paused; resume it first")

    def _told(self, message: Message) -> None:
        match message:
            case {"ended": int(number), "said": str(said)} if number in self._tasks:
                status = exit_status(said)
                if status is not None:
                    self._tasks[number].finish(as_ended(status))
                elif self._keeper.alive:  # most likely the whole sandbox is ending, which is told next, and why
                    lost = Ended(LOST, 9, message="runsc lost the container")
                    later = asyncio.get_running_loop().call_later(PATIENCE, self._tasks[number].finish, lost)
                    self._tasks[number].ended.add_done_callback(lambda done: later.cancel())
            case {"ended": int(number), "code": code} if number in self._tasks:
                self._tasks[number].finish(as_ended(code))

    def _lost(self) -> None:
        """The kernel of the sandbox has ended, and all with it."""
        oom = self.ooms() > self._ooms
        with_all = not oom and not self._server.alive
        why = lost_by(oom=oom, pids=self._groups.refused_processes(self.plan.id) > 0)
        for task in list(self._tasks.values()):
            task.finish(Ended(LOST, 9, oom, ALL_LOST if with_all else why, lost=with_all))

    async def dial(self, port: int) -> socket.socket:
        self._living()
        _, files = await self._keeper.ask({"do": "dial", "port": port})
        if len(files) != 1:
            close(files)
            raise NodeError("Gvisor", "the keeper of a sandbox gave an answer that makes no sense")
        connection = socket.socket(fileno=files[0])
        connection.setblocking(False)
        return connection

    async def pause(self) -> None:
        if not self._paused:
            self._living()
            await self._command("pause", config.ROOT)
            self._paused = True

    async def resume(self) -> None:
        if self._paused:
            await self._command("resume", config.ROOT)
            self._paused = False

    async def _command(self, *argv: str) -> str:
        code, said, log = await self._keeper.run(*argv)
        if code:
            raise NodeError("Gvisor", f"runsc {argv[0]}: {log.strip() or said.strip() or f'code {code}'}")
        return said

    async def freeze(self) -> None:
        """The processes of its kernel; where control groups cannot, that kernel stops what runs on it."""
        if self._keeper.alive and not self._paused:
            before, self._frozen = self._frozen, True
            if not await freezing.freeze(self._groups, self.plan.id, freezing.MOMENT) and not before:
                await self._command("pause", config.ROOT)

    async def thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            if not await freezing.thaw(self._groups, self.plan.id) and not self._paused:
                await self._command("resume", config.ROOT)

    async def measure(self, folders: Sequence[Path]) -> list[tuple[int, int]]:
        return await measured(await self._runtime.living_server(), folders)

    async def processes(self) -> Collection[int]:
        members = self._groups.members(self.plan.id)
        return members if members is not None else descending([self._keeper.pid])

    async def stats(self) -> Stats:
        try:
            async with asyncio.timeout(ANSWER):
                return await self._stats()
        except TimeoutError:
            raise NodeError("Timeout", f"the sandbox {self.plan.id} gave no answer for {ANSWER:.0f} s") from None

    async def _stats(self) -> Stats:
        seconds, memory, _ = self._groups.usage(self.plan.id)
        if seconds is None:
            message, files = await self._keeper.ask({"do": "usage"})
            close(files)
            seconds = float(message.get("seconds", 0.0))
        if memory is None:
            memory = used_memory(await self._command("events", "--stats", config.ROOT))
        return Stats(seconds, memory, await self._processes())

    async def _processes(self) -> int:
        count = 0
        for name in () if self._paused else list(self._containers):
            code, said, _ = await self._keeper.run("ps", "--format=json", name)
            with contextlib.suppress(ValueError, TypeError):
                count += len(set(json.loads(said)) - self.killed) if code == 0 else 0
        return count

    async def destroy(self) -> None:
        """Repeated, it goes on where it failed."""
        with contextlib.suppress(NodeError):
            await freezing.thaw(self._groups, self.plan.id)
        await self._keeper.end()
        if self._egress is not None:
            self._egress.close()
            self._egress = None
        made = sandbox_groups(self._groups.places, self.plan.id, Limits())
        order: Message = {
            "do": "remove", "cgroups": [path for path, _ in made], "folder": str(self.plan.folder), "itself": False,
        }  # fmt: skip
        server = await self._runtime.living_server()
        await server.once(order, patience=None)
        self._machine.tenants.leave(self.plan.tenant, self.plan.id)
        self._runtime.forget(self)


def lost_by(*, oom: bool, pids: bool) -> str:
    """gVisor's kernel does not survive a limit of the machine: all containers end with it."""
    if oom:
        return "out of memory: the whole sandbox was ended"
    if pids:
        return "the limit of processes was reached: the whole sandbox was ended"
    return "the sandbox was ended from outside"


def used_memory(said: str) -> int:
    """What gVisor's kernel itself counts, from `runsc events --stats`: on the machine, its processes share most of theirs."""
    try:
        return int(json.loads(said)["data"]["memory"]["usage"]["usage"])
    except (ValueError, KeyError, TypeError):
        return 0
