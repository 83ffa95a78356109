"""Watches: the changes of one kind, as one watcher may see them.

Events carry the stored bytes. An object that stops matching a selector leaves the watcher's world as it was when it still
matched, at the revision of the change: the one event that is encoded for its own sake, once for all watchers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.kube.api import EventType
from sandpool.kube.errors import Unavailable
from sandpool.local.objects import refusals
from sandpool.local.objects.document import decode, encoded_at, owning
from sandpool.local.objects.keys import prefix_of
from sandpool.local.objects.matching import Matcher, Memo
from sandpool.local.objects.options import WatchQuery
from sandpool.local.objects.recent import Recent
from sandpool.local.store.errors import Ahead, StoreClosed
from sandpool.local.store.port import Store, Watcher
from sandpool.local.store.record import Change, Compacted, Record
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource

_EACH = 100  # bytes that an event takes besides its value
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class RawEvent(msgspec.Struct, frozen=True, gc=False):
    """One event for one watcher: what happened, and the object's stored bytes (shared by all watchers).
    Of a bookmark, the value is a minimal object with the resourceVersion and, if `initial_done`, the mark."""

    type: EventType
    value: bytes
    revision: Revision
    initial_done: bool = False


class Departed:
    """Last matching states, encoded once per change for all watchers that lose the object by it."""

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
    """One watcher. `next` waits for events, `bookmark` says how far it has come, `close` ends it."""

    def __init__(
        self, store: Store, resource: Resource[Any], namespace: str, query: WatchQuery, memo: Memo, departed: Departed
    ) -> None:
        self._resource = resource
        self._matcher = Matcher(resource, query.labels, query.fields)
        self._memo = memo
        self._departed = departed
        self._prefix = prefix_of(resource, namespace)
        self._first: list[RawEvent] = []
        self.first_size = 0  # bytes of what it begins with, as far as that is not a change
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
        self._first = [
            RawEvent(EventType.ADDED, record.value, record.revision)
            for record in snapshot.records
            if self._matcher.everything or self._matches(record)
        ]
        self.first_size = sum([len(event.value) + _EACH for event in self._first])
        if query.initial and query.bookmarks:
            self._first.append(self._mark(snapshot.revision, initial_done=True))
        self._since = snapshot.revision
        return store.watch(self._prefix, snapshot.revision)

    def _resume(self, store: Store, since: Revision) -> Watcher:
        try:
            return store.watch(self._prefix, since)
        except Compacted as error:
            raise refusals.too_old(error.asked, error.oldest) from error
        except Ahead:
            # A real server lets such a watcher wait until the revision is reached, in silence.
            return store.watch(self._prefix, store.revision)

    async def next(self) -> list[RawEvent]:
        """The next events that match, at least one, joined as they came. Gone: this watcher fell behind."""
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
            events = self._events(changes)
            if events:
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
        """What the change is to this watcher: an object that starts to match appears, one that stops to match leaves."""
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
        """How far this watcher has come, for a client that may have to resume. Call it between two `next`, or while
        one is waiting; never with events in hand that were not sent yet."""
        return self._mark(max(self._watcher.revision, self._since))

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
