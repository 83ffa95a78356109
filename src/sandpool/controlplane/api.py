"""kube.Api in this process: typed objects over Objects, without a wire.

Nothing above can tell it from the HTTP adapter: the same verbs, the same errors, the same order of events. What a write
answers and what a watch delivers of the same record is decoded once.

Controllers work for all tenants: before a large object is read, written or delivered, others have their turn (base/turns.py), one tenant after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

import msgspec

from sandpool.base.shares import OPERATOR
from sandpool.base.turns import BYTES, Turns
from sandpool.controlplane.objects.objects import Objects, RawEvent, RawWatch
from sandpool.controlplane.objects.options import DeleteOptions, ListQuery, WatchQuery
from sandpool.controlplane.objects.typed import Typed
from sandpool.controlplane.store.record import Record
from sandpool.kube.api import Event, EventType, Page, Preconditions, Propagation
from sandpool.model import codec
from sandpool.model.binding import BindingResource
from sandpool.model.metadata import Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)

_BOOKMARK_EVERY = 60.0
LARGE: Final = 8 * 1024
"""Bytes of an object beyond which work with it waits for a turn. What controllers make of a usual template is smaller."""

# What comes in is taken as a wire would carry it: tuples are lists, enums their values, times text.
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class LocalApi:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._typed_once = objects.typed
        self._turns = Turns()
        self._heavy: set[str] = set()  # namespaces that have large objects: others pay for no look

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        record = self._objects.get(resource, namespace, name)
        if len(record.value) > LARGE:
            await self._turns.take(namespace, len(record.value))
        return self._typed(resource, record)

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        after: str = "",
    ) -> Page[T]:
        query = ListQuery(labels=labels, fields=fields, limit=limit, after=after)
        listed = self._objects.list(resource, namespace, query)
        items: list[T] = []
        for record in listed.records:
            if len(record.value) > LARGE:
                await self._turns.take(namespace, len(record.value))
            # Not through the memo: a long list would only push out what is about to be asked for.
            items.append(codec.decode(resource, record.value))
        return Page(tuple(items), listed.revision, listed.after, listed.remaining)

    def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: Revision | None = None,
        initial: bool = False,
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[Event[T]]]:
        query = WatchQuery(labels=labels, fields=fields, since=since, initial=initial, bookmarks=True)
        return _Watching(self._objects, self._typed_once, self._turns, resource, namespace, query, timeout)

    async def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> T:
        raw = _encode(body)
        if len(raw) > LARGE:
            self._heavy.add(namespace)
            await self._turns.take(namespace, len(raw))
        document = _decode(raw) if isinstance(body, dict | Mapping) else codec.to_json(body)
        placed = resource.pod if isinstance(resource, BindingResource) else None
        if placed is not None:
            await self._objects.bind(namespace, placed, document)
            return codec.convert(resource, document)
        record = (await self._objects.create(resource, namespace, document)).record
        return self._typed_once.object(resource, record.value, record.revision)

    async def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        if namespace in self._heavy:
            await self._weigh(resource, namespace, name)
        carried = Patch(patch.type, _decode(_encode(patch.body)))
        record = (await self._objects.patch(resource, namespace, name, carried)).record
        if len(record.value) > LARGE:
            self._heavy.add(namespace)
        return self._typed_once.object(resource, record.value, record.revision)

    async def patch_status(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        if namespace in self._heavy:
            await self._weigh(resource, namespace, name)
        carried = Patch(patch.type, _decode(_encode(patch.body)))
        record = (await self._objects.patch(resource, namespace, name, carried, subresource="status")).record
        if len(record.value) > LARGE:
            self._heavy.add(namespace)
        return self._typed_once.object(resource, record.value, record.revision)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        preconditions: Preconditions | None = None,
        propagation: Propagation | None = None,
        grace: int | None = None,
    ) -> T | None:
        if namespace in self._heavy:
            await self._weigh(resource, namespace, name)
        options = DeleteOptions(preconditions=preconditions, propagation=propagation, grace=grace)
        deleted = await self._objects.delete(resource, namespace, name, options)
        return None if deleted.finished else self._typed(resource, deleted.record)

    async def _weigh(self, resource: Resource[T], namespace: str, name: str) -> None:
        size = self._objects.size(resource, namespace, name)
        if size > LARGE:
            await self._turns.take(namespace, size)

    def _typed(self, resource: Resource[T], record: Record) -> T:
        return self._typed_once.object(resource, record.value, record.revision)


class _Watching(Generic[T]):
    """One watch, from its `async with` to its end. Yields a bookmark when it has been quiet for a while, and a last one
    when its time is up, so that a client may always resume from where it really was."""

    def __init__(
        self,
        objects: Objects,
        typed: Typed,
        turns: Turns,
        resource: Resource[T],
        namespace: str,
        query: WatchQuery,
        timeout: float | None,
    ) -> None:
        self._objects = objects
        self._typed = typed
        self._turns = turns
        self._resource = resource
        self._namespace = namespace
        self._query = query
        self._timeout = timeout
        self._ready: deque[Event[T]] = deque()  # taken in a batch, and asked for one by one
        self._rest: deque[RawEvent] = deque()  # what came at once, and may be too much for a batch
        self._mark: RawEvent | None = None
        self._wait: asyncio.Timeout | None = None  # around the wait for events, while there is one
        self._ends_at = float("inf")
        self._ended = False
        self._watch: RawWatch
        self._timer: asyncio.TimerHandle

    async def __aenter__(self) -> AsyncIterator[Event[T]]:
        if self._timeout is not None:
            self._ends_at = asyncio.get_running_loop().time() + self._timeout
        self._watch = self._objects.watch(self._resource, self._namespace, self._query)
        self._schedule()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._watch.close()

    def __aiter__(self) -> AsyncIterator[Event[T]]:
        return self

    async def __anext__(self) -> Event[T]:
        if not self._ready:
            self._ready.extend(await self.batch())
            if not self._ready:
                raise StopAsyncIteration
        return self._ready.popleft()

    async def batch(self) -> Sequence[Event[T]]:
        if not self._rest:
            if self._ended:
                return ()
            self._rest.extend(await self._next())
        size, number = _portion(self._rest)
        if size > LARGE:
            await self._turns.take(OPERATOR, size)
        found = [self._rest.popleft() for _ in range(number)]
        resource, typed, mark = self._resource, self._typed.object, EventType.BOOKMARK
        return [
            Event(raw.type, typed(resource, raw.value, raw.revision), raw.revision)
            if raw.type is not mark
            else Event(mark, None, raw.revision, raw.initial_done)
            for raw in found
        ]

    async def _next(self) -> list[RawEvent]:
        try:
            async with asyncio.timeout(None) as self._wait:
                return await self._watch.next()
        except TimeoutError:
            assert self._mark is not None
            return [self._mark]
        finally:
            self._wait = None

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        due = min(self._ends_at, loop.time() + _BOOKMARK_EVERY)
        self._timer = loop.call_at(due, self._tick, due >= self._ends_at)

    def _tick(self, last: bool) -> None:
        """The mark is made while the watcher still waits: only then has it surely missed nothing. Whether it is the `last` one
        was decided when it was ordered: a timer may fire a hair before its time."""
        self._ended = last
        if self._wait is not None and not self._wait.expired():  # else its mark is made, and it is about to take it
            self._mark = self._watch.bookmark()
            self._wait.reschedule(asyncio.get_running_loop().time())
        if not self._ended:
            self._schedule()


def _portion(events: deque[RawEvent]) -> tuple[int, int]:
    """Bytes and number of those that are delivered at once: as many as fit into a turn, or one that is larger."""
    size = 0
    for number, event in enumerate(events):
        size += len(event.value)
        if size > BYTES:
            return size, max(1, number)
    return size, len(events)
