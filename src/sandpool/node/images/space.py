"""The disk space of images. Tenants share it: what each uses is counted, and a pull gets room by removing images that nobody uses.

A tenant has what `Charges` (prune.py) says of the stored images, plus what its running pulls have written. A tenant alone may fill nearly
all of the disk that is left for images; when another one needs room, unused images of the tenant with more are removed first (prune.py).
Files count as well as bytes: a file system has a limited number of both.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sandpool.base.clock import Clock
from sandpool.base.offload import FairThreads
from sandpool.base.shares import OPERATOR
from sandpool.base.shielded import shielded
from sandpool.node.images import garbage_collection
from sandpool.node.images.directory import ImageDirectory
from sandpool.node.images.prune import RoomRequest, room_of
from sandpool.node.images.worker_process import DiskFull
from sandpool.telemetry.log import logger

log = logger(__name__)

AtWork = Callable[[], AbstractContextManager[None]]
AHEAD: Final = 256 << 20
"""Most bytes for which room is made in advance: an image must not displace others by its announced size alone."""
PAUSE: Final = 5.0
"""Seconds until a pull that found nothing to remove tries again."""


@dataclass(frozen=True, slots=True)
class Disk:
    """How much of the disk pulls may still take."""

    free: int  # bytes that pulls may still take
    each_file: int  # bytes that a file counts for at least; 0 where files are not limited


class NoRoom(Exception):
    """A tenant has used up its share of the disk."""

    def __init__(self, tenant: str, held: int) -> None:
        super().__init__(
            f"no room is left for it: images of namespace {tenant} have {_amount(held)} of the disk, with this pull, and may not take the "
            "last of it from other namespaces. Delete pods that use other images, or ask the operator to make room"
        )


class ImageSpace:
    """The disk space of one image store."""

    def __init__(self, directory: ImageDirectory, clock: Clock, leave: int, threads: FairThreads) -> None:
        self._directory = directory
        self._clock = clock
        self._leave = leave
        self._threads = threads
        self._stored: dict[str, int] = {}  # by tenant, as last counted
        self.pulling: Counter[str] = Counter()

    def disk(self) -> Disk:
        """The disk as images may use it: without the reserve and without what pods need to run."""
        return disk_of(self._directory.root, self._leave)

    def room(self, tenant: str) -> int:
        return room_of(tenant, self._stored, self.pulling, self.disk().free)

    def held(self, tenant: str) -> int:
        return self._stored.get(tenant, 0) + self.pulling[tenant]

    async def look(self, tenant: str) -> None:
        """Counts what is stored again, after a change or before a pull of this tenant."""
        count = partial(garbage_collection.charges, self._directory, self.disk().each_file)
        self._stored = await shielded(self._threads.run(tenant, count))

    async def make_room(self, tenant: str, wanted: int, *, really: bool = True) -> int:
        """Removes images that may be removed for this tenant until there is room. Returns the room there is then; with `really=False`
        nothing is removed and the room that there could be is returned."""
        room = self.room(tenant)
        if room >= wanted or tenant == OPERATOR:
            return room
        disk = self.disk()
        asking = RoomRequest(tenant, wanted, disk.free, dict(self.pulling))
        make = partial(garbage_collection.make_room, self._directory, disk.each_file, asking, really=really)
        made = await shielded(self._threads.run(tenant, make))
        if not really:
            return made.room
        self._stored = made.charges
        if made.removed.images:
            log.info(
                "images removed for another namespace's pull",
                namespace=tenant,
                images=", ".join(made.removed.images),
                bytes=made.removed.bytes,
            )
        return self.room(tenant)

    def wrote(self, tenant: str, amount: int) -> None:
        self.pulling[tenant] += amount
        if not self.pulling[tenant]:
            del self.pulling[tenant]

    @contextmanager
    def pull(self, tenant: str, at_work: AtWork = nullcontext) -> Iterator[PullSpace]:
        """`at_work` is entered around slow steps."""
        space = PullSpace(self, tenant, self._clock.monotonic, at_work)
        try:
            yield space
        finally:
            space.forget()


class PullSpace:
    """What one pull has written, and may still write."""

    def __init__(self, space: ImageSpace, tenant: str, now: Callable[[], float], at_work: AtWork) -> None:
        self._space = space
        self._at_work = at_work
        self._tenant = tenant
        self._now = now
        self._written: dict[str, int] = {}  # by what it is part of
        self._again = float("-inf")  # when it is worth looking for more room

    def room(self) -> int:
        """What there is now."""
        return max(0, self._space.room(self._tenant))

    async def make_room(self, wanted: int) -> int:
        """Makes room for up to `wanted` bytes. Returns the room there is then."""
        with self._at_work():
            return max(0, await self._space.make_room(self._tenant, wanted))

    async def potential(self, wanted: int) -> int:
        """The room that there could be for it, up to what is wanted; nothing is removed yet."""
        return min(wanted, await self._space.make_room(self._tenant, wanted, really=False))

    async def wrote(self, part: str, size: int, files: int, ahead: int) -> None:
        """Records how much a part has written, with `ahead` more to come soon. Raises DiskFull or NoRoom."""
        self.set(part, self.cost(size, files))
        ahead = max(1, min(AHEAD, ahead))
        room = self._space.room(self._tenant)
        if room < ahead and self._now() >= self._again:
            room = await self.make_room(ahead)
            if room < ahead:
                self._again = self._now() + PAUSE
        if room <= 0:
            raise self.refusal()

    def cost(self, size: int, files: int) -> int:
        return max(size, files * self._space.disk().each_file)

    def files(self, room: int) -> int:
        """How many files fit into that."""
        each = self._space.disk().each_file
        return room // each if each else room

    def set(self, part: str, cost: int) -> None:
        self._space.wrote(self._tenant, cost - self._written.get(part, 0))
        self._written[part] = cost

    def refusal(self) -> Exception:
        if self._tenant == OPERATOR or self._space.disk().free <= 0:
            return DiskFull()
        return NoRoom(self._tenant, self._space.held(self._tenant))

    def forget(self) -> None:
        for part in self._written:
            self.set(part, 0)


def disk_of(root: Path, leave: int) -> Disk:
    found = os.statvfs(root)
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    each_file = size // found.f_files if found.f_files else 0
    if each_file:
        free = min(free, found.f_favail * each_file)
    return Disk(free - leave, each_file)


def _amount(size: int) -> str:
    return f"{size / 10**9:.1f} GB" if size >= 10**9 else f"{size / 10**6:.0f} MB"
