"""The world that the controllers act on: the real objects and admission on a store in memory, and the real collector.

Every change passes `witness` in the moment in which it is decided. Actors (users, the kubelet) use `api`, which never fails
them; controllers use a FaultyApi. Tasks of the world are started with `spawn`: an error in one is an error of the
simulation itself and ends the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any

from sandpool.base.clock import LoopClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.garbage_collection import GarbageCollector
from sandpool.controlplane.objects.keys import parse_key
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.record import Change
from sandpool.controlplane.store.store import Store
from sandpool.model import codec
from sandpool.model.kinds import NAMESPACES, NODES
from sandpool.model.metadata import Uid
from sandpool.simulation.steps import COLLECTOR, Author, Step, WitnessedLog, writes_as

START = datetime(2026, 1, 1, tzinfo=UTC)
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class Behind(GarbageCollector):
    """A busy garbage collector: it comes to each object some seconds late."""

    lag = 0.0

    async def reconcile(self, uid: Uid) -> Uid | None:
        if self.lag:
            await self._clock.sleep(self.lag)
        return await super().reconcile(uid)


class World:
    """The simulated cluster. Call `open` before using it."""

    def __init__(self, random: Random) -> None:
        self.clock: LoopClock
        self.steps = 0
        self.current: dict[str, Any] = {}  # every object there is, typed, by its key in the store
        self.listeners: list[Callable[[Step], object]] = []
        self.failure: BaseException | None = None
        self.log: WitnessedLog
        self.store: Store
        self.objects: Objects
        self.api: LocalApi
        self._random = random
        self._tasks: dict[asyncio.Task[Any], None] = {}

    async def open(self, namespaces: tuple[str, ...], nodes: tuple[str, ...], remember: int, lag: float = 0.0) -> None:
        """`remember`: how many changes of a kind a watch may lag behind before it gets 410. `lag`: seconds of the collector."""
        self.clock = LoopClock(START)
        uids = count(1)
        self.log = WitnessedLog(self.witness, remember)
        self.store = await Store.open(self.log, history_limits=HistoryLimits(changes=remember))
        self.objects = Objects(
            self.store,
            self.clock.now,
            lambda: f"00000000-0000-4000-8000-{next(uids):012x}",
            lambda: "".join(self._random.choices(_SUFFIX, k=5)),
        )
        self.api = LocalApi(self.objects)
        for name in namespaces:
            await self.api.create(NAMESPACES, {"metadata": {"name": name}})
        for name in nodes:
            await self.api.create(NODES, {"metadata": {"name": name}})
        self.spawn(self._collect(lag))

    async def _collect(self, lag: float) -> None:
        writes_as(COLLECTOR)
        collector = Behind(self.store, self.objects, self.clock)
        collector.lag = lag
        await collector.run()

    def witness(self, change: Change, author: Author) -> None:
        parsed = parse_key(change.record.key)
        if parsed is None:
            return
        resource, key = parsed[0], change.record.key
        old = self.current.pop(key, None)
        new = None if change.deleted else codec.decode(resource, change.record.value)
        if new is not None:
            self.current[key] = new
        self.steps += 1
        step = Step(self.clock.monotonic(), author, resource, key, change.record.revision, old, new)
        for listener in self.listeners:
            listener(step)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None and self.failure is None:
            self.failure = task.exception()

    def check(self) -> None:
        """Raises an error of the simulation itself."""
        if self.failure is not None:
            raise self.failure

    def of(self, kind: str) -> list[Any]:
        """All objects of a kind, typed: for the end of a run."""
        return [obj for obj in self.current.values() if obj.kind == kind]

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()
