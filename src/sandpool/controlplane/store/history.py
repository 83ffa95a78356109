"""Recent changes, shared by all watchers, and snapshots of past revisions computed from them.

There is one ring per resource and one of everything, so that no watcher walks changes of other resources. A watcher is an index into a ring;
nothing is queued for it. It waits on a future that only a batch with a change of its prefix resolves. Memory is bounded: each ring by the
number of its changes, all rings together by the bytes that nothing else references. The largest ring is trimmed first, so that a resource that
changes a lot does not push out the others. A watcher that still needed a trimmed change gets Compacted.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from weakref import WeakSet

from sandpool.controlplane.store.errors import Ahead, StoreClosed
from sandpool.controlplane.store.record import Change, Compacted, Record, Snapshot
from sandpool.controlplane.store.state import State, bucket_of, check_prefix
from sandpool.model.metadata import Revision

_revision = attrgetter("record.revision")
_size = attrgetter("size")

MOST_TAKEN = 1024
LARGEST_TAKEN = 256 * 1024
"""How many changes, and how many bytes of them, a watcher takes at once. What it took stays in memory until its client has read it; the
rest stays in the ring, which is bounded."""


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How much history is kept: the most changes of each resource, and the most bytes of all resources together."""

    changes: int = 32_768
    size: int = 32 * 1024 * 1024


EACH = 320
"""Bytes that a change takes in addition to its values: two structs, a key, two numbers, list entries."""


def size_of(change: Change) -> int:
    """Bytes that only the history keeps in memory because of this change: the state before it and, for a delete, the last state. The
    state that a put made does not count here: it is in the store, or is the `previous` of the next change. Counting `previous` matters for
    Events, which are created and deleted an hour apart: otherwise half of their bytes would not count once the change that created them is
    trimmed."""
    size = EACH
    if change.previous is not None:
        size += len(change.previous.value)
    if change.deleted:
        size += len(change.record.value)
    return size


class Ring:
    """The newest changes of one resource, by absolute index: index 0 is the first change ever added."""

    def __init__(self, floor: Revision) -> None:
        self.changes: list[Change] = []
        self.base = 0  # absolute index of changes[0]
        self.floor = floor  # the ring holds all changes after this revision
        self.size = 0  # bytes

    @property
    def end(self) -> int:
        return self.base + len(self.changes)

    def add(self, change: Change) -> None:
        self.changes.append(change)
        self.size += size_of(change)

    def too_many(self, most: int) -> int:
        """How many changes to drop so that `most` remain. 0 until the limit is exceeded by an eighth, so that the list is rarely shifted."""
        count = len(self.changes) - most
        return count if count * 8 > most else 0

    def too_large(self, excess: int) -> int:
        """How many changes to drop to free `excess` bytes, or all of them."""
        for count, change in enumerate(self.changes):
            if excess <= 0:
                return count
            excess -= size_of(change)
        return len(self.changes)

    def forget(self, count: int) -> None:
        """Drops the `count` oldest changes."""
        if not count:
            return
        gone = self.changes[:count]
        self.floor = gone[-1].record.revision
        self.base += count
        self.size -= sum(map(size_of, gone))
        del self.changes[:count]

    def after(self, revision: Revision) -> int:
        """Absolute index of the first change after that revision."""
        if revision < self.floor:
            raise Compacted(revision, self.floor)
        return self.base + bisect_right(self.changes, revision, key=_revision)


