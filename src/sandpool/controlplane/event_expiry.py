"""Deletes Events an hour after they were last reported, and sooner if they take too much memory.

All Events together are bounded in bytes: memory must not grow with the number of claims per hour. Above the bound, the namespace with the most
bytes loses its oldest Events, so that one tenant's Events do not push out another's. Level-triggered: Events found at the start are scheduled
like later ones, so the schedule is the only state.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from sandpool.base.clock import Clock
from sandpool.controlplane.log_follower import follow
from sandpool.controlplane.objects.keys import parse_key, prefix_of
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import DeleteOptions
from sandpool.controlplane.store.port import Store, Watcher
from sandpool.controlplane.store.record import Record
from sandpool.kube.api import Preconditions
from sandpool.kube.errors import ApiError, Conflict, NotFound
from sandpool.model import kinds

LIFETIME = timedelta(hours=1)
MOST_BYTES = 8 * 1024 * 1024
EACH = 600
"""Bytes that an Event takes in addition to its value: in the store, and in the schedule here."""
_PREFIX = prefix_of(kinds.EVENTS)
_LONGEST_SLEEP = 60.0  # seconds; bounds how late a back-dated Event is removed
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


class _Created(msgspec.Struct, gc=False):
    metadata: _Metadata


class _Leaving(msgspec.Struct, gc=False):
    deletionTimestamp: str | None = None


class _Left(msgspec.Struct, gc=False):
    metadata: _Leaving


_left = msgspec.json.Decoder(_Left).decode
_times = msgspec.json.Decoder(_Times).decode
_created = msgspec.json.Decoder(_Created).decode


def last_reported(value: bytes, now: datetime) -> datetime:
    """When the Event was last reported; never in the future, whatever the reporter's clock says."""
    try:
        times = _times(value)
    except msgspec.ValidationError:  # an impossible date, stored before admission refused them
        return min(now, _created(value).metadata.creationTimestamp)
    reported = [times.metadata.creationTimestamp, times.lastTimestamp, times.eventTime]
    if times.series is not None:
        reported.append(times.series.lastObservedTime)
    return min(now, max(moment for moment in reported if moment is not None))


def counted(value: bytes) -> int:
    """Bytes that count for the bound. An Event that is being deleted and waits for its finalizers cannot be removed, so it must not be tried
    again for every new Event; its namespace's share bounds it."""
    return 0 if _left(value).metadata.deletionTimestamp is not None else len(value) + EACH


def too_many(
    due: Sequence[tuple[datetime, str]], sizes: Mapping[str, int], held: Mapping[str, int], most: int
) -> list[str]:
    """The Events to remove to get below `most` bytes: the oldest ones of the namespace that holds the most. Empty until the bound is
    exceeded by an eighth, so that the sort is rare."""
    excess = sum(held.values()) - most
    if excess * 8 <= most:
        return []
    fullest = max(held, key=lambda namespace: held[namespace])
    found: list[str] = []
    for _, key in sorted(due):
        if excess <= 0:
            break
        if key in sizes and _namespace(key) == fullest:
            found.append(key)
            excess -= sizes[key]
    return found


def _namespace(key: str) -> str:
    return key[len(_PREFIX) : key.rfind("/")]


