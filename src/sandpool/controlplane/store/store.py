"""The store: decides writes immediately and publishes them when they are durable. See port.py for the contract.

The steps of a write: compare with the newest state (durable plus pending) -> revision -> encode -> pending -> log -> [durable] -> state, futures,
history, watchers. All writes of a commit are published in one callback, so no reader sees a part of it. A commit with an `early` write is
published in the next turn of the loop, so that the caller of that write continues first; later commits wait behind it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

import msgspec

from sandpool.controlplane.store.errors import StoreClosed, StoreFailed
from sandpool.controlplane.store.history import Cursor, History, HistoryLimits, scan_at
from sandpool.controlplane.store.log import Commit, Entry, Log, Unit
from sandpool.controlplane.store.port import Count, Encode, Write
from sandpool.controlplane.store.record import Change, Record, Snapshot, Stale
from sandpool.controlplane.store.state import State, check_key, check_prefix
from sandpool.model.metadata import NO_REVISION, Revision

T = TypeVar("T")

Reencode = Callable[[Record, Revision], bytes]
"""Encodes a record's value again, with another revision."""


class Replaced(msgspec.Struct, frozen=True, gc=False):
    """What `replace_all` did."""

    revision: Revision  # of the store afterwards, its own writes included
    written: int = 0
    removed: int = 0


class Observer(Protocol):
    """Receives commits and failures, for metrics. Called on the loop's thread."""

    def committed(self, commit: Commit) -> None: ...

    def failed(self, error: StoreFailed) -> None: ...


class NullObserver:
    """An Observer that ignores everything."""

    def committed(self, commit: Commit) -> None: ...

    def failed(self, error: StoreFailed) -> None: ...


class _Pending(msgspec.Struct):
    """A unit on its way to disk."""

    unit: Unit
    future: asyncio.Future[Any]
    result: object
    waiters: list[asyncio.Future[Any]] | None = None
    early: bool = False  # its caller continues before it is published


