"""The changes that are still remembered, shared by all watchers.

One ring per resource and one of everything, so that no watcher walks changes of other resources. A watcher is an index into
a ring; nothing is queued for it. It waits by one future, and is woken only by a batch that holds a change of its prefix.
Memory is bounded: a ring by the number of its changes, all rings together by the bytes that nobody but them holds on to. The
largest ring gives way first, so that a resource that changes a lot does not push out the others. A watcher that still needed a
forgotten change gets Compacted.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from weakref import WeakSet

from sandpool.controlplane.store.errors import Ahead, StoreClosed
from sandpool.controlplane.store.record import Change, Compacted
from sandpool.controlplane.store.state import bucket_of, check_prefix
from sandpool.model.metadata import Revision

_revision = attrgetter("record.revision")
_size = attrgetter("size")

MOST_TAKEN = 1024
LARGEST_TAKEN = 256 * 1024
"""Changes, and bytes of them, that a watcher takes at once. What it has taken stays in memory until its client has read it, so the rest stays in
the ring, which forgets."""


@dataclass(frozen=True, slots=True)
class Remember:
    """How much is kept: at most so many changes of each resource, and at most so many bytes of all resources together."""

    changes: int = 32_768
    size: int = 32 * 1024 * 1024


EACH = 320
"""Bytes that a change takes besides values: two structs, a key, two numbers, its places in the lists."""


def size_of(change: Change) -> int:
    """Bytes that only the history holds on to because of this change: the state before it, which nobody else has any more, and the last
    state of what was deleted. The state that it made is the store's, or that of the next change. Else the state before a delete would
    not count once its own change is forgotten: of Events, which are made and deleted an hour apart, that is half of all."""
    size = EACH
    if change.previous is not None:
        size += len(change.previous.value)
    if change.deleted:
        size += len(change.record.value)
    return size


class Ring:
    """The newest changes of one resource, by absolute index: index 0 is the first change ever put in."""

    def __init__(self, floor: Revision) -> None:
        self.changes: list[Change] = []
        self.base = 0  # absolute index of changes[0]
        self.floor = floor  # all changes after this revision are here
        self.size = 0  # bytes

    @property
    def end(self) -> int:
        return self.base + len(self.changes)

    def add(self, change: Change) -> None:
        self.changes.append(change)
        self.size += size_of(change)

    def too_many(self, most: int) -> int:
        """How many changes to forget for their number. None until an eighth too many have gathered: the list is moved seldom."""
        count = len(self.changes) - most
        return count if count * 8 > most else 0

    def too_large(self, excess: int) -> int:
        """How many changes to forget so that so many bytes are freed, as far as there are as many."""
        for count, change in enumerate(self.changes):
            if excess <= 0:
                return count
            excess -= size_of(change)
        return len(self.changes)

    def forget(self, count: int) -> None:
        """Forgets the oldest changes, so many of them."""
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
    def __init__(self, since: Revision, tail: Iterable[Change], revision: Revision, remember: Remember) -> None:
        self._since = since  # nothing before it is remembered, of any resource
        self._remember = remember
        self._all = Ring(since)  # its changes are in the rings of their resources too, so it takes hardly any memory
        self._rings: dict[str, Ring] = {}
        self._size = 0  # bytes of all of them
        self._waiting: dict[str, dict[Cursor, None]] = {}  # in the order in which they came to wait
        self._cursors: WeakSet[Cursor] = WeakSet()
        self.revision = revision
        for change in tail:
            self._all.add(change)
            self.ring(change.record.key).add(change)
        self._size = self._all.size
        self._trim(self._rings.values())

    @property
    def oldest(self) -> Revision:
        """Every watch may start from here."""
        return max(self._all.floor, *(ring.floor for ring in self._rings.values()), self._since)

    def ring(self, path: str) -> Ring:
        bucket = bucket_of(path)
        if not bucket:
            return self._all
        ring = self._rings.get(bucket)
        if ring is None:
            ring = self._rings[bucket] = Ring(self._since)
        return ring

    def since(self, prefix: str, revision: Revision) -> Sequence[Change]:
        """Remembered changes of the prefix's resource after a revision, oldest first. The caller filters."""
        if revision > self.revision:
            raise Ahead(revision, self.revision)
        ring = self.ring(prefix)
        return ring.changes[ring.after(revision) - ring.base :]

    def watch(self, prefix: str, since: Revision) -> Cursor:
        check_prefix(prefix)
        if since > self.revision:
            raise Ahead(since, self.revision)
        ring = self.ring(prefix)
        cursor = Cursor(self, ring, prefix, ring.after(since), since)
        self._cursors.add(cursor)
        return cursor

    def extend(self, changes: Sequence[Change], revision: Revision) -> None:
        """Adds a batch, wakes whom it concerns, forgets what is too much."""
        woken: dict[Cursor, int] = {}
        folders: dict[str, Ring] = {}  # of one folder, all keys have the same ring and the same watchers
        everything, size = self._all.changes, 0
        for change in changes:
            key = change.record.key
            folder = key[: key.rfind("/") + 1]
            ring = folders.get(folder)
            if ring is None:
                ring = folders[folder] = self.ring(key)
                self._find(key, woken)
            ring.changes.append(change)
            everything.append(change)
            more = size_of(change)
            ring.size += more
            size += more
        self._all.size += size
        self._size += size
        before, self.revision = self.revision, revision
        self._trim(folders.values())
        for cursor, index in woken.items():
            cursor.wake(index, before)

    def _find(self, key: str, woken: dict[Cursor, int]) -> None:
        """Takes out the waiting watchers of every prefix of the key, with the index where their news begins."""
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
            count = ring.too_many(self._remember.changes)
            if count:
                self._forget(ring, count)
        if self._size * 8 <= self._remember.size * 9:
            return
        while (excess := self._size - self._remember.size) > 0:
            largest = max(self._rings.values(), key=_size)
            self._forget(largest, largest.too_large(excess))

    def _forget(self, ring: Ring, count: int) -> None:
        """What its resource forgets, the ring of everything forgets too, or no memory would be freed."""
        before = ring.size
        ring.forget(count)
        self._size -= before - ring.size
        if ring.floor > self._all.floor:
            self._all.forget(self._all.after(ring.floor) - self._all.base)
            self._all.floor = max(self._all.floor, ring.floor)

    def wait(self, cursor: Cursor) -> None:
        self._waiting.setdefault(cursor.prefix, {})[cursor] = None

    def leave(self, cursor: Cursor) -> bool:
        """Whether it was still waiting: then nothing of its prefix has come."""
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
    """As many as one watcher may hold on to while its client is slow, at least one."""
    size = 0
    for index, change in enumerate(changes):
        size += len(change.record.value)
        if size > LARGEST_TAKEN and index:
            del changes[index:]
            return


class Cursor:
    """One watcher."""

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
        """What a bookmark may say: a waiting watcher has missed nothing of the whole store."""
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
                if self._history.leave(self):  # given up: what the ring may have forgotten meanwhile is not missed
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
        """While it waited nothing of its prefix came, so what the ring may have forgotten meanwhile is not missed."""
        self._index = index
        self._caught = max(self._caught, before)
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def close(self) -> None:
        self._closed = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        self._history.forget(self)