class History:
    """All rings and watchers of a store."""

    def __init__(
        self, since: Revision, tail: Iterable[Change], revision: Revision, history_limits: HistoryLimits
    ) -> None:
        self._since = since  # no ring holds changes up to this revision
        self._limits = history_limits
        self.everything = Ring(since)  # shares its changes with the other rings, so it takes hardly any memory
        self.rings: dict[str, Ring] = {}
        self.size = 0  # bytes of all rings
        self._waiting: dict[str, dict[Cursor, None]] = {}  # by prefix, in the order in which they began to wait
        self._cursors: WeakSet[Cursor] = WeakSet()
        self.revision = revision
        for change in tail:
            self.everything.add(change)
            self.ring(change.record.key).add(change)
        self.size = self.everything.size
        self._trim(self.rings.values())

    @property
    def oldest(self) -> Revision:
        """The oldest revision from which every watch can start."""
        return max(self.everything.floor, *(ring.floor for ring in self.rings.values()), self._since)

    def ring(self, path: str) -> Ring:
        bucket = bucket_of(path)
        if not bucket:
            return self.everything
        ring = self.rings.get(bucket)
        if ring is None:
            ring = self.rings[bucket] = Ring(self._since)
        return ring

    def since(self, prefix: str, revision: Revision) -> Sequence[Change]:
        """Changes of the prefix's resource after a revision, oldest first. The caller filters by prefix."""
        if revision > self.revision:
            raise Ahead(revision, self.revision)
        ring = self.ring(prefix)
        return ring.changes[ring.after(revision) - ring.base :]

    def newer(self, prefix: str, revision: Revision) -> int:
        """How many changes `since` would return; 0 if it would raise."""
        ring = self.ring(prefix)
        return 0 if revision < ring.floor else ring.end - ring.after(revision)

    def watch(self, prefix: str, since: Revision) -> Cursor:
        check_prefix(prefix)
        if since > self.revision:
            raise Ahead(since, self.revision)
        ring = self.ring(prefix)
        cursor = Cursor(self, ring, prefix, ring.after(since), since)
        self._cursors.add(cursor)
        return cursor

    def extend(self, changes: Sequence[Change], revision: Revision) -> None:
        """Adds a batch, trims what exceeds the limits, and wakes the watchers of the changed keys."""
        woken: dict[Cursor, int] = {}
        rings: dict[str, Ring] = {}  # all keys below one prefix have the same ring and the same watchers
        everything, size = self.everything.changes, 0
        for change in changes:
            key = change.record.key
            directory = key[: key.rfind("/") + 1]
            ring = rings.get(directory)
            if ring is None:
                ring = rings[directory] = self.ring(key)
                self._find(key, woken)
            ring.changes.append(change)
            everything.append(change)
            more = size_of(change)
            ring.size += more
            size += more
        self.everything.size += size
        self.size += size
        before, self.revision = self.revision, revision
        self._trim(rings.values())
        for cursor, index in woken.items():
            cursor.wake(index, before)

    def _find(self, key: str, woken: dict[Cursor, int]) -> None:
        """Moves the watchers that wait for any prefix of the key to `woken`, with the index of the first change for them."""
        slash = 0
        while self._waiting:
            prefix = key[:slash]
            for cursor in self._waiting.pop(prefix, ()):
                woken[cursor] = cursor.ring.end
            slash = key.find("/", slash) + 1
            if not slash:
                return

    def _trim(self, rings: Iterable[Ring]) -> None:
        for ring in rings:
            count = ring.too_many(self._limits.changes)
            if count:
                self._forget(ring, count)
        if self.size * 8 <= self._limits.size * 9:
            return
        while (excess := self.size - self._limits.size) > 0:
            largest = max(self.rings.values(), key=_size)
            self._forget(largest, largest.too_large(excess))

    def _forget(self, ring: Ring, count: int) -> None:
        """Drops the `count` oldest changes of a ring, and from the ring of everything too: otherwise no memory would be freed."""
        before = ring.size
        ring.forget(count)
        self.size -= before - ring.size
        if ring.floor > self.everything.floor:
            self.everything.forget(self.everything.after(ring.floor) - self.everything.base)
            self.everything.floor = max(self.everything.floor, ring.floor)

    def wait(self, cursor: Cursor) -> None:
        self._waiting.setdefault(cursor.prefix, {})[cursor] = None

    def leave(self, cursor: Cursor) -> bool:
        """Stops waiting. Returns whether the cursor was still waiting: then no change of its prefix has arrived."""
        waiting = self._waiting.get(cursor.prefix)
        if waiting is None or cursor not in waiting:
            return False
        del waiting[cursor]
        if not waiting:
            del self._waiting[cursor.prefix]
        return True

    def forget(self, cursor: Cursor) -> None:
        self.leave(cursor)
        self._cursors.discard(cursor)

    def close(self) -> None:
        for cursor in tuple(self._cursors):
            cursor.close()