def _settle_all(futures: Iterable[asyncio.Future[Any]], error: StoreFailed | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _count_nothing(changes: Sequence[Change], sign: int) -> None:
    """The default of `count_with`."""


def _last_revision(pending: _Pending) -> Revision:
    return pending.unit[-1].change.record.revision


class Store:
    """The implementation of port.Store. Create it with `await Store.open(log)`."""

    def __init__(self, log: Log, observer: Observer) -> None:
        self._log = log
        self._observer = observer
        self._pending: deque[_Pending] = deque()
        self._unpublished: deque[Commit] = deque()  # durable; their units are the first in _pending
        self._overlay: dict[str, Entry] = {}  # the newest pending entry of each key
        self._lost: list[tuple[Revision, Revision]] = []  # ranges of revisions whose commits failed
        self._assigned: Revision = NO_REVISION
        self._state: State
        self._history: History
        self._closed = False
        self._count: Count = _count_nothing
        self._uncounted: list[Change] = []  # counted later, so that writes do not wait for it
        self.decided: Callable[[Unit], None] | None = None
        self.upset: Callable[[], None] | None = None

    @classmethod
    async def open(
        cls, log: Log, *, history_limits: HistoryLimits = HistoryLimits(), observer: Observer | None = None
    ) -> Store:
        store = cls(log, observer or NullObserver())
        loaded = await log.open(store)
        store._state = State(loaded)
        store._history = History(loaded.since, loaded.tail, loaded.revision, history_limits)
        store._assigned = loaded.revision
        return store

    def count_with(self, count: Count) -> Callable[[], None]:
        self._count_decided()
        newest = map(self.newest, self._state.records().keys() | self._overlay.keys())
        count([Change(record, None) for record in newest if record is not None], 1)
        self._count = count
        return self._count_decided

    def _count_decided(self) -> None:
        if self._uncounted:
            changes, self._uncounted = self._uncounted, []
            self._count(changes, 1)

    # Reads of the durable state.

    @property
    def revision(self) -> Revision:
        return self._history.revision

    @property
    def oldest(self) -> Revision:
        return self._history.oldest

    def get(self, key: str) -> Record | None:
        return self._state.get(key)

    def count(self, prefix: str, after: str = "") -> int:
        check_prefix(prefix)
        return self._state.count(prefix, after)

    def newer(self, prefix: str, at: Revision) -> int:
        check_prefix(prefix)
        return self._history.newer(prefix, at)

    def scan(self, prefix: str, *, at: Revision | None = None, after: str = "", limit: int = 0) -> Snapshot:
        check_prefix(prefix)
        if at is not None and at != self.revision:
            return scan_at(self._state, self._history, prefix, at, after, limit)
        records = self._state.scan(prefix, after, limit)
        remaining = self._state.count(prefix, after) - len(records) if limit else 0
        return Snapshot(records, self.revision, remaining)

    def watch(self, prefix: str, since: Revision) -> Cursor:
        return self._history.watch(prefix, since)

    # The newest state, and writes.

    def newest(self, key: str) -> Record | None:
        entry = self._overlay.get(key)
        if entry is None:
            return self._state.get(key)
        return None if entry.change.deleted else entry.change.record

    def newest_under(self, prefix: str) -> list[Record]:
        check_prefix(prefix)
        found = {record.key: record for record in self._state.scan(prefix, "", 0)}
        for key, entry in self._overlay.items():
            if not key.startswith(prefix):
                continue
            if entry.change.deleted:
                found.pop(key, None)
            else:
                found[key] = entry.change.record
        return list(found.values())

    def deciding(self, key: str) -> Revision:
        entry = self._overlay.get(key)
        return NO_REVISION if entry is None else entry.change.record.revision

    def put(self, key: str, expected: Revision, encode: Encode) -> asyncio.Future[Record]:
        current, prior = self._compare(key, expected)
        revision = Revision(self._assigned + 1)
        if current is None:
            made = Record(key, revision, revision, encode(revision))
        else:  # the states of one key share one string
            made = Record(current.key, revision, current.created, encode(revision))
        return self._submit((Entry(Change(made, current), prior),), made)

    def put_together(self, *writes: Write, early: bool = False) -> tuple[tuple[Record, ...], asyncio.Future[None]]:
        unit: list[Entry] = []
        made: dict[str, Record] = {}
        for key, expected, encode in writes:
            current = made.get(key)
            prior = NO_REVISION if current is None else current.revision
            if current is None:
                current, prior = self._compare(key, expected)
            revision = Revision(self._assigned + len(unit) + 1)
            created = revision if current is None else current.created
            made[key] = Record(key if current is None else current.key, revision, created, encode(revision))
            unit.append(Entry(Change(made[key], current), prior))
        return tuple(entry.change.record for entry in unit), self._submit(tuple(unit), None, early=early)

    def delete(self, key: str, expected: Revision, encode: Encode) -> asyncio.Future[Record]:
        current, prior = self._compare(key, expected)
        if current is None:
            raise Stale(key, None)
        revision = Revision(self._assigned + 1)
        last = Record(current.key, revision, current.created, encode(revision))
        return self._submit((Entry(Change(last, current, deleted=True), prior),), last)

    def replace_all(self, records: Iterable[Record], encode: Reencode) -> asyncio.Future[Replaced]:
        """Makes the store hold exactly these records, in one commit of new revisions: records that differ or are missing are put,
        extra ones are deleted, equal ones are left as they are."""
        wanted = {record.key: record for record in records}
        unit: list[Entry] = []
        for key in sorted(set(wanted) | set(self._state.records()) | set(self._overlay)):
            change = self._replacement(key, wanted.get(key), Revision(self._assigned + len(unit) + 1), encode)
            if change is not None:
                unit.append(self._entry(change))
        removed = sum(entry.change.deleted for entry in unit)
        result = Replaced(Revision(self._assigned + len(unit)), len(unit) - removed, removed)
        if unit:
            replaced = self._submit(tuple(unit), result)
            if self.upset is not None:
                self.upset()
            return replaced
        nothing: asyncio.Future[Replaced] = asyncio.get_running_loop().create_future()
        nothing.set_result(result)
        return nothing

    def _replacement(self, key: str, record: Record | None, revision: Revision, encode: Reencode) -> Change | None:
        current = self.newest(key)
        if record is None:
            if current is None:
                return None
            last = Record(current.key, revision, current.created, encode(current, revision))
            return Change(last, current, deleted=True)
        if current is not None and current.value == record.value:
            return None
        check_key(key)
        created = revision if current is None else current.created
        return Change(Record(key, revision, created, encode(record, revision)), current)

    async def durable(self, revision: Revision) -> None:
        if any(low <= revision <= high for low, high in self._lost):
            raise StoreFailed(f"revision {revision} was lost: its commit failed")
        if revision <= self.revision:
            return
        pending = self._pending
        index = bisect_left(pending, revision, key=_last_revision)
        if index == len(pending):
            raise ValueError(f"revision {revision} was never given to a write")
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        pending[index].waiters = [*(pending[index].waiters or ()), future]
        await future

    def _compare(self, key: str, expected: Revision) -> tuple[Record | None, Revision]:
        """Compares. Returns the newest state of a key and the revision of the key's last row. Raises Stale."""
        entry = self._overlay.get(key)
        current = self._state.get(key)
        if entry is not None:
            current = None if entry.change.deleted else entry.change.record
        if current is not None:
            if current.revision != expected:
                raise Stale(key, current)
            return current, current.revision
        check_key(key)
        if expected != NO_REVISION:
            raise Stale(key, None)
        return None, Revision(self._state.prior(key)) if entry is None else entry.change.record.revision

    def _entry(self, change: Change) -> Entry:
        key = change.record.key
        last = self._overlay.get(key)
        prior = self._state.prior(key) if last is None else last.change.record.revision
        return Entry(change, Revision(prior))

    def _submit(self, unit: Unit, result: T, *, early: bool = False) -> asyncio.Future[T]:
        if self._closed:
            raise StoreClosed("the store is closed: no more writes")
        self._log.append(unit)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(unit, future, result, early=early))
        for entry in unit:
            self._overlay[entry.change.record.key] = entry
            self._uncounted.append(entry.change)
        self._assigned = unit[-1].change.record.revision
        if self.decided is not None:
            self.decided(unit)
        return future

    # Callbacks from the log.

    def committed(self, commit: Commit) -> None:
        before = sum(earlier.units for earlier in self._unpublished)
        early = [one for one in islice(self._pending, before, before + commit.units) if one.early]
        self._unpublished.append(commit)
        if not early and not before:
            self._publish()
            return
        for pending in early:
            if not pending.future.done():
                pending.future.set_result(pending.result)
        # The loop runs callbacks in order: tasks that await these futures continue before `_publish` runs.
        asyncio.get_running_loop().call_soon(self._publish)

    def _publish(self) -> None:
        """Publishes the oldest unpublished commit."""
        if not self._unpublished:
            return  # the store failed or was closed, which publishes everything at once
        commit = self._unpublished.popleft()
        settled = [self._pending.popleft() for _ in range(commit.units)]
        changes: list[Change] = []
        for pending in settled:
            for entry in pending.unit:
                change = entry.change
                self._state.apply(change)
                changes.append(change)
                if self._overlay.get(change.record.key) is entry:
                    del self._overlay[change.record.key]
        self._state.forget_tombstones(commit.floor)
        for pending in settled:  # before the watchers: the caller gets its result first, and can then ignore the event
            if not pending.future.done():  # else the caller was cancelled; the write remains
                pending.future.set_result(pending.result)
            if pending.waiters is not None:
                _settle_all(pending.waiters, None)
        self._history.extend(changes, changes[-1].record.revision)
        self._count_decided()
        self._observer.committed(commit)

    def failed(self, error: StoreFailed) -> None:
        """Fails all pending writes, because they were decided on top of what failed. `newest` then shows the durable state again."""
        self._publish_all()
        settled, self._pending = self._pending, deque()
        self._overlay.clear()
        if settled:
            low = settled[0].unit[0].change.record.revision
            if self._lost and self._lost[-1][1] + 1 == low:
                low = self._lost.pop()[0]
            self._lost.append((low, self._assigned))
        self._count_decided()
        self._count([entry.change for pending in settled for entry in pending.unit], -1)
        if self.upset is not None:
            self.upset()
        for pending in settled:
            _settle_all([pending.future, *(pending.waiters or ())], error)
        self._observer.failed(error)

    def _publish_all(self) -> None:
        while self._unpublished:
            self._publish()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._log.close()
        self._publish_all()
        if self._pending:
            self.failed(StoreFailed("the store was closed before this write was durable"))
        self._history.close()
