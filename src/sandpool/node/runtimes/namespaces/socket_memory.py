"""Kills sandboxes whose sockets use too much memory, where no kernel limit does:

- socket buffers far above the limit, on control groups v1. There the limit is soft: the kernel accepts the first segment of every
  connection (64 KiB) beyond it, so a sandbox with many connections could hold ten times its memory limit. Version 2 counts buffers as
  memory, and its limit is hard.
- connections that bring TCP on the whole machine under memory pressure (tcp_pressure.py).
- unread replies in netlink sockets (netlink_memory.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandpool.node.runtimes.contract import SandboxPlan
from sandpool.node.runtimes.namespaces import netlink_memory, tcp_pressure
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import ControllerPath, number
from sandpool.node.runtimes.namespaces.cgroup_settings import DEFAULT_SOCKET_BYTES, SOCKETS, places_of, socket_bytes
from sandpool.node.runtimes.namespaces.forked.cgroups import read
from sandpool.telemetry.log import logger

log = logger(__name__)

SPARE = 32 << 20
"""Bytes above its limit that every sandbox may use: an ordinary program with many connections needs some."""
INTERVAL = 0.2  # seconds between two checks
REPLIES_INTERVAL = 1.0  # the same of netlink sockets, which cost more to read
SETTLING = 1.0  # seconds for the kernel to free the memory of a killed sandbox before another one is killed for the same excess
AT_A_TIME = 32
USED = "memory.kmem.tcp.usage_in_bytes"


@dataclass(frozen=True, slots=True)
class SocketUse:
    """Bytes of socket buffers of a control group, and its limit."""

    used: int
    limit: int

    @property
    def excess(self) -> int:
        return self.used - self.limit

    @property
    def excessive(self) -> bool:
        """Whether it is so far above its limit that it must be killed."""
        return self.excess > max(self.limit, SPARE)


@dataclass(frozen=True, slots=True)
class TenantUse:
    """A tenant and its sandboxes. `own` also counts sockets that ended sandboxes passed to others."""

    own: SocketUse
    sandboxes: Mapping[str, SocketUse]


def past_their_limit(tenants: Sequence[TenantUse]) -> list[str]:
    return [name for tenant in tenants for name, use in tenant.sandboxes.items() if use.excessive]


def one_for_all(machine: SocketUse, tenants: Sequence[TenantUse]) -> str | None:
    """The sandbox to kill if a tenant, or all tenants together, use too much: the one furthest above its limit, of the tenant furthest above its
    own. The kernel throttles the whole machine at twice the limit of all sandboxes; this acts at three quarters of that."""
    over = [tenant for tenant in tenants if tenant.sandboxes and tenant.own.excessive]
    if not over and machine.excess > machine.limit // 2:
        over = [tenant for tenant in tenants if tenant.sandboxes]
    if not over:
        return None
    worst = max(over, key=lambda tenant: (max(0, tenant.own.excess), tenant.own.used))
    return max(worst.sandboxes, key=lambda name: (max(0, worst.sandboxes[name].excess), worst.sandboxes[name].used))


class LimitedSandbox(Protocol):
    @property
    def plan(self) -> SandboxPlan: ...

    @property
    def pids(self) -> Collection[int]:
        """Pids of processes in its network namespace."""
        ...

    def kill_for_memory(self) -> None:
        """Kills its containers, as its memory limit would."""
        ...

    async def disconnect(self) -> None:
        """Closes its listening sockets, also those that other sandboxes hold."""
        ...


class SocketMemoryGuard:
    """Checks sandboxes at intervals. `places` returns the parent groups of all sandboxes, by controller."""

    def __init__(
        self, places: Callable[[], Mapping[str, ControllerPath]], sandboxes: Callable[[], Collection[LimitedSandbox]]
    ) -> None:
        self._places = places
        self._sandboxes = sandboxes
        self.tcp_bound = tcp_pressure.bound(read(tcp_pressure.TCP_MEM))
        self._task: asyncio.Task[None] | None = None
        self._settled_at = 0.0
        self._turns: list[LimitedSandbox] = []  # whose netlink sockets are checked next

    def wake(self) -> None:
        """Call after a sandbox was created. Checks run until there is none left."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        replies_at = loop.time()
        while self._sandboxes():
            self._check_limits(loop.time())
            if loop.time() >= replies_at:
                replies_at = loop.time() + REPLIES_INTERVAL
                await self._check_replies()
            if self.tcp_bound is not None and tcp_pressure.machine_use() > self.tcp_bound:
                await self._relieve(self.tcp_bound)
            await asyncio.sleep(INTERVAL)

    async def _check_replies(self) -> None:
        """Checks a few sandboxes at a time, because for each one the kernel walks the netlink sockets of the whole machine."""
        there = set(self._sandboxes())
        self._turns = [each for each in self._turns if each in there] or list(there)
        now, self._turns = self._turns[:AT_A_TIME], self._turns[AT_A_TIME:]
        pids = [each.pids for each in now]
        used = await asyncio.to_thread(lambda: [netlink_memory.replies_of(each) for each in pids])
        for sandbox, size in zip(now, used, strict=True):
            if size > netlink_memory.MOST_REPLIES:
                self._kill(sandbox)

    async def _relieve(self, bound: int) -> None:
        there = {each.plan.id: each for each in self._sandboxes()}
        tenants: dict[str, dict[str, int]] = {}
        for name, each in there.items():
            used = await asyncio.to_thread(tcp_pressure.sandbox_use, each.pids)
            tenants.setdefault(each.plan.tenant, {})[name] = used
        fullest = tcp_pressure.fullest(tenants, bound)
        if fullest is not None:
            self._kill(there[fullest])
            await there[fullest].disconnect()
        await asyncio.sleep(SETTLING)

    def _check_limits(self, now: float) -> None:
        place = self._places().get("memory")
        if place is None or place.version != 1 or number(read(f"{place.directory}/{USED}")) <= SPARE:
            return  # not needed on version 2; and if the total is within SPARE, so is every sandbox
        machine = _use(place.directory)
        there = {each.plan.id: each for each in self._sandboxes()}
        tenants = self._tenants(there.values())
        for name in past_their_limit(tenants):
            self._kill(there.pop(name))
        other = one_for_all(machine, tenants) if now >= self._settled_at else None
        if other is not None and other in there:
            self._settled_at = now + SETTLING
            self._kill(there[other])

    def _tenants(self, sandboxes: Collection[LimitedSandbox]) -> list[TenantUse]:
        by_tenant: dict[str, list[LimitedSandbox]] = {}
        for each in sandboxes:
            by_tenant.setdefault(each.plan.tenant, []).append(each)
        found = []
        for tenant, theirs in by_tenant.items():
            directory = places_of(self._places(), tenant)["memory"].directory
            own = _use(directory)
            if own.used > SPARE:
                found.append(TenantUse(own, {each.plan.id: _use_of(directory, each) for each in theirs}))
        return found

    def _kill(self, sandbox: LimitedSandbox) -> None:
        log.warning(
            "a sandbox is killed: its sockets use too much memory",
            pod=sandbox.plan.id,
            namespace=sandbox.plan.tenant,
        )
        sandbox.kill_for_memory()


def _use(directory: str) -> SocketUse:
    return SocketUse(number(read(f"{directory}/{USED}")), number(read(f"{directory}/{SOCKETS}")))


def _use_of(directory: str, sandbox: LimitedSandbox) -> SocketUse:
    memory = sandbox.plan.limits.memory
    limit = DEFAULT_SOCKET_BYTES if memory is None else socket_bytes(memory)
    return SocketUse(number(read(f"{directory}/{sandbox.plan.id}/{USED}")), limit)
