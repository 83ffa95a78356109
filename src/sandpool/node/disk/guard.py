"""Watches the file system of the data directory and the pods that may fill it. plan.py decides what to do.

It runs on the event loop; what may take long (walking through files) runs in tasks of its own, so that the next check of the file system
is never late.
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
from sandpool.node.disk.plan import GRAIN, Plan, PodFacts, View, decide
from sandpool.node.disk.space import Ballast, Disk, Level, Space
from sandpool.node.disk.usage import Occupant, Used, eviction_message, low_message, nearest_limit
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
_AT_ONCE = 16  # pods measured at the same time
_GOING = 60.0  # seconds to wait for the space of an evicted pod before another one is evicted
_PATIENCE = 5  # failed measurements after which a pod is evicted
_PAUSE = 1.0  # seconds between them
_AGAIN = 5.0  # seconds after which pods are considered again, even if free space does not shrink
_SHORT = 1 << 20  # bytes that the reserve may be short: file systems round


@dataclass(slots=True)
class _TrackedPod:
    """What is remembered of a pod between two checks of the disk. Times are monotonic."""

    pod: Occupant
    at: float  # when it was last measured, or first seen
    mark: int  # value of `_taken` at that time
    used: Used = field(default_factory=Used)
    cost: float = 0.0
    measured: bool = False
    failures: int = 0  # in a row
    measuring: bool = False
    frozen: bool = False
    evicted: float | None = None  # when


class DiskGuard:
    """Keeps the reserve, watches the disk, and freezes, measures and evicts pods. `reserve` is in bytes; None is the default. `prune` removes
    unused images, before any pod is evicted."""

    def __init__(self, directory: Path, ballast: Path, clock: Clock, reserve: int | None = None) -> None:
        self._directory = directory
        self._clock = clock
        self.reserve = space.standard_reserve(space.file_system_space(directory).total) if reserve is None else reserve
        self._ballast = Ballast(ballast, self.reserve)
        self._tracked: dict[Uid, _TrackedPod] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._taken = 0  # sum of all decreases of the free space since the start
        self._before: tuple[float, int] | None = None  # the last check: time and free bytes
        self._rate = 0.0
        self._again_at = 0.0
        self._low_since = 0.0
        self._pruned = self._pruning = self._starved = False
        self._wake = asyncio.Event()
        self._measuring = asyncio.Semaphore(_AT_ONCE)
        self.pods: Callable[[], Iterable[Occupant]] = tuple
        self.prune: Callable[[], Awaitable[object]] | None = None
        self._level_moved = asyncio.Event()
        # Called when the level changes, or after a commit found no space.
        self.on_change: Callable[[Disk], object] = lambda disk: None
        self.evictions = {LIMIT: 0, PRESSURE: 0}
        self.disk = Disk(Level.OK, Space(0, 0), self.reserve)

    def open(self) -> None:
        """Takes the reserve before anything is stored. On a full disk it is released for the start itself, and taken back when there is
        room. Blocks."""
        self._ballast.hold()
        if space.file_system_space(self._directory).free < self.reserve // 8:
            self._ballast.release()
        found = self._look()
        self.disk = Disk(space.level(found, self.reserve, Level.OK), found, self.reserve)

    def starved(self) -> None:
        """A commit failed for lack of space: releases another quarter of the reserve for the store."""
        log.error("disk full: part of the reserve released for the store", held=self._ballast.held)
        self._ballast.release(max(self.reserve // 4, _SHORT))
        self._starved = True
        self._wake.set()

    @property
    def pressure(self) -> str:
        """Why no pod is started at the moment; empty while there is space."""
        message = self.disk.message
        return f"{message}; it is started when there is room: {WHAT_TO_DO}" if message else ""

    async def level_changed(self) -> None:
        """Waits until the level changes."""
        level = self.disk.level
        while self.disk.level is level:
            self._level_moved.clear()
            await self._level_moved.wait()

    async def run(self) -> None:
        self._log_level()
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

    # One check

    def _look(self) -> Space:
        return space.beyond(space.file_system_space(self._directory), self._ballast.missing)

    def _step(self) -> Plan:
        now = self._clock.monotonic()
        try:
            found = self._look()
        except OSError as error:
            log.warning("free space of the file system not readable", directory=str(self._directory), error=str(error))
            return Plan()
        fell, quiet = 0, False
        if self._before is not None:
            at, free = self._before
            fell = max(0, free - found.free)
            quiet = fell == 0 and self.disk.level is Level.OK and not self._work and not self._busy()
            self._rate = fell / max(now - at, 0.001)
        self._before = (now, found.free)
        self._update_level(found)
        self._refill()
        if quiet and self.disk.level is Level.OK and now < self._again_at:
            return Plan()  # no pod can have come closer to a limit
        self._again_at = now + _AGAIN
        self._track_pods(now)
        self._taken += fell  # after new pods were added: they may have taken it
        plan = decide(self._view(found, now))
        self._apply(plan)
        return plan

    def _update_level(self, found: Space) -> None:
        known, new = self.disk.level, space.level(found, self.reserve, self.disk.level)
        self.disk = Disk(new, found, self.reserve)
        if self._starved and new is known:
            self.on_change(self.disk)  # the store still assumes a full disk
        self._starved = False
        if new is known:
            return
        if known is Level.OK:
            self._low_since = self._clock.monotonic()
        if new is Level.OK:
            self._pruned = False
            log.info("disk has space again", free=found.free)
        self._log_level()
        self._level_moved.set()
        self.on_change(self.disk)

    def _log_level(self) -> None:
        if self.disk.message:
            log.warning(self.disk.message, free=self.disk.space.free, reserve=self.reserve)

    def _refill(self) -> None:
        if self.disk.level is Level.OK and self._ballast.missing > _SHORT and self.disk.space.free > self.reserve * 2:
            self._ballast.hold()
            self._before = None  # what the reserve takes is not charged to pods

    def _track_pods(self, now: float) -> None:
        """Adds new pods and drops those that are gone."""
        there = {pod.uid: pod for pod in self.pods()}
        for uid in [uid for uid in self._tracked if uid not in there]:
            del self._tracked[uid]
        for uid, pod in there.items():
            tracked = self._tracked.get(uid)
            if tracked is None or tracked.pod is not pod:
                self._tracked[uid] = _TrackedPod(pod, now, self._taken)

    def _busy(self) -> bool:
        return any(tracked.frozen or tracked.measuring for tracked in self._tracked.values())

    def _view(self, found: Space, now: float) -> View:
        low = self.disk.level is not Level.OK
        pods = [
            self._facts(uid, tracked, now) for uid, tracked in self._tracked.items() if low or tracked.pod.limits.any
        ]
        pruned = self._pruned or self.prune is None
        worth = found.inodes // 6400 if self.disk.short_of_inodes else self.reserve // 64
        return View(self.disk.level, found.free, self.reserve, self._rate, pods, self._pruning, pruned, worth)

    def _facts(self, uid: Uid, tracked: _TrackedPod, now: float) -> PodFacts:
        slack, allowance = nearest_limit(tracked.used, tracked.pod.limits)
        taken = self._taken - tracked.mark
        inodes = self.disk.short_of_inodes
        return PodFacts(
            uid,
            slack,
            allowance,
            taken,
            now - tracked.at,
            tracked.cost,
            tracked.used.inodes if inodes else tracked.used.total + tracked.used.beyond,
            0 if inodes else tracked.pod.limits.request,
            tracked.pod.over,
            tracked.measuring,
            tracked.frozen,
            tracked.evicted is not None,
            tracked.evicted is not None and now - tracked.evicted < _GOING,
            not tracked.measured and not tracked.pod.began_empty,
            tracked.measured and tracked.at >= self._low_since and taken < GRAIN,
        )

    # Carrying out the plan

    def _apply(self, plan: Plan) -> None:
        for uid in plan.freeze:
            self._tracked[uid].frozen = True
            self._start(self._freeze(self._tracked[uid]))
        for uid in plan.measure:
            self._tracked[uid].measuring = True
            self._start(self._measure(self._tracked[uid]))
        for uid in plan.thaw:
            self._tracked[uid].frozen = False
            self._start(self._thaw(self._tracked[uid]))
        if plan.prune and self.prune is not None:
            self._pruning = True
            self._start(self._prune(self.prune))
        if plan.evict is not None:
            tracked = self._tracked[plan.evict]
            resource = "inodes" if self.disk.short_of_inodes else "ephemeral-storage"
            self._evict(tracked, low_message(tracked.used, tracked.pod.limits, resource), PRESSURE)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _measure(self, tracked: _TrackedPod) -> None:
        began, mark = self._clock.monotonic(), self._taken
        try:
            async with self._measuring:
                await self._freeze(tracked)
                used = await tracked.pod.measure(thorough=self.disk.level is not Level.OK)
        except NodeError as error:
            await self._not_measured(tracked, error.message)
            return
        except Exception as error:  # a bug of ours that a pod may provoke: it must not escape measuring that way
            await self._not_measured(tracked, f"{type(error).__name__}: {error}")
            return
        finally:
            tracked.measuring = False
            self._wake.set()
        tracked.used, tracked.at, tracked.mark, tracked.measured, tracked.failures = used, began, mark, True, 0
        tracked.cost = self._clock.monotonic() - began
        why = eviction_message(used, tracked.pod.limits)
        if why and tracked.evicted is None:
            self._evict(tracked, why, LIMIT)

    async def _not_measured(self, tracked: _TrackedPod, error: str) -> None:
        """It stays frozen and is measured again soon. A pod that can never be measured is evicted."""
        tracked.failures += 1
        log.warning("storage of a pod not measured", pod=tracked.pod.uid, error=error)
        if tracked.failures >= _PATIENCE and tracked.evicted is None:
            self._evict(tracked, f"Pod ephemeral local storage usage cannot be measured: {error}. ", LIMIT)
        else:
            await self._clock.sleep(_PAUSE)

    def _evict(self, tracked: _TrackedPod, message: str, why: str) -> None:
        tracked.evicted = self._clock.monotonic()
        self.evictions[why] += 1
        log.warning("pod evicted", pod=tracked.pod.uid, why=message, used=tracked.used.total)
        tracked.pod.evict(message)

    async def _freeze(self, tracked: _TrackedPod) -> None:
        try:
            await tracked.pod.freeze()
        except NodeError as error:
            log.warning("pod not frozen", pod=tracked.pod.uid, error=error.message)

    async def _thaw(self, tracked: _TrackedPod) -> None:
        try:
            await tracked.pod.thaw()
        except NodeError as error:
            log.warning("pod not thawed", pod=tracked.pod.uid, error=error.message)

    async def _prune(self, prune: Callable[[], Awaitable[object]]) -> None:
        try:
            await prune()
        except Exception as error:
            log.warning("images not pruned", error=str(error))
        finally:
            self._pruned, self._pruning = True, False
            self._wake.set()
