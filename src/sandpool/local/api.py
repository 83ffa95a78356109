"""kube.Api in this process: typed objects over Objects, without a wire.

Nothing above can tell it from the HTTP adapter: the same verbs, the same errors, the same order of events. What a write
answers and what a watch delivers of the same record is decoded once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from sandpool.kube.api import Event, EventType, Page, Preconditions, Propagation
from sandpool.local.objects.objects import Objects, RawEvent, RawWatch
from sandpool.local.objects.options import DeleteOptions, ListQuery, WatchQuery
from sandpool.local.objects.typed import Typed
from sandpool.local.store.record import Record
from sandpool.model import codec
from sandpool.model.binding import BindingResource
from sandpool.model.metadata import Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)

_BOOKMARK_EVERY = 60.0


class LocalApi:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._typed_once = objects.typed

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        return self._typed(resource, self._objects.get(resource, namespace, name))

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
        # Not through the memo: a long list would only push out what is about to be asked for.
        items = tuple(codec.decode(resource, record.value) for record in listed.records)
        return Page(items, listed.revision, listed.after, listed.remaining)

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
        return _Watching(self._objects, self._typed_once, resource, namespace, query, timeout)

    async def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> T:
        document = _plain(body) if isinstance(body, Mapping) else codec.to_json(body)
        placed = resource.pod if isinstance(resource, BindingResource) else None
        if placed is not None:
            await self._objects.bind(namespace, placed, document)
            return codec.convert(resource, document)
        return self._typed(resource, (await self._objects.create(resource, namespace, document)).record)

    async def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        return self._typed(resource, (await self._objects.patch(resource, namespace, name, _carried(patch))).record)

    async def patch_status(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        written = await self._objects.patch(resource, namespace, name, _carried(patch), subresource="status")
        return self._typed(resource, written.record)

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
        options = DeleteOptions(preconditions=preconditions, propagation=propagation, grace=grace)
        deleted = await self._objects.delete(resource, namespace, name, options)
        return None if deleted.finished else self._typed(resource, deleted.record)

    def _typed(self, resource: Resource[T], record: Record) -> T:
        return self._typed_once.object(resource, record.value, record.revision)


def _plain(value: Any) -> Any:
    """As a wire would carry it: tuples are lists, enums their values, times text."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _carried(patch: Patch) -> Patch:
    return Patch(patch.type, _plain(patch.body))


class _Watching(Generic[T]):
    """One watch, from its `async with` to its end. Yields a bookmark when it has been quiet for a while, and a last one
    when its time is up, so that a client may always resume from where it really was."""

    def __init__(
        self,
        objects: Objects,
        typed: Typed,
        resource: Resource[T],
        namespace: str,
        query: WatchQuery,
        timeout: float | None,
    ) -> None:
        self._objects = objects
        self._typed = typed
        self._resource = resource
        self._namespace = namespace
        self._query = query
        self._timeout = timeout
        self._ready: deque[RawEvent] = deque()
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
            if self._ended:
                raise StopAsyncIteration
            await self._fill()
        raw = self._ready.popleft()
        if raw.type is EventType.BOOKMARK:
            return Event(raw.type, None, raw.revision, raw.initial_done)
        return Event(raw.type, self._typed.object(self._resource, raw.value, raw.revision), raw.revision)

    async def _fill(self) -> None:
        try:
            async with asyncio.timeout(None) as self._wait:
                self._ready.extend(await self._watch.next())
        except TimeoutError:
            assert self._mark is not None
            self._ready.append(self._mark)
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
