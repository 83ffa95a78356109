"""Events are news, not records: an hour after they were last told they go.

Level-triggered: what there is at the start is scheduled like what comes later, so nothing is kept but the schedule.
"""

from __future__ import annotations

import asyncio
import heapq
from datetime import datetime, timedelta

import msgspec

from sandpool.kube.api import Preconditions
from sandpool.kube.errors import ApiError, Conflict, NotFound
from sandpool.local.follow import follow
from sandpool.local.objects.keys import parse_key, prefix_of
from sandpool.local.objects.objects import Objects
from sandpool.local.objects.options import DeleteOptions
from sandpool.local.store.port import Store, Watcher
from sandpool.local.store.record import Record
from sandpool.loop.clock import Clock
from sandpool.model import kinds
from sandpool.model.metadata import Revision

LIFETIME = timedelta(hours=1)
_LONGEST_SLEEP = 60.0  # an Event that comes back-dated is noticed within this
_BATCH = 500
_RETRY = 5.0


class _Metadata(msgspec.Struct, gc=False):
    creationTimestamp: datetime


class _Series(msgspec.Struct, gc=False):
    lastObservedTime: datetime | None = None


class _Times(msgspec.Struct, gc=False):
    metadata: _Metadata
    lastTimestamp: datetime | None = None
    eventTime: datetime | None = None
    series: _Series | None = None


_times = msgspec.json.Decoder(_Times).decode


def last_told(value: bytes, now: datetime) -> datetime:
    """When the Event was last reported; never in the future, whatever the reporter's clock says."""
    times = _times(value)
    told = [times.metadata.creationTimestamp, times.lastTimestamp, times.eventTime]
    if times.series is not None:
        told.append(times.series.lastObservedTime)
    return min(now, max(moment for moment in told if moment is not None))


class EventExpiry:
    def __init__(self, store: Store, objects: Objects, clock: Clock, lifetime: timedelta = LIFETIME) -> None:
        self._store = store
        self._objects = objects
        self._clock = clock
        self._lifetime = lifetime
        self._due: list[tuple[datetime, Revision, str]] = []
        self._news = asyncio.Event()

    async def run(self) -> None:
        await follow(self._load, self._observe, self._expire)

    def _load(self) -> Watcher:
        prefix = prefix_of(kinds.EVENTS)
        snapshot = self._store.scan(prefix)
        self._due = []
        for record in snapshot.records:
            self._schedule(record)
        return self._store.watch(prefix, snapshot.revision)

    def _schedule(self, record: Record) -> None:
        when = last_told(record.value, self._clock.now()) + self._lifetime
        heapq.heappush(self._due, (when, record.revision, record.key))

    async def _observe(self, watcher: Watcher) -> None:
        while True:
            for change in await watcher.changes():
                if not change.deleted:
                    self._schedule(change.record)
            self._news.set()

    async def _expire(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            if not self._due:
                self._news.clear()
                await self._news.wait()
                continue
            left = (self._due[0][0] - self._clock.now()).total_seconds()
            if left > 0:
                await self._clock.sleep(min(left, _LONGEST_SLEEP))
                continue
            await self._remove_due()

    async def _remove_due(self) -> None:
        now = self._clock.now()
        batch: list[tuple[datetime, Revision, str]] = []
        while self._due and self._due[0][0] <= now and len(batch) < _BATCH:
            batch.append(heapq.heappop(self._due))
        await asyncio.gather(*(self._remove(*entry) for entry in batch))

    async def _remove(self, when: datetime, revision: Revision, key: str) -> None:
        """Removes that state of the Event. One that was told again meanwhile has a newer entry of its own."""
        parsed = parse_key(key)
        record = self._store.get(key)
        if parsed is None or record is None or record.revision != revision:
            return
        resource, namespace, name = parsed
        options = DeleteOptions(preconditions=Preconditions(revision=revision))
        try:
            await self._objects.delete(resource, namespace, name, options)
        except (NotFound, Conflict):
            pass
        except ApiError:
            heapq.heappush(self._due, (when + timedelta(seconds=_RETRY), revision, key))
