"""A reflector at work in real time, and waiting for what its cache will show: no sleeps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sandpool.base.clock import SystemClock
from sandpool.kube.api import Api
from sandpool.loop.cache import Cache
from sandpool.loop.reflector import Pace, Reflector, Scope
from sandpool.model.metadata import Object
from sandpool.model.resource import Resource
from sandpool.telemetry.metrics import Metrics

T = TypeVar("T", bound=Object)
QUICK = Pace(first=0.05, most=0.5)
PATIENCE = 60.0  # seconds after which a test that waits has failed


@dataclass(slots=True)
class Following(Generic[T]):
    cache: Cache[T]
    metrics: Metrics
    steps: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def step(self, old: T | None, new: T | None) -> None:
        shown = new if new is not None else old
        assert shown is not None
        self.steps.append((shown.metadata.name, _revision(old), _revision(new)))
        self._moved.set()

    @property
    def names(self) -> set[str]:
        return {obj.metadata.name for obj in self.cache}

    @property
    def lists(self) -> float | None:
        label = {"resource": self.cache.resource.group_resource}
        return self.metrics.registry.get_sample_value("sandpool_cache_lists_total", label)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.cache.synced.wait()
            while not condition():
                self._moved.clear()
                await self._moved.wait()

    async def until_named(self, names: Iterable[str]) -> None:
        wanted = set(names)
        await self.until(lambda: self.names == wanted)


@asynccontextmanager
async def following(api: Api, resource: Resource[T], namespace: str, pace: Pace = QUICK) -> AsyncIterator[Following[T]]:
    cache: Cache[T] = Cache(resource, lambda obj: obj.metadata.namespace == namespace)
    follow: Following[T] = Following(cache, Metrics())
    cache.subscribe(follow.step)
    reflector = Reflector(api, cache, SystemClock(), follow.metrics, random.random, Scope(namespace), pace)
    task = asyncio.create_task(reflector.run())
    try:
        yield follow
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


def _revision(obj: Object | None) -> str | None:
    return None if obj is None else obj.metadata.resource_version