def _keep_few(changes: list[Change]) -> None:
    """Cuts the list to the bytes that one watcher may hold while its client is slow, but to at least one change."""
    size = 0
    for index, change in enumerate(changes):
        size += len(change.record.value)
        if size > LARGEST_TAKEN and index:
            del changes[index:]
            return


class Cursor:
    """One watcher: a position in a ring, and a future to wait on."""

    def __init__(self, history: History, ring: Ring, prefix: str, index: int, since: Revision) -> None:
        self.ring = ring
        self.prefix = prefix
        self._history = history
        self._partial = bool(prefix) and prefix != bucket_of(prefix)
        self._index = index
        self._caught = since
        self._future: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def revision(self) -> Revision:
        """The revision for a bookmark: a waiting watcher has missed nothing of the whole store."""
        waiting = self._future is not None and not self._future.done()
        return self._history.revision if waiting else self._caught

    async def changes(self) -> list[Change]:
        while True:
            if self._closed:
                raise StoreClosed("this watcher is closed")
            found = self._take()
            if found:
                return found
            if self._index < self.ring.end:
                continue
            self._future = asyncio.get_running_loop().create_future()
            self._history.wait(self)
            try:
                await self._future
            finally:
                if self._history.leave(self):  # cancelled while waiting: no change of its prefix was dropped meanwhile
                    self._index, self._caught = self.ring.end, self._history.revision
                self._future = None

    def _take(self) -> list[Change]:
        ring = self.ring
        offset = self._index - ring.base
        if offset < 0:
            raise Compacted(self._caught, ring.floor)
        found = ring.changes[offset : offset + MOST_TAKEN]
        if len(found) > 1:
            _keep_few(found)
        self._index += len(found)
        self._caught = self._history.revision if self._index == ring.end else found[-1].record.revision
        if self._partial and found:
            prefix = self.prefix
            found = [change for change in found if change.record.key.startswith(prefix)]
        return found

    def wake(self, index: int, before: Revision) -> None:
        """Continues at `index`: no change of its prefix arrived while it waited, so it needs nothing that the ring dropped meanwhile."""
        self._index = index
        self._caught = max(self._caught, before)
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def close(self) -> None:
        self._closed = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        self._history.forget(self)


def scan_at(state: State, history: History, prefix: str, at: Revision, after: str, limit: int) -> Snapshot:
    """A scan as of revision `at`. It costs a walk over the newer changes of the resource, and then only the records that it returns."""
    former: dict[str, Record | None] = {}
    for change in reversed(history.since(prefix, at)):
        key = change.record.key
        if key.startswith(prefix) and key > after:
            former[key] = change.previous  # the earliest change comes last, and its `previous` is the state at `at`
    total = state.count(prefix, after)
    for key, record in former.items():
        total += (record is not None) - (state.get(key) is not None)
    found: list[Record] = []
    for record in _merged(state, prefix, after, former):
        if limit and len(found) == limit:
            break
        found.append(record)
    return Snapshot(tuple(found), at, total - len(found))


def _merged(state: State, prefix: str, after: str, former: dict[str, Record | None]) -> Iterator[Record]:
    """Records in key order: the current ones, replaced by and merged with those in `former` (None: the key was absent)."""
    changed = sorted(former)
    position = 0
    for key in state.keys(prefix, after):
        while position < len(changed) and changed[position] <= key:
            record = former[changed[position]]
            position += 1
            if record is not None:
                yield record
        if key not in former:
            record = state.get(key)
            assert record is not None
            yield record
    for key in changed[position:]:
        record = former[key]
        if record is not None:
            yield record
