"""A sandbox: the namespaces, control groups and containers of one pod."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.node.backend import Stats
from sandpool.node.runtimes.contract import ContainerPlan, Limits, Mount, SandboxPlan, Stdio, User
from sandpool.node.runtimes.namespaces import freezing, orders
from sandpool.node.runtimes.namespaces.cgroups import Cgroups, container_groups, sandbox_groups, shared_groups
from sandpool.node.runtimes.namespaces.container import Lost, NamespaceContainer
from sandpool.node.runtimes.namespaces.forked.frames import Message
from sandpool.node.runtimes.namespaces.group_readings import Groups
from sandpool.node.runtimes.namespaces.looking import descending, measured
from sandpool.node.runtimes.namespaces.server import ALL_LOST, ForkServer, close
from sandpool.node.runtimes.namespaces.tenant_groups import TenantGroups
from sandpool.node.runtimes.namespaces.terminals import Terminals

SOCKETS_AT_ONCE = 8


class Around(Protocol):
    """What a sandbox asks of its runtime."""

    async def living_server(self) -> ForkServer: ...

    def forget(self, sandbox: NamespaceSandbox) -> None:
        """Nothing of it is left."""
        ...


@dataclass(frozen=True, slots=True)
class Machine:
    """What all sandboxes of a runtime use. `ranged`: as root, each has ids of its own."""

    skeleton: Path
    cgroups: Cgroups
    tenants: TenantGroups
    ranged: bool
    count_processes: bool  # whether the kernel counts processes per user namespace
    quotas: dict[str, int] = field(default_factory=dict)  # of one sandbox, of what its user has
    terminals: Terminals = field(default_factory=Terminals)


@dataclass(frozen=True, slots=True)
class Shared:
    """Open files: they are the sandbox, as far as the kernel is concerned."""

    user: int
    net: int
    ipc: int
    uts: int

    @property
    def files(self) -> list[int]:
        return [self.user, self.net, self.ipc, self.uts]


class NamespaceSandbox:
    def __init__(self, plan: SandboxPlan, machine: Machine, server: ForkServer, base: int, around: Around) -> None:
        self.plan = plan
        self._around = around
        self.base = base
        self._machine = machine
        self._server = server
        self._shared: Shared | None = None
        self._egress: socket.socket | None = None
        self._containers: list[NamespaceContainer] = []
        self._sockets: deque[tuple[socket.socket, socket.socket]] = deque()
        self._volumes: dict[str, str] = {}
        self._held: list[int] = []
        self._joined: list[str] = []
        self._holding = asyncio.Lock()
        self._ending = asyncio.Lock()
        self._destroyed = False
        self._paused = False
        self._frozen = False

    @property
    def containers(self) -> list[NamespaceContainer]:
        return list(self._containers)

    async def open(self) -> None:
        ids = (0, self.base, 65536) if self._machine.ranged else (0, 0, 1)
        limits = orders.with_defaults(self.plan.limits, self._machine.cgroups.io)
        own, self._joined = shared_groups(self._groups.places, self.plan.id)
        made = [
            *self._machine.tenants.enter(self.plan.tenant, self.plan.id, limits.memory),
            *sandbox_groups(self._groups.places, self.plan.id, limits),
            *own,
        ]
        files = await self._make(orders.share(self.plan, ids, made, self._machine.quotas))
        if len(files) != 5:
            close(files)
            raise NodeError("ForkServer", "a worker gave an answer that makes no sense")
        self._shared = Shared(*files[:4])
        self._egress = socket.socket(fileno=files[4])
        self._egress.setblocking(False)
        self._machine.tenants.begin(self.plan.tenant)

    async def _make(self, order: Message, files: Sequence[int] = ()) -> list[int]:
        """Something that the containers share, counted for the sandbox."""
        try:
            return await self._server.once(order | {"joined": self._joined}, files)
        except NodeError as error:
            if self._groups.ooms(self._joined):
                words = f"the sandbox {self.plan.id} ran out of memory while it was made; raise its memory limit, or end others of its namespace"
                raise NodeError(error.reason, words) from error
            raise

    @property
    def _groups(self) -> Groups:
        return self._machine.cgroups.of(self.plan.tenant)

    def take_egress(self) -> socket.socket | None:
        egress, self._egress = self._egress, None
        return egress

    async def start(self, plan: ContainerPlan, stdio: Stdio) -> NamespaceContainer:
        orders.check_name(plan.name)
        self._living()
        await self._hold(plan)
        held = await self._machine.terminals.check(self.plan.tenant)
        shared = self._living()  # again: it may have been destroyed meanwhile, and its files be others by now
        groups = self._groups
        own, joined = container_groups(
            groups.places, self.plan.id, plan.name, orders.stricter(plan.limits, self.plan.limits)
        )
        order = orders.container(plan, stdio, self.plan, self._machine.skeleton, self._volumes) | {
            "base": self.base,
            "ranged": self._machine.ranged,
            "held": bool(self._held),
            "own_cgroups": own,
            "cgroups": joined,
            "rlimits": orders.rlimits(
                plan.limits, self.plan.limits, frozenset(groups.places), count_processes=self._machine.count_processes,
                most_files=orders.most_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0], ranged=self._machine.ranged),
            ),
        }  # fmt: skip
        container = NamespaceContainer(plan.name, self._server.worker(), lambda: groups.ooms(joined), self._why_lost)
        self._containers = [each for each in self._containers if not each.ended.done()]
        order["terminals"] = container.terminals = orders.terminals((each.terminals for each in self._containers), held)
        self._containers.append(container)
        try:
            await container.begin(order, [*shared.files, *self._held, *orders.files(stdio, tty=plan.tty)])
        except BaseException:
            left: Message = {
                "do": "remove",
                "cgroups": [path for path, _ in own],
                "folder": order["folder"],
                "itself": True,
            }
            with contextlib.suppress(NodeError):  # `destroy` takes it away, too
                await asyncio.shield(self._server.once(left))
            raise
        container.ended.add_done_callback(
            lambda _: self._machine.terminals.ended(self.plan.tenant, container.terminals_folder, container.terminals)
        )
        return container

    def _why_lost(self) -> Lost:
        if not self._server.alive:
            return Lost(ALL_LOST, with_all=True)
        return Lost("the container was ended from outside")

    def _living(self, *, awake: bool = True) -> Shared:
        if self._shared is None or not self._server.alive:
            raise NodeError("SandboxGone", f"the sandbox {self.plan.id} has ended; it must be made anew")
        if self._paused and awake:
            raise NodeError("Paused", f"the sandbox {self.plan.id} is paused; resume it first")
        return self._shared

    async def _hold(self, plan: ContainerPlan) -> None:
        """Makes the volumes in memory that the container is the first to want."""
        async with self._holding:
            wanted = {
                each.volume: each for each in plan.mounts if each.source is None and each.volume not in self._volumes
            }
            if not wanted:
                return
            named = {volume: str(len(self._volumes) + number) for number, volume in enumerate(wanted)}
            new: list[Message] = [
                {"name": named[volume], "size": each.size, "owner": self._owner(each)}
                for volume, each in wanted.items()
            ]
            order: Message = {"do": "volumes", "folder": str(self.plan.folder), "volumes": new}
            held = await self._make(order, self._held)
            if self._shared is None:
                close(held)  # destroyed meanwhile
            self._living()
            self._held += held
            self._volumes |= named

    def _owner(self, mount: Mount) -> tuple[int, int]:
        if not self._machine.ranged:
            return 0, 0
        owner = mount.owner or User()
        return self.base + owner.uid, self.base + owner.gid

    async def dial(self, port: int) -> socket.socket:
        """The sockets were made inside; connecting them needs nobody there."""
        if not self._sockets:
            await self._more_sockets()
        four, six = self._sockets.popleft()
        loop = asyncio.get_running_loop()
        try:
            for sock, address in ((four, "127.0.0.1"), (six, "::1")):
                with contextlib.suppress(OSError):
                    await loop.sock_connect(sock, (address, port))
                    (six if sock is four else four).close()
                    return sock
        except BaseException:
            four.close()
            six.close()
            raise
        four.close()
        six.close()
        raise NodeError("ConnectionRefused", f"nobody listens on port {port} of the sandbox")

    async def _more_sockets(self) -> None:
        shared = self._living(awake=False)
        if descriptors.few_left():
            raise NodeError("OutOfDescriptors", descriptors.told())
        files = await self._server.once({"do": "sockets", "count": SOCKETS_AT_ONCE}, [shared.net])
        made = [socket.socket(fileno=file) for file in files]
        for sock in made:
            sock.setblocking(False)
        if self._shared is None:  # destroyed meanwhile
            for sock in made:
                sock.close()
        self._living(awake=False)
        self._sockets.extend(zip(made[::2], made[1::2], strict=True))

    async def pause(self) -> None:
        if not self._paused:
            self._living()
            self._show_paused(paused=True)
            if not await freezing.freeze(self._groups, self.plan.id):
                await self._signal_all(signal.SIGSTOP)

    async def resume(self) -> None:
        if self._paused:
            if not self._frozen and not await freezing.thaw(self._groups, self.plan.id):
                await self._signal_all(signal.SIGCONT)
            self._show_paused(paused=False)

    def _show_paused(self, *, paused: bool) -> None:
        self._paused = paused
        for container in self._containers:
            container.paused = paused

    async def _signal_all(self, number: int) -> None:
        for container in self._containers:
            if not container.ended.done():
                await container.signal_all(number)

    async def freeze(self) -> None:
        if self._shared is not None and not self._paused:
            self._frozen = True  # also if it is not yet: who asks again hears whether it is by then
            if not await freezing.freeze(self._groups, self.plan.id, freezing.MOMENT):
                await self._signal_all(signal.SIGSTOP)

    async def thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            if not self._paused and not await freezing.thaw(self._groups, self.plan.id):
                await self._signal_all(signal.SIGCONT)

    async def measure(self, folders: Sequence[Path]) -> list[tuple[int, int]]:
        """By a worker: as an ordinary user, only there are all files of a sandbox readable."""
        return await measured(await self._around.living_server(), folders)

    async def processes(self) -> Collection[int]:
        members = self._groups.members(self.plan.id)
        return members if members is not None else descending(each.pid for each in self._containers)

    async def stats(self) -> Stats:
        seconds, memory, count = self._groups.usage(self.plan.id)
        living = [each for each in self._containers if not each.ended.done()]
        if seconds is None or memory is None or count is None:
            used = [await each.usage() for each in living]
            seconds = sum(each[0] for each in used) if seconds is None else seconds
            memory = sum(each[1] for each in used) if memory is None else memory
            count = sum(each[2] for each in used) if count is None else count + len(living)
        ours = (len(living) if "pids" in self._machine.cgroups.places else 0) + sum(each.boxd_waits for each in living)
        return Stats(seconds, memory, max(len(living), count - ours))  # a boxd may still be on its way

    async def destroy(self) -> None:
        """Repeated, it goes on where it failed."""
        async with self._ending:
            if not self._destroyed:
                await self._destroy()
                self._destroyed = True
                self._around.forget(self)

    async def _destroy(self) -> None:
        for each in self._containers:
            each.doom()  # before they are thawed: one that was stopped because it wrote too much writes no more
        with contextlib.suppress(NodeError):
            await freezing.thaw(self._groups, self.plan.id)
        await asyncio.gather(*(each.end() for each in self._containers))
        self._containers.clear()
        if self._egress is not None:
            self._egress.close()
            self._egress = None
        for pair in self._sockets:
            for sock in pair:
                sock.close()
        self._sockets.clear()
        close(self._held)
        self._held.clear()
        if self._shared is not None:
            close(self._shared.files)
            self._shared = None
        made = sandbox_groups(self._groups.places, self.plan.id, Limits())
        paths = [path for path, _ in made]
        order: Message = {"do": "remove", "cgroups": paths, "folder": str(self.plan.folder), "itself": False}
        server = await self._around.living_server()  # another one, if the sandbox's own has died
        await server.once(order, patience=None)
        self._machine.tenants.leave(self.plan.tenant, self.plan.id)
