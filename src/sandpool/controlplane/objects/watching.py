"""Watches: turns changes of one kind into the events of one watcher.

Events carry the stored bytes. An object that stops matching a selector becomes a DELETED event with the last state that
matched, at the revision of the change. Only this event needs its own encoding, once for all watchers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import decode, encoded_at, owning
from sandpool.controlplane.objects.keys import prefix_of
from sandpool.controlplane.objects.matching import PORTION, Matcher, Memo
from sandpool.controlplane.objects.options import WatchQuery
from sandpool.controlplane.objects.recent import Recent
from sandpool.controlplane.store.errors import Ahead, StoreClosed
from sandpool.controlplane.store.port import Store, Watcher
from sandpool.controlplane.store.record import Change, Compacted, Record
from sandpool.kube.api import EventType
from sandpool.kube.errors import Unavailable
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource

_EACH = 100  # bytes that an event takes in addition to its value
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class RawEvent(msgspec.Struct, frozen=True, gc=False):
    """One event for one watcher: its type, and the object's stored bytes (shared by all watchers). The value of a bookmark is a
    minimal object with the resourceVersion and, if `initial_done`, the annotation k8s.io/initial-events-end."""

    type: EventType
    value: bytes
    revision: Revision
    initial_done: bool = False


class Departed:
    """A cache of last matching states, encoded once per change for all watchers whose selector stops matching."""

    def __init__(self) -> None:
        self._values: Recent[Revision, bytes] = Recent(256, 8 * 1024 * 1024)

    def value(self, change: Change) -> bytes:
        assert change.previous is not None
        revision = change.record.revision
        found = self._values.get(revision)
        if found is None:
            made = encoded_at(owning(decode(change.previous)), None, revision)
            found = self._values.keep(revision, made, len(made))
        return found


class Watch:
    """One watcher. `next` waits for events, `bookmark` returns its progress, `close` ends it."""

    def __init__(
        self, store: Store, resource: Resource[Any], namespace: str, query: WatchQuery, memo: Memo, departed: Departed
    ) -> None:
        self._resource = resource
        self._matcher = Matcher(resource, query.labels, query.fields)
        self._memo = memo
        self._departed = departed
        self._prefix = prefix_of(resource, namespace)
        self._first: list[RawEvent] = []
        self._candidates: tuple[Record, ...] = ()  # for the initial events, before selectors are applied
        self._last_of_first: RawEvent | None = None
        self._in_hand: Revision | None = None  # of the first change of the batch that is being matched
        self.first_size = 0  # bytes of the initial events; known after `settling`
        self.pace: Callable[[], Awaitable[None]] | None = None  # awaited before each portion of work
        self._since = query.since or Revision(0)
        self._watcher = self._begin(store, query)

    def _begin(self, store: Store, query: WatchQuery) -> Watcher:
        since = query.since
        if since and not query.initial:
            return self._resume(store, since)
        if since and since > store.revision:
            raise refusals.too_large(since, store.revision)
        if query.skip_initial:
            return store.watch(self._prefix, store.revision)
        snapshot = store.scan(self._prefix)
        self._candidates = snapshot.records
        if query.initial and query.bookmarks:
            self._last_of_first = self._mark(snapshot.revision, initial_done=True)
        self._since = snapshot.revision
        return store.watch(self._prefix, snapshot.revision)

    def settling(self) -> Iterator[None]:
        """Computes the initial events; yields after each portion of work."""
        candidates, self._candidates = self._candidates, ()
        work, everything = 0, self._matcher.everything
        for record in candidates:
            if not everything:
                work += self._matcher.cost(record)
                if work > PORTION:
                    work = 0
                    yield
                if not self._matches(record):
                    continue
            self._first.append(RawEvent(EventType.ADDED, record.value, record.revision))
        self.first_size = sum([len(event.value) + _EACH for event in self._first])
        if self._last_of_first is not None:
            self._first.append(self._last_of_first)
            self._last_of_first = None

    def _resume(self, store: Store, since: Revision) -> Watcher:
        try:
            return store.watch(self._prefix, since)
        except Compacted as error:
            raise refusals.too_old(error.asked, error.oldest) from error
        except Ahead:
            # A kube-apiserver lets such a watcher wait silently until the revision is reached.
            return store.watch(self._prefix, store.revision)

    async def next(self) -> list[RawEvent]:
        """Waits for the next matching events, at least one, in order. Raises Gone if this watcher fell behind."""
        if self._candidates or self._last_of_first is not None:
            for _ in self.settling():
                pass
        if self._first:
            events, self._first = self._first, []
            return events
        while True:
            try:
                changes = await self._watcher.changes()
            except Compacted as error:
                raise refusals.too_old(error.asked, error.oldest) from error
            except StoreClosed as error:
                raise Unavailable("the server is shutting down: watch again once it is back") from error
            events = self._events(changes) if self.pace is None else await self._paced(changes, self.pace)
            if events:
                return events

    async def _paced(self, changes: list[Change], pace: Callable[[], Awaitable[None]]) -> list[RawEvent]:
        """Matches changes in portions and awaits `pace` before each: many changes, a long selector, or thousands of watchers take long."""
        events: list[RawEvent] = []
        step = max(1, PORTION // self._matcher.terms)
        self._in_hand = changes[0].record.revision
        try:
            for at in range(0, len(changes), step):
                await pace()
                events += self._events(changes[at : at + step])
        finally:
            self._in_hand = None
        return events

    def _events(self, changes: list[Change]) -> list[RawEvent]:
        since = self._since
        if self._matcher.everything:
            return [
                RawEvent(_type(change), change.record.value, change.record.revision)
                for change in changes
                if change.record.revision > since
            ]
        found = (self._event(change) for change in changes if change.record.revision > since)
        return [event for event in found if event is not None]

    def _event(self, change: Change) -> RawEvent | None:
        """The event of a change for this watcher: ADDED if the object starts to match, DELETED if it stops matching."""
        record, previous = change.record, change.previous
        was = previous is not None and self._matches(previous)
        now = not change.deleted and self._matches(record)
        if now:
            return RawEvent(EventType.MODIFIED if was else EventType.ADDED, record.value, record.revision)
        if not was:
            return None
        value = record.value if change.deleted else self._departed.value(change)
        return RawEvent(EventType.DELETED, value, record.revision)

    def _matches(self, record: Record) -> bool:
        return self._matcher.matches(self._memo.facts(record))

    def bookmark(self) -> RawEvent:
        """A bookmark with the revision up to which this watcher has seen everything. Call it between two calls of `next`, or while
        one is waiting; never while events returned by `next` are not sent yet."""
        reached = self._watcher.revision if self._in_hand is None else Revision(self._in_hand - 1)
        return self._mark(max(reached, self._since))

    def _mark(self, revision: Revision, *, initial_done: bool = False) -> RawEvent:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial_done:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        document = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        return RawEvent(EventType.BOOKMARK, msgspec.json.encode(document), revision, initial_done)

    def close(self) -> None:
        self._watcher.close()


def _type(change: Change) -> EventType:
    if change.deleted:
        return EventType.DELETED
    return EventType.ADDED if change.previous is None else EventType.MODIFIED
