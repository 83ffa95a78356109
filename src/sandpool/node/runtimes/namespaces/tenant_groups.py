"""One control group per tenant, around the groups of its sandboxes on the hierarchy that counts memory.

The group is created with the tenant's first sandbox and removed some time after the last one. Raising its limit is a short write before a
start. Lowering it may make the kernel reclaim memory, which is slow, so a thread does that, and no start or stop waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces import spawn_requests
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import keyed, number
from sandpool.node.runtimes.namespaces.cgroup_manager import CgroupManager
from sandpool.node.runtimes.namespaces.cgroup_settings import tenant_group
from sandpool.node.runtimes.namespaces.forked.cgroups import Group, read, write
from sandpool.node.runtimes.namespaces.tenant_accounts import (
    LINGER,
    NEGLIGIBLE,
    Account,
    MemoryLimits,
    lowered,
    reclaim_step,
    writes,
)
from sandpool.telemetry.log import logger

log = logger(__name__)

STEPS = 16  # reclaim steps before other tenants have their turn


def unreclaimable(version: int, directory: str) -> int:
    """Bytes used by a group, including current and removed subgroups, that the kernel cannot reclaim. On version 1 this excludes kernel memory, of
    which an unknown part is reclaimable."""
    stat = read(f"{directory}/memory.stat")
    if version == 1:
        return sum(keyed(stat, f"total_{name}") for name in ("rss", "shmem", "swap"))
    reclaimable = keyed(stat, "file") - keyed(stat, "shmem") + keyed(stat, "slab_reclaimable")
    return max(0, number(read(f"{directory}/memory.current")) - reclaimable)


class TenantGroup:
    """The group of one tenant. The event loop raises its limit, a thread lowers it. The lock is never held during reclaim."""

    def __init__(self, version: int, request: Group, linger: float) -> None:
        self.version = version
        self.request = request  # the request that creates it
        self.directory = request[0]
        self.account = Account(linger=linger)
        self.made = False
        self.timer: asyncio.TimerHandle | None = None
        self.settling: asyncio.Task[None] | None = None
        self._lock = threading.Lock()

    def enter(self, sandbox: str, memory: int | None) -> None:
        with self._lock:
            self.account.enter(sandbox, memory)
            if self.made:
                self._raise()

    def begin(self) -> None:
        """Applies the first limits, once the group exists."""
        with self._lock:
            self.made = True
            self._raise()

    def leave(self, sandbox: str, now: float) -> None:
        with self._lock:
            self.account.leave(sandbox, now)

    def _raise(self) -> None:
        old, new = self.account.applied, self.account.raised()
        if new != old:
            try:
                self.write(old, new)
            except FileNotFoundError:
                raise
            except OSError:  # version 1: the thread wrote between our two writes; now it waits for the lock
                self.write(old, new)
            self.account.applied = new
        self.account.fresh = False

    def write(self, old: MemoryLimits, new: MemoryLimits) -> None:
        for file, value, required in writes(self.version, old, new):
            try:
                # Non-blocking: since Linux 6.16 a write to memory.max then neither reclaims nor kills.
                write(f"{self.directory}/{file}", value, os.O_NONBLOCK)
            except OSError:
                if required:
                    raise

    def settle(self, *, measure: bool) -> int | None:
        """Lowers the limit towards its target. With `measure`, returns the bytes that ended sandboxes left in use. May take long."""
        leftover = self._leftover() if measure else None
        before = self.account.applied
        with contextlib.suppress(FileNotFoundError):  # it was never created
            if self.account.should_reclaim(leftover):
                for _ in range(STEPS):
                    if not self._reclaim_step():
                        break
            with self._lock:
                old, target = self.account.applied, self.account.target
            self._try(old, lowered(before.union(old), target, self.used()))
        return leftover

    def _reclaim_step(self) -> bool:
        """Makes the kernel drop some page cache. False if there is no need, or if it cannot."""
        with self._lock:
            old, target = self.account.applied, self.account.target
        used = self.used()
        size = reclaim_step(target, used)
        if not size:
            return False
        if self.version == 2:
            self._reclaim(size)
            return self.used().memory < used.memory
        new = MemoryLimits(min(old.memory, used.memory - size), old.sockets)
        return self._try(old, new)  # version 1 reclaims only for a limit

    def _try(self, old: MemoryLimits, new: MemoryLimits) -> bool:
        """Writes a lower limit. False if more is in use and cannot be reclaimed (version 1)."""
        try:
            self.write(old, new)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        self._applied(new)
        return True

    def _applied(self, new: MemoryLimits) -> None:
        """Records what was written. If a sandbox started in the meantime, raises the limit again."""
        with self._lock:
            self.account.applied = new
            self._raise()

    def _reclaim(self, size: int) -> None:
        with contextlib.suppress(OSError):
            write(f"{self.directory}/memory.reclaim", str(size))

    def used(self) -> MemoryLimits:
        if self.version == 2:
            return MemoryLimits(number(read(f"{self.directory}/memory.current")), 0)
        names = ("memory.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes")
        return MemoryLimits(*(number(read(f"{self.directory}/{name}")) for name in names))

    def _leftover(self) -> int:
        with self._lock:
            living = list(self.account.live)
        own = sum(unreclaimable(self.version, f"{self.directory}/{each}") for each in living)
        return max(0, unreclaimable(self.version, self.directory) - own)

    def is_empty(self) -> bool:
        """Whether a group without sandboxes is charged for nothing any more. May take long."""
        if max(unreclaimable(self.version, self.directory), self.used().sockets) > NEGLIGIBLE:
            return False
        if self.version == 1 and number(read(f"{self.directory}/memory.kmem.usage_in_bytes")) > NEGLIGIBLE:
            with contextlib.suppress(OSError):  # kernel memory that remains after this is in use
                write(f"{self.directory}/memory.force_empty", "0")
            return number(read(f"{self.directory}/memory.kmem.usage_in_bytes")) <= NEGLIGIBLE
        return True


class TenantGroups:
    """The groups of all tenants of a runtime. All methods run on the event loop."""

    def __init__(self, cgroups: CgroupManager) -> None:
        self._cgroups = cgroups
        self.groups: dict[str, TenantGroup] = {}
        self._one = asyncio.Semaphore()
        self.linger = LINGER

    def enter(self, tenant: str, sandbox: str, memory: int | None) -> list[Group]:
        """Call before a sandbox is created. Returns the groups to create first, if any; call `begin` after that."""
        group = self.groups.get(tenant)
        if group is None:
            request = tenant_group(self._cgroups.places, tenant)
            if request is None:
                return []
            spawn_requests.check_name(tenant)
            version = self._cgroups.places["memory"].version
            group = self.groups[tenant] = TenantGroup(version, request, self.linger)
        try:
            group.enter(sandbox, memory)
        except OSError as error:
            raise NodeError("Cgroups", f"cannot raise the limit of {group.directory}: {error.strerror}") from error
        return [] if group.made else [group.request]

    def begin(self, tenant: str) -> None:
        """Call when the groups of a sandbox exist."""
        group = self.groups.get(tenant)
        if group is None or group.made:
            return
        try:
            group.begin()
        except OSError as error:
            raise NodeError("Cgroups", f"cannot limit {group.directory}: {error.strerror}") from error

    def leave(self, tenant: str, sandbox: str) -> None:
        """Call when the groups of a sandbox are gone."""
        if (group := self.groups.get(tenant)) is not None:
            group.leave(sandbox, asyncio.get_running_loop().time())
            self._plan(tenant, group)

    def _plan(self, tenant: str, group: TenantGroup) -> None:
        if group.settling is not None:
            return  # it plans the next run itself
        if group.timer is not None:
            group.timer.cancel()
        due = group.account.due
        group.timer = (
            asyncio.get_running_loop().call_at(due, self._begin_to_settle, tenant, group) if due is not None else None
        )

    def _begin_to_settle(self, tenant: str, group: TenantGroup) -> None:
        group.timer = None
        group.settling = asyncio.create_task(self._settle(tenant, group))

    async def _settle(self, tenant: str, group: TenantGroup) -> None:
        group.account.due = None
        try:
            async with self._one:
                if group.account.expired(asyncio.get_running_loop().time()):
                    await self._remove(tenant, group)
                else:
                    await self.lower(tenant, group)
        except OSError as error:
            log.warning("cannot manage the control group of a namespace", namespace=tenant, error=str(error))
            group.account.retry_later(asyncio.get_running_loop().time())
        finally:
            group.settling = None
            if self.groups.get(tenant) is group:
                self._plan(tenant, group)

    async def lower(self, tenant: str, group: TenantGroup) -> None:
        loop, account = asyncio.get_running_loop(), group.account
        leftover = await asyncio.to_thread(group.settle, measure=account.should_measure(loop.time()))
        if account.settled(loop.time(), leftover):
            log.warning(
                "ended pods left memory in use that other pods hold; it counts against the limits of their namespace",
                namespace=tenant, bytes=leftover,
            )  # fmt: skip

    async def _remove(self, tenant: str, group: TenantGroup) -> None:
        empty = await asyncio.to_thread(group.is_empty)
        now = asyncio.get_running_loop().time()
        if not group.account.expired(now):
            return  # a sandbox started meanwhile
        if not empty:
            group.account.keep(now)
            return
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(group.directory)  # on the event loop: no sandbox can start in between
        del self.groups[tenant]

    async def close(self) -> None:
        """Call after all sandboxes have ended. The groups are removed with their parents."""
        for group in self.groups.values():
            if group.timer is not None:
                group.timer.cancel()
        working = [group.settling for group in self.groups.values() if group.settling is not None]
        self.groups.clear()
        if working:
            await asyncio.wait(working)  # a thread cannot be stopped
