"""The informer store: all objects of one resource in memory, indexed, as new as anything that this process knows.

It is fed from three sources: lists, watch events, and the answers to our own calls. Each object's newest state
wins by revision, so whichever of an answer and its watch event comes second changes nothing. `revision` is how far the list
and the watch have come: every change up to it has been applied. Answers run ahead of it, object by object.
A delete marks the object's uid with a tombstone: first "deletion requested", then "it is gone"; see `mark_deleting`.
Objects are immutable and never copied. Subscribers are called at once, in order, after the cache itself has changed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Generic, TypeVar

from sandpool.kube.api import Event, EventType
from sandpool.loop.index import Index
from sandpool.model.metadata import NO_REVISION, Key, Object, Revision, Uid
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
V = TypeVar("V", bound=Hashable)

Subscriber = Callable[[T | None, T | None], object]
"""Called with (old, new): new is None when the object is gone, old is None when it is new."""


_tuple = tuple.__new__
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class _Tombstone:
    revision: Revision  # the object existed then: a list at or after it that lacks the uid proves that it is gone
    asked: int = 0  # deletes under way
    gone: bool = False  # confirmed by the server: no state of this uid may enter again


def _made(obj: Object) -> tuple[datetime, Revision]:
    """The order of creation: the creation time, to the second, then the revision."""
    return obj.metadata.creation_timestamp or _LONG_AGO, obj.metadata.revision


def _everything(_: object) -> bool:
    return True


def _whole(obj: T) -> T:
    return obj


class Cache(Generic[T]):
    """`holds` is the scope of a cache that sees only a part (one namespace, one label): other objects are left out.
    `keep` is the cache transform: what is stored of an object, which may be less than the whole."""

    def __init__(
        self, resource: Resource[T], holds: Callable[[T], bool] = _everything, keep: Callable[[T], T] = _whole
    ) -> None:
        self.resource = resource
        self.keep = keep
        self.synced = asyncio.Event()
        self._holds = holds
        self.objects: dict[Key, T] = {}
        self.get: Callable[[Key], T | None] = (
            self.objects.get
        )  # an attribute, not a method, because it is called very often
        self.revision = NO_REVISION
        self._indexes: list[Index[T, object]] = []
        self._subscribers: list[Subscriber[T]] = []
        self.tombstones: dict[Uid, _Tombstone] = {}
        # Keys whose object left ahead of the watch, with its last revision. The watch will still deliver older states, perhaps
        # of an older object of that name, and they must not appear again. Obsolete once the watch is past the revision.
        self.floors: dict[Key, Revision] = {}
        self._floors_by_revision: list[tuple[Revision, Key]] = []
        self._waiting: list[tuple[Revision, int, Callable[[], object]]] = []
        self._order = count()

    # Reading

    def leaving(self, obj: T) -> bool:
        """Whether the object is being deleted, or its delete was sent and is not answered yet."""
        return obj.metadata.deletion_timestamp is not None or obj.metadata.uid in self.tombstones

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self.objects.values())

    def values(self) -> Collection[T]:
        """A live view of every object; take what you need before the next await."""
        return self.objects.values()

    def index(self, values: Callable[[T], Iterable[V]]) -> Index[T, V]:
        """An index over all objects, present and future; see loop/index.py for common functions. The same function
        gets the same index."""
        for known in self._indexes:
            if known.reads is values:
                return known  # type: ignore[return-value]  # it was made from this function, so its values are V
        index: Index[T, V] = Index(values)
        for key, obj in self.objects.items():
            index.change(key, None, obj)
        self._indexes.append(index)  # type: ignore[arg-type]  # an Index of V is only ever fed objects, never values
        return index

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """From now on `subscriber` is called with every change; objects that are cached already come first, as new. It must not change a cache."""
        for obj in tuple(self.objects.values()):
            subscriber(None, obj)
        self._subscribers.append(subscriber)

    def when_reached(self, revision: Revision, callback: Callable[[], object]) -> None:
        """Calls back once every change up to `revision` is applied; at once if it is already."""
        if self.revision >= revision:
            callback()
        else:
            heapq.heappush(self._waiting, (revision, next(self._order), callback))

    async def reached(self, revision: Revision) -> None:
        if self.revision < revision:
            reached = asyncio.Event()
            self.when_reached(revision, reached.set)
            await reached.wait()

    # From the list and the watch

    def replace(self, items: Iterable[T], revision: Revision) -> None:
        """Applies a list that is complete at `revision`. Cached states newer than that stay. A list may be in any order; objects that the watch had
        missed are applied in order of creation, as the watch would have delivered them."""
        listed = {item.metadata.key: item for item in items}
        if revision < self.revision:
            self._rewind(listed)
        alive = {item.metadata.uid for item in listed.values()}
        for uid, tombstone in list(self.tombstones.items()):
            if uid not in alive and revision >= tombstone.revision:
                del self.tombstones[uid]
        for key, old in list(self.objects.items()):
            if key not in listed and old.metadata.revision <= revision:
                self._step(key, old, None)
        for item in sorted(listed.values(), key=_made):
            self._offer(item, item.metadata.revision)
        self._advance(revision, rewound=revision < self.revision)
        self.synced.set()

    def apply(self, event: Event[T]) -> None:
        """One event of the watch that follows the last list."""
        self.apply_all((event,))

    def apply_all(self, events: Iterable[Event[T]]) -> None:
        """Events of the watch, in order. Callbacks that wait for a revision run after the last of them."""
        reached = self.revision
        for event in events:
            obj, revision = event.object, event.revision
            if obj is not None:
                if event.type is EventType.DELETED:
                    self._end(obj, revision)
                elif revision > reached:  # an event delivered twice might bring back what has been deleted since
                    self._offer(obj, revision)
            if revision > reached:
                reached = revision
        if reached > self.revision:
            self._advance(reached)

    # From the answers to our own calls

    def upsert(self, obj: T) -> None:
        """Applies a state from the answer to a call. Dropped if the watch is already past it."""
        revision = obj.metadata.revision
        if revision <= self.revision:
            return
        if self._holds is _everything or self._holds(obj):
            self._offer(obj, revision)
            return
        old = self.objects.get(obj.metadata.key)
        if old is not None and old.metadata.revision < obj.metadata.revision:
            self._leave_early(obj.metadata.key, obj)  # it left our scope: the watch will deliver DELETED

    def mark_deleting(self, key: Key, uid: Uid) -> bool:
        """A delete is about to be sent: `leaving` is true from now on. False, and nothing to undo, if no object of that uid
        is cached. Call exactly one of `gone` and `unmark_deleting` afterwards, or `unmark_deleting` and `upsert` when the answer is
        an object that waits for its finalizers or its grace period."""
        obj = self.objects.get(key)
        if obj is None or obj.metadata.uid != uid:
            return False
        self.tombstones.setdefault(uid, _Tombstone(obj.metadata.revision)).asked += 1
        return True

    def gone(self, key: Key, uid: Uid) -> None:
        """The delete was answered: the object is gone. Its tombstone stays until the watch or a list is past it."""
        tombstone = self.tombstones.get(uid)
        if tombstone is None:
            return  # the watch was faster and has removed it
        tombstone.asked -= 1
        tombstone.gone = True
        obj = self.objects.get(key)
        if obj is not None and obj.metadata.uid == uid:
            self._leave_early(key, obj)

    def missing(self, key: Key, uid: Uid) -> None:
        """The server answered 404 for an object that was cached when the call was sent."""
        if self.mark_deleting(key, uid):
            self.gone(key, uid)

    def unmark_deleting(self, uid: Uid) -> None:
        """The delete failed, or left the object with finalizers: undo `mark_deleting`."""
        tombstone = self.tombstones.get(uid)
        if tombstone is not None:
            tombstone.asked -= 1
            if tombstone.asked <= 0 and not tombstone.gone:
                del self.tombstones[uid]

    # Applying a change

    def _offer(self, obj: T, revision: Revision) -> None:
        """Stores a state unless a newer one is cached or a tombstone forbids it."""
        meta = obj.metadata
        key = _tuple(Key, (meta.namespace, meta.name))  # as meta.key does, without a call in between
        old = self.objects.get(key)
        if old is obj or (old is not None and old.metadata.resource_version == meta.resource_version):
            return  # the answer to our own call, delivered again
        tombstone = self.tombstones.get(meta.uid)
        if tombstone is not None and tombstone.gone:
            return
        if old is None:
            if revision > self.floors.get(key, NO_REVISION):
                self._step(key, None, obj)
        elif old.metadata.revision >= revision:
            return
        elif old.metadata.uid == meta.uid:
            self._step(key, old, obj)
        else:  # another object of the same name: the old one is gone, although the watch has not delivered that yet
            self._step(key, old, None)
            self._step(key, None, obj)

    def _end(self, obj: T, revision: Revision) -> None:
        """The watch delivered DELETED. A newer state (the object came back into a partial cache's scope) stays."""
        meta = obj.metadata
        self.tombstones.pop(meta.uid, None)
        old = self.objects.get(meta.key)
        if old is not None and old.metadata.uid == meta.uid and old.metadata.revision <= revision:
            self._step(meta.key, old, None)

    def _leave_early(self, key: Key, last: T) -> None:
        """Removes an object ahead of the watch; `last` is its newest known state."""
        revision = last.metadata.revision
        self.floors[key] = revision
        heapq.heappush(self._floors_by_revision, (revision, key))
        self._step(key, self.objects[key], None)

    def _step(self, key: Key, old: T | None, new: T | None) -> None:
        if new is None:
            del self.objects[key]
        else:
            if self.keep is not _whole:
                new = self.keep(new)
            self.objects[key] = new
        for index in self._indexes:
            index.change(key, old, new)
        for subscriber in self._subscribers:
            subscriber(old, new)

    def _advance(self, revision: Revision, *, rewound: bool = False) -> None:
        self.revision = revision
        while self._floors_by_revision and self._floors_by_revision[0][0] <= revision:
            floor, key = heapq.heappop(self._floors_by_revision)
            if self.floors.get(key) == floor:
                del self.floors[key]
        while self._waiting and (rewound or self._waiting[0][0] <= revision):
            heapq.heappop(self._waiting)[2]()

    def _rewind(self, listed: dict[Key, T]) -> None:
        """A consistent list is older than what the watch had delivered: the server was restored from a backup. Everything newer than
        the list is void, and revisions that callers wait for may never come."""
        self.tombstones.clear()
        self.floors.clear()
        for key, old in list(self.objects.items()):
            new = listed.get(key)
            if new is None or new.metadata.uid != old.metadata.uid:
                self._step(key, old, None)
            elif new != old:  # also if the same revision was used again for another state
                self._step(key, old, new)
