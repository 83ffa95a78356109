"""kube.Api in this process: typed objects on top of Objects, without HTTP.

It behaves like the HTTP adapter: the same verbs, the same errors, the same order of events. A record that a write
returns and a watch delivers is decoded only once.

Controllers work for all tenants. Before a large object is read, written or delivered, other work gets a turn (base/turns.py), and tenants alternate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
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
from sandpool.kube.api import Api, Call, Event, EventType, Page, Verb
from sandpool.model import codec
from sandpool.model.binding import BindingResource
from sandpool.model.metadata import Object
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)

_BOOKMARK_EVERY = 60.0
LARGE: Final = 8 * 1024
"""Bytes. Work on an object larger than this waits for a turn. Objects that controllers create from a usual template are smaller."""

# Bodies are encoded and decoded, to get what HTTP would transport: tuples become lists, enums their values, times text.
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class LocalApi(Api):
    """kube.Api on the Objects of this process."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._typed_once = objects.typed
        self._turns = Turns()
        self._heavy: set[str] = set()  # namespaces that have large objects; only these are measured before a write
        self._verbs: dict[Verb, Callable[[Call], Coroutine[Any, Any, Any]]] = {
            Verb.GET: self._get,
            Verb.LIST: self._list,
            Verb.CREATE: self._create,
            Verb.PATCH: self._patch,
            Verb.PATCH_STATUS: self._patch,
            Verb.DELETE: self._delete,
        }

    def send(self, call: Call) -> Coroutine[Any, Any, Any]:
        return self._verbs[call.verb](call)

    def stream(self, call: Call) -> AbstractAsyncContextManager[AsyncIterator[Event[Any]]]:
        asked = call.list_options
        query = WatchQuery(
            labels=asked.labels, fields=asked.fields, since=asked.since, initial=asked.initial, bookmarks=True
        )
        return _Watching(
            self.objects, self._typed_once, self._turns, call.resource, call.namespace, query, asked.timeout
        )

    async def _get(self, call: Call) -> Any:
        record = self.objects.get(call.resource, call.namespace, call.name)
        if len(record.value) > LARGE:
            await self._turns.take(call.namespace, len(record.value))
        return self._typed(call.resource, record)

    async def _list(self, call: Call) -> Page[Any]:
        resource, namespace, asked = call.resource, call.namespace, call.list_options
        query = ListQuery(labels=asked.labels, fields=asked.fields, limit=asked.limit, after=asked.after)
        listed = self.objects.list(resource, namespace, query)
        items: list[Object] = []
        size = 0  # bytes since the last turn
        for record in listed.records:
            size += len(record.value)
            if size > BYTES or len(record.value) > LARGE:
                await self._turns.take(namespace, size)
                size = 0
            # Not through the cache of decoded objects: a long list would only evict what is needed next.
            items.append(codec.decode(resource, record.value))
        return Page(tuple(items), listed.revision, listed.after, listed.remaining)

    async def _create(self, call: Call) -> Any:
        resource, namespace, body = call.resource, call.namespace, call.body
        assert body is not None
        raw = _encode(body)
        if len(raw) > LARGE:
            self._heavy.add(namespace)
            await self._turns.take(namespace, len(raw))
        document = _decode(raw) if isinstance(body, dict | Mapping) else codec.to_json(body)
        placed = resource.pod if isinstance(resource, BindingResource) else None
        if placed is not None:
            await self.objects.bind(namespace, placed, document)
            return codec.convert(resource, document)
        record = (await self.objects.create(resource, namespace, document)).record
        return self._typed_once.object(resource, record.value, record.revision)

    async def _patch(self, call: Call) -> Any:
        resource, namespace, name, patch = call.resource, call.namespace, call.name, call.patch
        assert patch is not None
        if namespace in self._heavy:
            await self._weigh(resource, namespace, name)
        carried = Patch(patch.type, _decode(_encode(patch.body)))
        subresource = "status" if call.verb is Verb.PATCH_STATUS else ""
        record = (await self.objects.patch(resource, namespace, name, carried, subresource=subresource)).record
        if len(record.value) > LARGE:
            self._heavy.add(namespace)
        return self._typed_once.object(resource, record.value, record.revision)

    async def _delete(self, call: Call) -> Any:
        resource, namespace, name, asked = call.resource, call.namespace, call.name, call.delete_options
        if namespace in self._heavy:
            await self._weigh(resource, namespace, name)
        options = DeleteOptions(preconditions=asked.preconditions, propagation=asked.propagation, grace=asked.grace)
        deleted = await self.objects.delete(resource, namespace, name, options)
        return None if deleted.finished else self._typed(resource, deleted.record)

    async def _weigh(self, resource: Resource[T], namespace: str, name: str) -> None:
        size = self.objects.size(resource, namespace, name)
        if size > LARGE:
            await self._turns.take(namespace, size)

    def _typed(self, resource: Resource[T], record: Record) -> T:
        return self._typed_once.object(resource, record.value, record.revision)


class _Watching(Generic[T]):
    """One watch, as an async context manager and iterator. Yields a bookmark when no event came for a while, and a last one
    when its timeout ends, so that the client can resume from the newest revision it has seen."""

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
        self._ready: deque[Event[T]] = deque()  # decoded, and not yet returned by __anext__
        self._rest: deque[RawEvent] = deque()  # received, and not yet decoded: may be too much for one batch
        self._mark: RawEvent | None = None
        self._wait: asyncio.Timeout | None = None  # set while the watch waits for events
        self._ends_at = float("inf")
        self._ended = False
        self._watch: RawWatch
        self.timer: asyncio.TimerHandle

    async def __aenter__(self) -> AsyncIterator[Event[T]]:
        if self._timeout is not None:
            self._ends_at = asyncio.get_running_loop().time() + self._timeout
        self._watch = self._objects.watch(self._resource, self._namespace, self._query)
        self._schedule()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.timer.cancel()
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
        self.timer = loop.call_at(due, self.tick, due >= self._ends_at)

    def tick(self, last: bool) -> None:
        """Makes a bookmark, while the watcher still waits: only then is it certain that it missed nothing. `last` was decided when the
        timer was set, because a timer may fire slightly early."""
        self._ended = last
        if self._wait is not None and not self._wait.expired():  # else a bookmark is already made and about to be taken
            self._mark = self._watch.bookmark()
            self._wait.reschedule(asyncio.get_running_loop().time())
        if not self._ended:
            self._schedule()


def _portion(events: deque[RawEvent]) -> tuple[int, int]:
    """Size and number of the events to deliver next: as many as fit into a turn, or a single larger one."""
    size = 0
    for number, event in enumerate(events):
        size += len(event.value)
        if size > BYTES:
            return size, max(1, number)
    return size, len(events)
