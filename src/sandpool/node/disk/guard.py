"""Watches the file system of the data directory, and the pods that may fill it. What to do is decided in plan.py.

It runs on the event loop; everything that may take long (walks through files) is awaited beside it, so that the next look at the
file system is never late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.disk import space
from sandpool.node.disk.ballast import Ballast
from sandpool.node.disk.measured import Used, low_message, nearest, why_evicted
from sandpool.node.disk.plan import GRAIN, Plan, PodFacts, View, decide
from sandpool.node.disk.port import Occupant
from sandpool.node.disk.space import Disk, Level, Space
from sandpool.telemetry.families import (
    DISK_EVICTIONS,
    DISK_FREE,
    DISK_LEVEL,
    DISK_RESERVE,
    DISK_RESERVE_HELD,
    Family,
    Values,
)
from sandpool.telemetry.log import logger

log = logger(__name__)
WHAT_TO_DO = "delete sandboxes, images or other files"
LIMIT, PRESSURE = "limit", "pressure"
_AT_ONCE = 16  # pods that are measured
_GOING = 60.0  # seconds after which nobody waits for the room of a pod that was evicted
_PATIENCE = 5  # failures to measure a pod
_PAUSE = 1.0  # seconds between them
_AGAIN = 5.0  # seconds after which pods are thought of, also while nothing is taken from the disk
_SHORT = 1 << 20  # of the reserve: file systems round


@dataclass(slots=True)
class _Kept:
    """What is remembered of a pod between two looks. Times are monotonic."""

    pod: Occupant
    at: float  # when it was last measured, or first seen
    mark: int  # what had been taken from the file system by then
    used: Used = field(default_factory=Used)
    cost: float = 0.0
    measured: bool = False
    failures: int = 0  # in a row
    measuring: bool = False
    frozen: bool = False
    evicted: float | None = None  # when


class DiskGuard:
    """`reserve`: bytes; None is the standard one. `prune` frees what nobody needs, before anybody is evicted."""

    def __init__(self, folder: Path, ballast: Path, clock: Clock, reserve: int | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self.reserve = space.standard_reserve(space.look(folder).total) if reserve is None else reserve
        self._ballast = Ballast(ballast, self.reserve)
        self._kept: dict[Uid, _Kept] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._taken = 0  # bytes that left the free space since the start, whatever came back
        self._before: tuple[float, int] | None = None  # the last look: when, and how much was free
        self._rate = 0.0
        self._again_at = 0.0
        self._low_since = 0.0
        self._pruned = self._pruning = self._starved = False
        self._wake = asyncio.Event()
        self._measuring = asyncio.Semaphore(_AT_ONCE)
        self.pods: Callable[[], Iterable[Occupant]] = tuple
        self.prune: Callable[[], Awaitable[object]] | None = None
        self._moved = asyncio.Event()
        # When the level is another one, or a commit found no room.
        self.told: Callable[[Disk], object] = lambda disk: None
        self.evictions = {LIMIT: 0, PRESSURE: 0}
        self.disk = Disk(Level.OK, Space(0, 0), self.reserve)

    def open(self) -> None:
        """Before anything is stored: on a full disk the reserve is given to the start itself. It is taken back when there is
        room. Blocks."""
        self._ballast.hold()
        if space.look(self._folder).free < self.reserve // 8:
            self._ballast.release()
        found = self._look()
        self.disk = Disk(space.level(found, self.reserve, Level.OK), found, self.reserve)

    def starved(self) -> None:
        """A commit failed for lack of room: the store gets a quarter of the reserve, and each time another one."""
        log.error("the disk is full: a part of the reserve is given to the store", held=self._ballast.held)
        self._ballast.release(max(self.reserve // 4, _SHORT))
        self._starved = True
        self._wake.set()

    @property
    def pressure(self) -> str:
        """Why no pod is started at the moment; empty while there is room."""
        words = self.disk.words
        return f"{words}; it is started when there is room: {WHAT_TO_DO}" if words else ""

    async def moved(self) -> None:
        """Waits until the level is another one."""
        level = self.disk.level
        while self.disk.level is level:
            self._moved.clear()
            await self._moved.wait()

    async def run(self) -> None:
        self._tell()
        try:
            while True:
                plan = self._step()
                try:
                    async with asyncio.timeout(plan.wait):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
        finally:
            for task in self._work:
                task.cancel()
            await asyncio.gather(*self._work, return_exceptions=True)

    def read(self) -> Iterable[tuple[Family, Values]]:
        """For metrics."""
        disk = self.disk
        yield DISK_FREE, {(): float(disk.space.free)}
        yield DISK_RESERVE, {(): float(self.reserve)}
        yield DISK_RESERVE_HELD, {(): float(self._ballast.held)}
        yield DISK_LEVEL, {(level.name.lower(),): float(disk.level is level) for level in Level}
        yield DISK_EVICTIONS, {(why,): float(count) for why, count in self.evictions.items()}

    # One look

    def _look(self) -> Space:
        return space.beyond(space.look(self._folder), self._ballast.missing)

    def _step(self) -> Plan:
        now = self._clock.monotonic()
        try:
            found = self._look()
        except OSError as error:
            log.warning("the file system cannot be looked at", folder=str(self._folder), error=str(error))
            return Plan()
        fell, quiet = 0, False
        if self._before is not None:
            at, free = self._before
            fell = max(0, free - found.free)
            quiet = fell == 0 and self.disk.level is Level.OK and not self._work and not self._busy()
            self._rate = fell / max(now - at, 0.001)
        self._before = (now, found.free)
        self._see(found)
        self._refill()
        if quiet and self.disk.level is Level.OK and now < self._again_at:
            return Plan()  # nobody can have come nearer to a limit
        self._again_at = now + _AGAIN
        self._follow(now)
        self._taken += fell  # after new pods were seen: it may be theirs
        plan = decide(self._view(found, now))
        self._carry_out(plan)
        return plan

    def _see(self, found: Space) -> None:
        known, new = self.disk.level, space.level(found, self.reserve, self.disk.level)
        self.disk = Disk(new, found, self.reserve)
        if self._starved and new is known:
            self.told(self.disk)  # the store thinks that it is full, whatever is true
        self._starved = False
        if new is known:
            return
        if known is Level.OK:
            self._low_since = self._clock.monotonic()
        if new is Level.OK:
            self._pruned = False
            log.info("the disk has room again", free=found.free)
        self._tell()
        self._moved.set()
        self.told(self.disk)

    def _tell(self) -> None:
        if self.disk.words:
            log.warning(self.disk.words, free=self.disk.space.free, reserve=self.reserve)

    def _refill(self) -> None:
        if self.disk.level is Level.OK and self._ballast.missing > _SHORT and self.disk.space.free > self.reserve * 2:
            self._ballast.hold()
            self._before = None  # what we take ourselves is nobody's

    def _follow(self, now: float) -> None:
        """Pods that are new, and those that are gone."""
        there = {pod.uid: pod for pod in self.pods()}
        for uid in [uid for uid in self._kept if uid not in there]:
            del self._kept[uid]
        for uid, pod in there.items():
            kept = self._kept.get(uid)
            if kept is None or kept.pod is not pod:
                self._kept[uid] = _Kept(pod, now, self._taken)

    def _busy(self) -> bool:
        return any(kept.frozen or kept.measuring for kept in self._kept.values())

    def _view(self, found: Space, now: float) -> View:
        low = self.disk.level is not Level.OK
        pods = [self._facts(uid, kept, now) for uid, kept in self._kept.items() if low or kept.pod.limits.any]
        pruned = self._pruned or self.prune is None
        worth = found.inodes // 6400 if self.disk.short_of_inodes else self.reserve // 64
        return View(self.disk.level, found.free, self.reserve, self._rate, pods, self._pruning, pruned, worth)

    def _facts(self, uid: Uid, kept: _Kept, now: float) -> PodFacts:
        slack, allowance = nearest(kept.used, kept.pod.limits)
        taken = self._taken - kept.mark
        inodes = self.disk.short_of_inodes
        return PodFacts(
            uid,
            slack,
            allowance,
            taken,
            now - kept.at,
            kept.cost,
            kept.used.inodes if inodes else kept.used.total + kept.used.beyond,
            0 if inodes else kept.pod.limits.request,
            kept.pod.over,
            kept.measuring,
            kept.frozen,
            kept.evicted is not None,
            kept.evicted is not None and now - kept.evicted < _GOING,
            not kept.measured and not kept.pod.began_empty,
            kept.measured and kept.at >= self._low_since and taken < GRAIN,
        )

    # What was decided

    def _carry_out(self, plan: Plan) -> None:
        for uid in plan.freeze:
            self._kept[uid].frozen = True
            self._beside(self._freeze(self._kept[uid]))
        for uid in plan.measure:
            self._kept[uid].measuring = True
            self._beside(self._measure(self._kept[uid]))
        for uid in plan.thaw:
            self._kept[uid].frozen = False
            self._beside(self._thaw(self._kept[uid]))
        if plan.prune and self.prune is not None:
            self._pruning = True
            self._beside(self._prune(self.prune))
        if plan.evict is not None:
            kept = self._kept[plan.evict]
            resource = "inodes" if self.disk.short_of_inodes else "ephemeral-storage"
            self._evict(kept, low_message(kept.used, kept.pod.limits, resource), PRESSURE)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _measure(self, kept: _Kept) -> None:
        began, mark = self._clock.monotonic(), self._taken
        try:
            async with self._measuring:
                await self._freeze(kept)
                used = await kept.pod.measure(thorough=self.disk.level is not Level.OK)
        except NodeError as error:
            await self._not_measured(kept, error.message)
            return
        except Exception as error:  # ours, perhaps provoked: whoever does it must not stay unmeasured for it
            await self._not_measured(kept, f"{type(error).__name__}: {error}")
            return
        finally:
            kept.measuring = False
            self._wake.set()
        kept.used, kept.at, kept.mark, kept.measured, kept.failures = used, began, mark, True, 0
        kept.cost = self._clock.monotonic() - began
        why = why_evicted(used, kept.pod.limits)
        if why and kept.evicted is None:
            self._evict(kept, why, LIMIT)

    async def _not_measured(self, kept: _Kept, error: str) -> None:
        """It stays frozen and due, and is tried again. Nobody stays because he cannot be measured."""
        kept.failures += 1
        log.warning("the storage of a pod is not measured", pod=kept.pod.uid, error=error)
        if kept.failures >= _PATIENCE and kept.evicted is None:
            self._evict(kept, f"Pod ephemeral local storage usage cannot be measured: {error}. ", LIMIT)
        else:
            await self._clock.sleep(_PAUSE)

    def _evict(self, kept: _Kept, message: str, why: str) -> None:
        kept.evicted = self._clock.monotonic()
        self.evictions[why] += 1
        log.warning("pod evicted", pod=kept.pod.uid, why=message, used=kept.used.total)
        kept.pod.evict(message)

    async def _freeze(self, kept: _Kept) -> None:
        try:
            await kept.pod.freeze()
        except NodeError as error:
            log.warning("a pod could not be frozen", pod=kept.pod.uid, error=error.message)

    async def _thaw(self, kept: _Kept) -> None:
        try:
            await kept.pod.thaw()
        except NodeError as error:
            log.warning("a pod could not be thawed", pod=kept.pod.uid, error=error.message)

    async def _prune(self, prune: Callable[[], Awaitable[object]]) -> None:
        try:
            await prune()
        except Exception as error:
            log.warning("nothing could be pruned", error=str(error))
        finally:
            self._pruned, self._pruning = True, False
            self._wake.set()
