"""A sandbox: the namespaces, control groups and containers of one pod."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.node.backend import Stats
from sandpool.node.runtimes.contract import ContainerPlan, Limits, Mount, SandboxPlan, Stdio, User
from sandpool.node.runtimes.namespaces import cgroup_hierarchy, spawn_requests
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import CgroupReader
from sandpool.node.runtimes.namespaces.cgroup_settings import container_groups, sandbox_groups, shared_groups
from sandpool.node.runtimes.namespaces.container import Lost, NamespaceContainer
from sandpool.node.runtimes.namespaces.dialing import DialSockets
from sandpool.node.runtimes.namespaces.fork_server import (
    ForkServer,
    close_files,
    measure_directories,
    with_descendants,
)
from sandpool.node.runtimes.namespaces.forked.frames import Message
from sandpool.node.runtimes.namespaces.machine import Machine, Shared
from sandpool.node.runtimes.namespaces.shim import SHIM_GONE, Recalled, Shim

SANDBOX, VOLUMES, NOTE = "sandbox", "volumes", "note:"
"""Names by which its shim keeps what a later process needs (takeover.py)."""


class SandboxHost(Protocol):
    """What a sandbox needs from its runtime host."""

    async def living_server(self) -> ForkServer: ...

    def forget(self, sandbox: NamespaceSandbox) -> None:
        """Drops a sandbox of which nothing is left."""
        ...


class NamespaceSandbox:
    """The namespaces, control groups and containers of one pod, from `open` to `destroy`."""

    def __init__(self, plan: SandboxPlan, machine: Machine, base: int, host: SandboxHost) -> None:
        self.plan = plan
        self._host = host
        self.base = base
        self._machine = machine
        self._shim: Shim | None = None
        self._shared: Shared | None = None
        self._egress: socket.socket | None = None
        self._containers: list[NamespaceContainer] = []
        self._sockets = DialSockets(self._more_sockets)
        self._runs: dict[str, str] = {}  # of each container, the run that the shim keeps
        self._volumes: dict[str, str] = {}
        self._held: list[int] = []
        self._joined: list[str] = []
        self._holding = asyncio.Lock()
        self._ending = asyncio.Lock()
        self._destroyed = False
        self._paused = False
        self._frozen = False
        self._killed_for_memory = 0  # counts kills by Sandpool, not by the kernel
        self._left: list[int] = []  # its network namespace, when it is being destroyed

    @property
    def shim(self) -> Shim | None:
        return self._shim

    @property
    def containers(self) -> list[NamespaceContainer]:
        return list(self._containers)

    async def open(self) -> None:
        ids = (0, self.base, 65536) if self._machine.ranged else (0, 0, 1)
        limits = spawn_requests.with_defaults(self.plan.limits, self._machine.cgroups.io)
        own, self._joined = shared_groups(self._groups.places, self.plan.id)
        made = [
            *self._machine.tenants.enter(self.plan.tenant, self.plan.id, limits.memory),
            *sandbox_groups(self._groups.places, self.plan.id, limits),
            *own,
        ]
        self._shim = await self._start_shim(await self._host.living_server())
        files = await self._make(spawn_requests.share_request(self.plan, ids, made, self._machine.quotas))
        if len(files) != 5:
            close_files(files)
            raise NodeError("ForkServer", "a worker sent an invalid response")
        plan = asdict(self.plan) | {"directory": str(self.plan.directory)}
        self._shim.keep(SANDBOX, {"plan": plan, "base": self.base, "joined": self._joined}, files)
        self._share(files)
        self._machine.tenants.begin(self.plan.tenant)

    async def _start_shim(self, server: ForkServer) -> Shim:
        if self._machine.run_directory is None:
            return await Shim.start(server, None)
        with self._machine.run_directory.bind(self.plan.id) as listener:
            return await Shim.start(server, listener)

    def _share(self, files: Sequence[int]) -> None:
        self._shared = Shared(*files[:4])
        self._egress = socket.socket(fileno=files[4])
        self._egress.setblocking(False)

    def take_over(self, shim: Shim, kept: Mapping[str, Any], files: Sequence[int]) -> None:
        """The counterpart of `open` for a sandbox that an earlier process has made."""
        self._shim = shim
        self._joined = list(kept["joined"])
        self._share(files)
        limits = spawn_requests.with_defaults(self.plan.limits, self._machine.cgroups.io)
        self._machine.tenants.enter(self.plan.tenant, self.plan.id, limits.memory)
        self._machine.tenants.begin(self.plan.tenant)

    def take_over_volumes(self, named: Mapping[str, str], files: Sequence[int]) -> None:
        self._volumes, self._held = dict(named), list(files)

    def take_over_container(self, key: str, recalled: Recalled, channel: socket.socket) -> NamespaceContainer:
        value = recalled.value
        files = dict(zip(value["files"], recalled.files, strict=False))
        container = self._container(key.rpartition("-")[0], channel, value["joined"])
        container.take_over(value["ooms"], files, recalled.process, recalled.status)
        container.terminals = value["quota"]
        self._containers.append(container)
        self._follow(container)
        self._runs[container.name] = key
        return container

    async def _make(self, request: Message, files: Sequence[int] = ()) -> list[int]:
        """Has a worker create something that the containers share, charged to the sandbox."""
        try:
            return await self._forker().once(request | {"joined": self._joined}, files)
        except NodeError as error:
            if self._groups.ooms(self._joined):
                text = f"the sandbox {self.plan.id} ran out of memory while it was made; raise its memory limit, or end others of its namespace"
                raise NodeError(error.reason, text) from error
            raise

    def _forker(self) -> Shim:
        if self._shim is None or not self._shim.alive:
            raise NodeError("SandboxGone", f"the sandbox {self.plan.id} has ended; it will be created again")
        return self._shim

    @property
    def _groups(self) -> CgroupReader:
        return self._machine.cgroups.of(self.plan.tenant)

    def take_egress(self) -> socket.socket | None:
        egress, self._egress = self._egress, None
        return egress

    async def start(self, plan: ContainerPlan, stdio: Stdio) -> NamespaceContainer:
        spawn_requests.check_name(plan.name)
        self.living()
        await self._hold(plan)
        held = await self._machine.terminals.check(self.plan.tenant)
        shared = self.living()  # again: it may have been destroyed meanwhile, and its descriptors reused
        groups = self._groups
        own, joined = container_groups(
            groups.places, self.plan.id, plan.name, spawn_requests.stricter(plan.limits, self.plan.limits)
        )
        request = spawn_requests.container(plan, stdio, self.plan, self._machine.skeleton, self._volumes) | {
            "base": self.base,
            "ranged": self._machine.ranged,
            "held": bool(self._held),
            "own_cgroups": own,
            "cgroups": joined,
            "rlimits": spawn_requests.rlimits(
                plan.limits, self.plan.limits, frozenset(groups.places), count_processes=self._machine.count_processes,
                most_files=spawn_requests.most_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0], ranged=self._machine.ranged),
            ),
        }  # fmt: skip
        key = f"{plan.name}-{plan.attempt}"
        shim = self._forker()
        if (before := self._runs.pop(plan.name, None)) is not None:
            shim.drop(before)
        self._runs[plan.name] = key
        container = self._container(plan.name, shim.worker(kept_as=key), joined)
        self._containers = [each for each in self._containers if not each.ended.done()]
        request["terminals"] = container.terminals = spawn_requests.terminal_quota(
            (each.terminals for each in self._containers), held
        )
        self._containers.append(container)
        try:
            await container.begin(
                request, [*shared.files, *self._held, *spawn_requests.stdio_files(stdio, tty=plan.tty)]
            )
        except BaseException:
            left: Message = {
                "do": "remove",
                "cgroups": [path for path, _ in own],
                "directory": request["directory"],
                "itself": True,
            }
            shim.drop(key)
            with contextlib.suppress(NodeError):  # `destroy` removes it, too
                await asyncio.shield(shim.once(left))
            raise
        value, files = container.kept()
        with contextlib.suppress(NodeError):  # it has ended meanwhile
            shim.keep(key, {**value, "joined": joined, "more": len(stdio.kept)}, [*files, *stdio.kept])
        self._follow(container)
        return container

    def _container(self, name: str, channel: socket.socket, joined: Sequence[str]) -> NamespaceContainer:
        groups = self._groups
        return NamespaceContainer(name, channel, lambda: groups.ooms(joined) + self._killed_for_memory, self._why_lost)

    def _follow(self, container: NamespaceContainer) -> None:
        def ended(_: object) -> None:
            tenant = self.plan.tenant
            self._machine.terminals.ended(tenant, container.terminals_directory, container.terminals)

        container.ended.add_done_callback(ended)

    def keep(self, name: str, note: Mapping[str, Any]) -> None:
        with contextlib.suppress(NodeError):  # it has ended, and there is nothing to take over
            self._forker().keep(f"{NOTE}{name}", note)

    @property
    def pids(self) -> Collection[int]:
        """The init processes of its containers."""
        return [pid for each in self._containers if not each.ended.done() and (pid := each.pid) is not None]

    def kill_for_memory(self) -> None:
        """Kills its containers as its memory limit would: their status says OOMKilled."""
        self._killed_for_memory += 1
        for each in self._containers:
            each.kill_nowait()

    async def disconnect(self) -> None:
        """Closes its listening sockets, also those that other sandboxes hold; not that of its egress, which is ours."""
        if self._shared is not None:
            with contextlib.suppress(NodeError):  # it ends meanwhile, or the kernel cannot
                await self._forker().once({"do": "disconnect", "egress": self.plan.egress_port}, [self._shared.net])

    def _why_lost(self) -> Lost:
        if self._shim is None or not self._shim.alive:
            return Lost(SHIM_GONE, with_all=True)
        return Lost("the container was ended from outside")

    def living(self, *, awake: bool = True) -> Shared:
        self._forker()
        if self._shared is None:
            raise NodeError("SandboxGone", f"the sandbox {self.plan.id} has ended; it will be created again")
        if self._paused and awake:
            raise NodeError("Paused", f"the sandbox {self.plan.id} is paused; resume it first")
        return self._shared

    async def _hold(self, plan: ContainerPlan) -> None:
        """Creates the memory volumes that this container is the first to use."""
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
            request: Message = {"do": "volumes", "directory": str(self.plan.directory), "volumes": new}
            held = await self._make(request, self._held)
            if self._shared is None:
                close_files(held)  # destroyed meanwhile
            self.living()
            self._held += held
            self._volumes |= named
            self._forker().keep(VOLUMES, self._volumes, self._held)

    def _owner(self, mount: Mount) -> tuple[int, int]:
        if not self._machine.ranged:
            return 0, 0
        owner = mount.owner or User()
        return self.base + owner.uid, self.base + owner.gid

    async def dial(self, port: int) -> socket.socket:
        return await self._sockets.dial(port)

    async def _more_sockets(self, count: int) -> list[socket.socket]:
        shared = self.living(awake=False)
        if descriptors.few_left():
            raise NodeError("OutOfDescriptors", descriptors.limit_message())
        files = await self._forker().once({"do": "sockets", "count": count}, [shared.net])
        made = [socket.socket(fileno=file) for file in files]
        for sock in made:
            sock.setblocking(False)
        if self._shared is None:  # destroyed meanwhile
            for sock in made:
                sock.close()
        self.living(awake=False)
        return made

    async def pause(self) -> None:
        if not self._paused:
            self.living()
            self._show_paused(paused=True)
            if not await cgroup_hierarchy.freeze(self._groups, self.plan.id):
                await self._signal_all(signal.SIGSTOP)

    async def resume(self) -> None:
        if self._paused:
            if not self._frozen and not await cgroup_hierarchy.thaw(self._groups, self.plan.id):
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
            self._frozen = True  # also if it is not frozen yet: a repeated call returns once it is
            if not await cgroup_hierarchy.freeze(self._groups, self.plan.id, cgroup_hierarchy.BRIEF_TIMEOUT):
                await self._signal_all(signal.SIGSTOP)

    async def thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            if not self._paused and not await cgroup_hierarchy.thaw(self._groups, self.plan.id):
                await self._signal_all(signal.SIGCONT)

    async def measure(self, directories: Sequence[Path]) -> list[tuple[int, int]]:
        """Measures in a worker of the fork server: if we are an ordinary user, only a worker can read all files of a sandbox."""
        return await measure_directories(await self._host.living_server(), directories)

    async def processes(self) -> Collection[int]:
        members = self._groups.members(self.plan.id)
        return members if members is not None else with_descendants(each.pid for each in self._containers)

    async def stats(self) -> Stats:
        seconds, memory, count = self._groups.usage(self.plan.id)
        living = [each for each in self._containers if not each.ended.done()]
        if seconds is None or memory is None or count is None:
            used = [await each.usage() for each in living]
            seconds = sum(each[0] for each in used) if seconds is None else seconds
            memory = sum(each[1] for each in used) if memory is None else memory
            count = sum(each[2] for each in used) if count is None else count + len(living)
        ours = (len(living) if "pids" in self._machine.cgroups.places else 0) + sum(each.boxd_waits for each in living)
        return Stats(seconds, memory, max(len(living), count - ours))  # a boxd may be starting

    async def destroy(self) -> None:
        """Kills and removes everything. If it fails, another call continues where it stopped."""
        async with self._ending:
            if not self._destroyed:
                await self._destroy()
                self._destroyed = True
                self._host.forget(self)

    async def _destroy(self) -> None:
        for each in self._containers:
            each.kill_nowait()  # before thawing: a container that was frozen for writing too much must not continue
        with contextlib.suppress(NodeError):
            await cgroup_hierarchy.thaw(self._groups, self.plan.id)
        await asyncio.gather(*(each.end() for each in self._containers))
        self._containers.clear()
        if self._shim is not None:
            await self._shim.end()
        if self._machine.run_directory is not None:
            self._machine.run_directory.forget(self.plan.id)
        if self._egress is not None:
            self._egress.close()
            self._egress = None
        self._sockets.close()
        close_files(self._held)
        self._held.clear()
        if self._shared is not None:
            close_files([self._shared.user, self._shared.ipc, self._shared.uts])
            self._left.append(self._shared.net)
            self._shared = None
        made = sandbox_groups(self._groups.places, self.plan.id, Limits())
        paths = [path for path, _ in made]
        request: Message = {
            "do": "remove",
            "cgroups": paths,
            "directory": str(self.plan.directory),
            "itself": False,
            "egress": self.plan.egress_port,
        }
        server = await self._host.living_server()
        await server.once(request, self._left, patience=None)
        close_files(self._left)
        self._left.clear()
        self._machine.tenants.leave(self.plan.tenant, self.plan.id)
