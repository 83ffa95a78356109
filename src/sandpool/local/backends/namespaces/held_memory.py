"""Memory of a sandbox that has ended and that stays in use: it gave open files, or a namespace, to another one.

The kernel counts memory for whoever first used it, also when he is gone: what another sandbox holds of it counts for nobody who has a
limit, and a tenant whose sandboxes come and go could take all memory of the machine.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from sandpool.local.backends.namespaces.cgroups import Cgroups, keyed, number
from sandpool.local.backends.namespaces.forked.cgroup_files import read

MOST = (8 << 20) + (os.cpu_count() or 1) * (256 << 10)
"""Bytes that nobody asks about: small things, and what the kernel keeps ready for each processor."""
PAUSES = (0.005, 0.02, 0.08, 0.2)
"""Seconds. It lets go of what has ended a moment later."""


@dataclass(frozen=True, slots=True)
class Left:
    """Bytes. Of the kernel's own memory some is only remembered, and goes when somebody needs it; where it does not say how much, all
    of it is `perhaps`."""

    surely: int = 0
    perhaps: int = 0

    @property
    def matters(self) -> bool:
        return self.surely > MOST or self.perhaps > MOST


def left_1(usage: int, kernel: int, sockets: int, stat: str) -> Left:
    """By version 1. Copies of files on disk are no loss: they go when somebody needs the room."""
    files = max(0, keyed(stat, "total_cache") - keyed(stat, "total_shmem"))
    return Left(max(0, usage - kernel - files) + sockets + keyed(stat, "total_swap"), kernel)


def left_2(usage: int, swap: int, stat: str) -> Left:
    files = max(0, keyed(stat, "file") - keyed(stat, "shmem"))
    return Left(max(0, usage - files - keyed(stat, "slab_reclaimable")) + swap)


def left(cgroups: Cgroups, group: str) -> Left:
    place = cgroups.places.get("memory")
    if place is None:
        return Left()
    folder, version_1 = f"{place.folder}/{group}", ("usage_in_bytes", "kmem.usage_in_bytes", "kmem.tcp.usage_in_bytes")
    stat = read(f"{folder}/memory.stat")
    if place.version == 1:
        usage, kernel, sockets = (number(read(f"{folder}/memory.{name}")) for name in version_1)
        return left_1(usage, kernel, sockets, stat)
    usage, swap = (number(read(f"{folder}/memory.{name}")) for name in ("current", "swap.current"))
    return left_2(usage, swap, stat)


async def settled(cgroups: Cgroups, group: str) -> Left:
    """What is left when all has ended, and the kernel has had its time."""
    found = left(cgroups, group)
    for pause in PAUSES:
        if found.surely <= MOST:
            break
        await asyncio.sleep(pause)
        found = left(cgroups, group)
    return found
