"""Kills sandboxes that hold much kernel memory of two kinds that the kernel charges to no control group and limits by nothing:

- file locks, 200 bytes each. A process can take 600,000 in a second.
- listings of directories. An overlay keeps the names of a directory that is in several layers, up to 512 bytes each, for every open file of
  it: once for all of them, or once for each if the directory changed in between.

Neither can be reclaimed, so the machine's own count of such memory shows both, and reading that is cheap. Only when it has grown does this
guard search for who holds them (lock_owners.py, open_directories.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sandpool.node.runtimes.contract import SandboxPlan
from sandpool.node.runtimes.namespaces import lock_owners, open_directories
from sandpool.node.runtimes.namespaces.forked.cgroups import read
from sandpool.telemetry.log import logger

log = logger(__name__)

INTERVAL = 0.2  # seconds between two readings of the machine's count
PAUSE = 1.0  # seconds after a search: for a killed sandbox to release its memory, and for everybody else
GROWTH, GROWTH_EACH = (
    32 << 20,
    64 << 10,
)  # bytes that the machine's count has to grow before sandboxes are searched, and more for each
MOST = 32 << 20  # bytes that the sandboxes of one tenant may hold together
MEMORY = "/proc/meminfo"


class SearchedSandbox(Protocol):
    @property
    def plan(self) -> SandboxPlan: ...

    @property
    def pids(self) -> Collection[int]:
        """The init processes of its containers."""
        ...

    def kill_for_memory(self) -> None:
        """Kills its containers, as its memory limit would."""
        ...


def unreclaimable(text: str) -> int:
    """Bytes of kernel memory on the whole machine that cannot be reclaimed, from /proc/meminfo."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "SUnreclaim":
            return int(value.split()[0]) * 1024
    return 0


def worst(held: Mapping[str, int], tenants: Mapping[str, str], most: int) -> str | None:
    """The sandbox that holds the most bytes, of the tenant that holds the most. None if no tenant holds more than `most`. `tenants` has the tenant
    of each sandbox."""
    totals: Counter[str] = Counter()
    for sandbox, size in held.items():
        totals[tenants[sandbox]] += size
    tenant = max(totals, key=lambda name: totals[name], default="")
    if totals[tenant] <= most:
        return None
    return max((each for each in held if tenants[each] == tenant), key=lambda name: held[name])


@dataclass(slots=True)
class Growth:
    """Whether the machine's count has grown enough for a search. `seen` is its lowest value since the last one. Searching many sandboxes takes
    longer, and they need more of such memory for ordinary things."""

    enough: int
    seen: int | None = None

    def reached(self, now: int, sandboxes: int) -> bool:
        self.seen = now if self.seen is None else min(self.seen, now)
        return now - self.seen > self.enough + GROWTH_EACH * sandboxes

    def searched(self, now: int) -> None:
        self.seen = now


@dataclass(slots=True)
class UnchargedMemoryGuard:
    """Checks at intervals, while there are sandboxes."""

    sandboxes: Callable[[], Collection[SearchedSandbox]]
    most: int = MOST
    growth: Growth = field(default_factory=lambda: Growth(GROWTH))
    _task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Call after a sandbox was created. Checks run until there is none left."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while there := len(self.sandboxes()):
            now = unreclaimable(read(MEMORY))
            if self.growth.reached(now, there):
                await self.search()
                await asyncio.sleep(PAUSE)
                self.growth.searched(now)  # what has grown meanwhile counts for the next search
            await asyncio.sleep(INTERVAL)

    async def search(self) -> None:
        there = {each.plan.id: each for each in self.sandboxes()}
        inits = {pid: name for name, each in there.items() for pid in each.pids}
        held = await asyncio.to_thread(_held, inits)
        victim = worst(held, {name: each.plan.tenant for name, each in there.items()}, self.most)
        if victim is None:
            return
        sandbox = there[victim]
        log.warning(
            "a sandbox is killed: its file locks or open directories use too much kernel memory",
            pod=sandbox.plan.id,
            namespace=sandbox.plan.tenant,
            bytes=held[victim],
        )
        sandbox.kill_for_memory()


def _held(inits: Mapping[int, str]) -> dict[str, int]:
    """Bytes that each sandbox holds. Blocks."""
    sandboxes = lock_owners.sandboxes_of(inits)
    found = lock_owners.lock_bytes(sandboxes)
    for pid, sandbox in sandboxes.items():
        with contextlib.suppress(OSError):  # it has ended
            found[sandbox] += open_directories.listing_bytes(pid)
    return dict(found)