class EventExpiry:
    """The controller: `run` until cancelled."""

    def __init__(
        self,
        store: Store,
        objects: Objects,
        clock: Clock,
        lifetime: timedelta = LIFETIME,
        most: int = MOST_BYTES,
    ) -> None:
        self._store = store
        self._objects = objects
        self._clock = clock
        self._lifetime = lifetime
        self._most = most
        self._sizes: dict[str, int] = {}
        self._held: Counter[str] = Counter()  # bytes, by namespace
        self._total = 0
        self._crowded = asyncio.Event()
        self.due: list[tuple[datetime, str]] = []  # a heap: when to check which Event
        self._scheduled: set[str] = set()  # the keys in `due`: each once, however often its Event is reported
        self._wake = asyncio.Event()

    async def run(self) -> None:
        await follow(self._load, self._observe, self._expire)

    def _load(self) -> Watcher:
        snapshot = self._store.scan(_PREFIX)
        self.due = []
        self._scheduled = set()
        self._sizes, self._held, self._total = {}, Counter(), 0
        for record in snapshot.records:
            self._schedule(record.key, self._end(record))
            self._count(record.key, counted(record.value))
        self._crowded.set()
        return self._store.watch(_PREFIX, snapshot.revision)

    def _end(self, record: Record) -> datetime:
        return last_reported(record.value, self._clock.now()) + self._lifetime

    def _schedule(self, key: str, when: datetime) -> None:
        if key not in self._scheduled:
            self._scheduled.add(key)
            heapq.heappush(self.due, (when, key))

    def _count(self, key: str, size: int) -> None:
        namespace, more = _namespace(key), size - self._sizes.pop(key, 0)
        self._held[namespace] += more
        self._total += more
        if size:
            self._sizes[key] = size
        elif not self._held[namespace]:
            del self._held[namespace]

    async def _observe(self, watcher: Watcher) -> None:
        while True:
            for change in await watcher.changes():
                self._count(change.record.key, 0 if change.deleted else counted(change.record.value))
                if not change.deleted:
                    self._schedule(change.record.key, self._end(change.record))
            if self._total > self._most:
                self._crowded.set()
            if len(self.due) > 2 * self._store.count(_PREFIX) + _BATCH:
                self._forget_deleted()
            self._wake.set()

    def _forget_deleted(self) -> None:
        """Drops deleted Events from the schedule, where they would otherwise stay for the rest of their hour."""
        self.due = [(when, key) for when, key in self.due if self._store.get(key) is not None]
        heapq.heapify(self.due)
        self._scheduled = {key for _, key in self.due}

    async def _expire(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._make_room())
        while True:
            if not self.due:
                self._wake.clear()
                await self._wake.wait()
                continue
            left = (self.due[0][0] - self._clock.now()).total_seconds()
            if left > 0:
                await self._clock.sleep(min(left, _LONGEST_SLEEP))
                continue
            await self._remove_due()

    async def _remove_due(self) -> None:
        now = self._clock.now()
        batch: list[str] = []
        while self.due and self.due[0][0] <= now and len(batch) < _BATCH:
            batch.append(heapq.heappop(self.due)[1])
        self._scheduled.difference_update(batch)
        await asyncio.gather(*map(self._remove, batch))

    async def _remove(self, key: str) -> None:
        """Removes the Event if it has expired; schedules it again if it was reported meanwhile, or cannot be deleted now."""
        record = self._store.get(key)
        if record is None:
            return
        end = self._end(record)
        if end > self._clock.now():
            self._schedule(key, end)
            return
        if not await self._delete(key, record):
            self._schedule(key, self._clock.now() + timedelta(seconds=_RETRY))

    async def _make_room(self) -> None:
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            keys = too_many(self.due, self._sizes, self._held, self._most)
            records = [record for record in map(self._store.get, keys) if record is not None]
            for start in range(0, len(records), _BATCH):
                batch = records[start : start + _BATCH]
                if not all(await asyncio.gather(*(self._delete(record.key, record) for record in batch))):
                    await self._clock.sleep(_RETRY)
                    self._crowded.set()
                    break

    async def _delete(self, key: str, record: Record) -> bool:
        """Returns False if the delete must be retried. An Event that is gone needs nothing, and one that changed is scheduled again."""
        parsed = parse_key(key)
        if parsed is None:
            return True
        options = DeleteOptions(preconditions=Preconditions(revision=record.revision))
        try:
            await self._objects.delete(*parsed, options)
        except (NotFound, Conflict):
            pass
        except ApiError:
            return False
        return True
