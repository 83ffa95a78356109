"""One watch that many callers wait on: list once, then watch, resume where it ended, relist when the revision has expired.

There is no polling. `heard` is called for every object, with the time at which its bytes were read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Call, EventType, ListOptions, Verb
from sandpool.kube.errors import Gone, Unreachable, Unreadable
from sandpool.kube.requests import request_of
from sandpool.kube.transport import Transport
from sandpool.kube.watch import WatchParser
from sandpool.load.observed import SeenObject, decode_list, decode_object
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.model.resource import Resource

Heard = Callable[[EventType, SeenObject, float], None]
_PAUSE = 0.5
_PATIENCE = 30.0  # seconds of a watch that cannot be opened


class Follow:
    def __init__(
        self, transport: Transport, clock: Clock, resource: Resource[Any], namespace: str, labels: str, heard: Heard
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._what = (resource, namespace, labels)
        self._heard = heard
        self.restarts = 0  # times it had to be opened again
        self.relists = 0  # of those, times with a gap

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the watch during the body, which begins after the list. A failure of the watch cancels the body."""
        since = await self._list()
        opened = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._follow(since, opened))
            await opened.wait()
            try:
                yield
            finally:
                task.cancel()

    async def _list(self) -> Revision:
        resource, namespace, labels = self._what
        body = await self._transport.send(
            request_of(Call(Verb.LIST, resource, namespace, list_options=ListOptions(labels)))
        )
        now = self._clock.monotonic()
        try:
            page = decode_list(body)
            revision = Revision(int(page.metadata.resource_version))
        except (msgspec.DecodeError, ValueError) as error:
            raise Unreadable(f"the list of {resource.group_resource} cannot be read: {error}") from error
        for item in page.items:
            self._heard(EventType.ADDED, item, now)
        return revision

    async def _follow(self, since: Revision, opened: asyncio.Event) -> None:
        lost_at: float | None = None
        while True:
            try:
                since = await self._until_it_ends(since, opened)
                lost_at = None
            except Gone:
                self.relists += 1
                since = await self._list()
            except Unreachable:
                now = self._clock.monotonic()
                lost_at = now if lost_at is None else lost_at
                if now - lost_at > _PATIENCE:
                    raise
                await self._clock.sleep(_PAUSE)
            self.restarts += 1

    async def _until_it_ends(self, since: Revision, opened: asyncio.Event) -> Revision:
        resource, namespace, labels = self._what
        call = Call(Verb.WATCH, resource, namespace, list_options=ListOptions(labels, since=since))
        stream = await self._transport.open(request_of(call), None)
        opened.set()
        parser: WatchParser[Any] = WatchParser(cast(Any, decode_object), since)
        try:
            while chunk := await stream.chunk():
                now = self._clock.monotonic()
                for event in parser.feed(chunk):
                    if event.object is not None:
                        self._heard(event.type, event.object, now)
                if parser.failure is not None:
                    raise parser.failure
        except (Gone, SandpoolError) as error:
            if isinstance(error, Unreachable) and parser.revision != since:
                return parser.revision  # it made progress: resume there
            raise
        finally:
            stream.close()
        return parser.revision or NO_REVISION
