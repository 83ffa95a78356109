"""The memory limit of all sandboxes of one tenant, and when to apply it. Pure: time is an argument.

Memory that is still in use when a control group is removed stays charged to its parent. So a tenant's group counts its live sandboxes and what
ended ones left in use: open files, sockets and namespaces that they passed to others. Its limit is the sum of the limits of the live sandboxes
plus some spare. So leftovers reduce the memory of the tenant that left them, and of no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandpool.base.backoff import doubled
from sandpool.node.runtimes.namespaces.cgroup_settings import (
    DEFAULT_SOCKET_BYTES,
    LEAST_SOCKET_BYTES,
    SOCKETS,
    socket_bytes,
)

UNLIMITED = 1 << 62
SPARE, SPARE_PART = 32 << 20, 8
"""Added to the sum: 32 MiB for what the kernel itself charges to the group, and an eighth, so that most starts need no write."""
MARGIN = 4 << 20  # by which usage may grow between a read and a write
RECLAIM_STEP = 32 << 20

INTERVAL, LONGEST = 1.0, 60.0  # seconds between attempts to lower a limit
LINGER = 600.0
"""Seconds that a tenant's group stays without sandboxes, so that a tenant that deletes everything and starts again keeps its account."""
REPORTED = 16 << 20  # leftover bytes above which a warning is logged
MEASURE_INTERVAL = 10.0  # seconds
NEGLIGIBLE = 256 << 10  # leftover bytes with which a group may be removed


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Bytes of memory and, where the kernel counts them apart (version 1), of socket buffers."""

    memory: int = UNLIMITED
    sockets: int = UNLIMITED

    def fits(self, other: MemoryLimits) -> bool:
        return self.memory <= other.memory and self.sockets <= other.sockets

    def union(self, other: MemoryLimits) -> MemoryLimits:
        return MemoryLimits(max(self.memory, other.memory), max(self.sockets, other.sockets))


def writes(version: int, old: MemoryLimits, new: MemoryLimits) -> list[tuple[str, str, bool]]:
    """The files to write, in an order that version 1 accepts: the limit with swap is never below the one without. The last element says whether a
    failure matters."""
    found: list[tuple[str, str, bool]] = []
    if new.memory != old.memory:
        if version == 2:
            found.append(("memory.max", _text(version, new.memory), True))
        else:
            text = _text(version, new.memory)
            both = [("memory.limit_in_bytes", text, True), ("memory.memsw.limit_in_bytes", text, False)]
            found += both if new.memory < old.memory else both[::-1]
    if new.sockets != old.sockets and version == 1:
        found.append((SOCKETS, _text(version, new.sockets), False))
    return found


def _text(version: int, number: int) -> str:
    if number < UNLIMITED:
        return str(number)
    return "-1" if version == 1 else "max"


def reclaim_step(target: MemoryLimits, used: MemoryLimits) -> int:
    """Bytes of page cache to reclaim next, in small steps that are soon done. 0 if none are needed."""
    return min(RECLAIM_STEP, max(0, used.memory + MARGIN - target.memory))


def lowered(applied: MemoryLimits, target: MemoryLimits, used: MemoryLimits) -> MemoryLimits:
    """The lowest limit that can be applied without reclaim. If usage is above the target, it leaves the live sandboxes some room, but it never
    exceeds the currently applied limit: otherwise it would follow a growing usage."""
    memory = target.memory if used.memory + MARGIN <= target.memory else max(target.memory, used.memory + SPARE)
    return MemoryLimits(min(applied.memory, memory), min(applied.sockets, max(target.sockets, used.sockets)))


@dataclass(slots=True)
class Account:
    """The live sandboxes of one tenant and the limits that are applied for them."""

    applied: MemoryLimits = MemoryLimits()
    fresh: bool = True  # nothing was written yet
    live: dict[str, int | None] = field(default_factory=dict)
    due: float | None = None  # when to reconcile again
    linger: float = LINGER
    _memory: int = 0
    _sockets: int = 0
    _unlimited: int = 0
    _idle_since: float | None = None
    _tries: int = 0
    _measured: float = -MEASURE_INTERVAL
    _leftover: int = 0
    _leftover_since: float | None = None
    _reported: bool = False

    def enter(self, sandbox: str, memory: int | None) -> None:
        """Adds a sandbox that is about to start. Without a memory limit of its own, its tenant has none either."""
        if sandbox in self.live:
            self._count(sandbox, -1)
        self.live[sandbox] = memory
        self._count(sandbox, 1)
        self._idle_since = None

    def leave(self, sandbox: str, now: float) -> None:
        """Removes a sandbox whose groups are gone."""
        if sandbox not in self.live:
            return
        self._count(sandbox, -1)
        del self.live[sandbox]
        if not self.live:
            self._idle_since = now
        self._tries = 0
        self.due = now + INTERVAL if self.due is None else min(self.due, now + INTERVAL)

    def _count(self, sandbox: str, sign: int) -> None:
        memory = self.live[sandbox]
        self._memory += sign * (memory or 0)
        self._unlimited += sign * (memory is None)
        self._sockets += sign * (DEFAULT_SOCKET_BYTES if memory is None else socket_bytes(memory))

    @property
    def minimum(self) -> MemoryLimits:
        """Below this, live sandboxes could be refused memory that is within their own limits."""
        return MemoryLimits(UNLIMITED if self._unlimited else self._memory + SPARE, self._sockets)

    @property
    def target(self) -> MemoryLimits:
        memory, sockets = self.minimum.memory + self._memory // SPARE_PART, self._sockets + self._sockets // SPARE_PART
        return MemoryLimits(min(memory, UNLIMITED), sockets + LEAST_SOCKET_BYTES)

    def raised(self) -> MemoryLimits:
        """The limits to apply before a sandbox starts: those that are applied, if they are enough."""
        if self.fresh:
            return self.target
        return self.applied if self.minimum.fits(self.applied) else self.applied.union(self.target)

    def expired(self, now: float) -> bool:
        """Whether the group has had no sandbox for long enough to be removed."""
        return self._idle_since is not None and now >= self._idle_since + self.linger

    def keep(self, now: float) -> None:
        """Call if the group is still charged for something. Removal is tried again after the same time."""
        self._idle_since, self.due = now, now + max(INTERVAL, self.linger)

    def retry_later(self, now: float) -> None:
        """Call after an unexpected error."""
        self.due = now + LONGEST

    def should_measure(self, now: float) -> bool:
        """Measuring reads the statistics of every live sandbox, so it happens only now and then."""
        return now >= self._measured + MEASURE_INTERVAL

    def should_reclaim(self, leftover: int | None) -> bool:
        """Page cache of ended sandboxes is worth keeping, unless they left something else as well."""
        return (self._leftover if leftover is None else leftover) > REPORTED

    def settled(self, now: float, leftover: int | None) -> bool:
        """Decides when to reconcile again; `leftover` is what ended sandboxes left in use, if it was measured. True: log a warning, once."""
        waits = [] if self.due is None else [self.due - now]  # a sandbox ended meanwhile
        if not self.applied.fits(self.target):
            waits.append(doubled(INTERVAL, self._tries, LONGEST))
            self._tries = min(self._tries + 1, 8)
        warn = False
        if leftover is None:
            waits.append(max(INTERVAL, self._measured + MEASURE_INTERVAL - now))
        else:
            self._measured, self._leftover = now, leftover
            warn = self._should_warn(now, leftover)
            if leftover > REPORTED:
                waits.append(MEASURE_INTERVAL if not self._reported else LONGEST)
        if self._idle_since is not None:
            waits.append(max(0.0, self._idle_since + self.linger - now))
        self.due = now + min(waits) if waits else None
        return warn

    def _should_warn(self, now: float, leftover: int) -> bool:
        if leftover <= REPORTED:
            self._leftover_since, self._reported = None, False
            return False
        if self._leftover_since is None:
            self._leftover_since = now
        if self._reported or now < self._leftover_since + MEASURE_INTERVAL:
            return False
        self._reported = True
        return True
