"""The control groups of tenants: made for a tenant's first sandbox, limited to what its living sandboxes may use, removed when nothing of
note is left. Raising a limit is one short write; lowering one makes the kernel reclaim, so a thread does it and nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading

from sandpool.local.backends.namespaces import orders
from sandpool.local.backends.namespaces.cgroups import Cgroups, tenant_group
from sandpool.local.backends.namespaces.forked.cgroup_files import Group, read, write
from sandpool.local.backends.namespaces.group_readings import keyed, number
from sandpool.local.backends.namespaces.tenant_accounts import (
    LINGER,
    NOTHING,
    Account,
    Allowance,
    eased,
    pressed,
    writes,
)
from sandpool.local.errors import NodeError
from sandpool.telemetry.log import logger

log = logger(__name__)

STEPS = 16  # of one attempt to lower


def in_use(version: int, folder: str) -> int:
    """Bytes of a group, and of those that were in it, that the kernel cannot have back by itself. On version 1 without its own memory,
    of which nobody knows how much it only remembers."""
    stat = read(f"{folder}/memory.stat")
    if version == 1:
        return sum(keyed(stat, f"total_{name}") for name in ("rss", "shmem", "swap"))
    remembered = keyed(stat, "file") - keyed(stat, "shmem") + keyed(stat, "slab_reclaimable")
    return max(0, number(read(f"{folder}/memory.current")) - remembered)


class TenantGroup:
    """One of them. The event loop changes its account and raises; a thread lowers. The lock is never held while the kernel reclaims."""

    def __init__(self, version: int, order: Group, linger: float) -> None:
        self.version = version
        self.order = order  # to make it
        self.folder = order[0]
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
        """It is there."""
        with self._lock:
            self.made = True
            self._raise()

    def leave(self, sandbox: str, now: float) -> None:
        with self._lock:
            self.account.leave(sandbox, now)

    def _raise(self) -> None:
        old, new = self.account.allowed, self.account.raised()
        if new != old:
            try:
                self._write(old, new)
            except FileNotFoundError:
                raise
            except OSError:  # the thread had just come between the two limits of version 1; now it waits for the lock
                self._write(old, new)
            self.account.allowed = new
        self.account.fresh = False

    def _write(self, old: Allowance, new: Allowance) -> None:
        for file, value, required in writes(self.version, old, new):
            try:
                # Without waiting: so newer kernels reclaim for version 2 when somebody takes more, and end nobody now.
                write(f"{self.folder}/{file}", value, os.O_NONBLOCK)
            except OSError:
                if required:
                    raise

    def settle(self, *, look: bool) -> int | None:
        """Lowers the limit as far as it can be; says what ended sandboxes left in use, if asked. May take a while."""
        left = self._left() if look else None
        before = self.account.allowed
        with contextlib.suppress(FileNotFoundError):  # it was never made
            if self.account.presses(left):
                for _ in range(STEPS):
                    if not self._press():
                        break
            with self._lock:
                old, wanted = self.account.allowed, self.account.wanted
            self._try(old, eased(before.or_more(old), wanted, self._used()))
        return left

    def _press(self) -> bool:
        """Has the kernel give up a part of what it only remembers; False if it cannot, or need not."""
        with self._lock:
            old, wanted = self.account.allowed, self.account.wanted
        used = self._used()
        size = pressed(wanted, used)
        if not size:
            return False
        if self.version == 2:
            self._reclaim(size)
            return self._used().memory < used.memory
        new = Allowance(min(old.memory, used.memory - size), old.sockets)
        return self._try(old, new)  # version 1 can be asked in no other way

    def _try(self, old: Allowance, new: Allowance) -> bool:
        """False if version 1 says that more is in use."""
        try:
            self._write(old, new)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        self._lowered(new)
        return True

    def _lowered(self, new: Allowance) -> None:
        """Whoever came meanwhile gets what it was promised."""
        with self._lock:
            self.account.allowed = new
            self._raise()

    def _reclaim(self, size: int) -> None:
        with contextlib.suppress(OSError):
            write(f"{self.folder}/memory.reclaim", str(size))

    def _used(self) -> Allowance:
        if self.version == 2:
            return Allowance(number(read(f"{self.folder}/memory.current")), 0)
        names = ("memory.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes")
        return Allowance(*(number(read(f"{self.folder}/{name}")) for name in names))

    def _left(self) -> int:
        with self._lock:
            living = list(self.account.living)
        own = sum(in_use(self.version, f"{self.folder}/{each}") for each in living)
        return max(0, in_use(self.version, self.folder) - own)

    def emptied(self) -> bool:
        """Of a group without sandboxes: whether nothing of note is in use any more. Takes a while."""
        if in_use(self.version, self.folder) > NOTHING:
            return False
        if self.version == 1 and number(read(f"{self.folder}/memory.kmem.usage_in_bytes")) > NOTHING:
            with contextlib.suppress(OSError):  # the kernel forgets what it only remembers, and the rest is in use
                write(f"{self.folder}/memory.force_empty", "0")
            return number(read(f"{self.folder}/memory.kmem.usage_in_bytes")) <= NOTHING
        return True


class TenantGroups:
    """All of a runtime. Called on the event loop."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._groups: dict[str, TenantGroup] = {}
        self._one = asyncio.Semaphore()
        self.linger = LINGER

    def enter(self, tenant: str, sandbox: str, memory: int | None) -> list[Group]:
        """Before a sandbox is made. What is to be made first, if anything; `begin` follows then."""
        group = self._groups.get(tenant)
        if group is None:
            order = tenant_group(self._cgroups.places, tenant)
            if order is None:
                return []
            orders.check_name(tenant)
            version = self._cgroups.places["memory"].version
            group = self._groups[tenant] = TenantGroup(version, order, self.linger)
        try:
            group.enter(sandbox, memory)
        except OSError as error:
            raise NodeError("Cgroups", f"cannot raise the limit of {group.folder}: {error.strerror}") from error
        return [] if group.made else [group.order]

    def begin(self, tenant: str) -> None:
        """Its group is there now."""
        group = self._groups.get(tenant)
        if group is None or group.made:
            return
        try:
            group.begin()
        except OSError as error:
            raise NodeError("Cgroups", f"cannot limit {group.folder}: {error.strerror}") from error

    def leave(self, tenant: str, sandbox: str) -> None:
        """Nothing of it runs any more, and its groups are gone."""
        if (group := self._groups.get(tenant)) is not None:
            group.leave(sandbox, asyncio.get_running_loop().time())
            self._plan(tenant, group)

    def _plan(self, tenant: str, group: TenantGroup) -> None:
        if group.settling is not None:
            return  # which plans again
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
                    await self._lower(tenant, group)
        except OSError as error:
            log.warning("cannot change the limit of memory of a namespace", namespace=tenant, error=str(error))
            group.account.put_off(asyncio.get_running_loop().time())
        finally:
            group.settling = None
            if self._groups.get(tenant) is group:
                self._plan(tenant, group)

    async def _lower(self, tenant: str, group: TenantGroup) -> None:
        loop, account = asyncio.get_running_loop(), group.account
        left = await asyncio.to_thread(group.settle, look=account.looks(loop.time()))
        if account.settled(loop.time(), left):
            log.warning(
                "ended pods left memory in use, which other pods hold; it counts against the limits of their namespace",
                namespace=tenant, bytes=left,
            )  # fmt: skip

    async def _remove(self, tenant: str, group: TenantGroup) -> None:
        emptied = await asyncio.to_thread(group.emptied)
        if not group.account.expired(asyncio.get_running_loop().time()):
            return  # somebody came meanwhile
        try:
            if emptied:
                os.rmdir(group.folder)  # here, so that nobody comes meanwhile
                del self._groups[tenant]
                return
        except FileNotFoundError:
            del self._groups[tenant]
            return
        except OSError as error:
            log.warning("cannot remove a control group", folder=group.folder, error=str(error))
        group.account.stays(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """After the sandboxes. The groups themselves go with their parents."""
        for group in self._groups.values():
            if group.timer is not None:
                group.timer.cancel()
        working = [group.settling for group in self._groups.values() if group.settling is not None]
        self._groups.clear()
        if working:
            await asyncio.wait(working)  # a thread cannot be stopped
