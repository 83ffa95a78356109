"""Writes to the store, acknowledged: nothing is told before what it was derived from is durable.

Decisions build on the newest state, which may still be on its way to disk. Whoever stops waiting does not undo what was
decided. The store's own troubles become answers: 503.
"""

from __future__ import annotations

import asyncio

from sandpool.kube.errors import Unavailable
from sandpool.local.objects.document import MAX_BYTES, Document, at_revision
from sandpool.local.store.errors import StoreError
from sandpool.local.store.port import Store
from sandpool.local.store.record import Record
from sandpool.model.metadata import Revision


class Acknowledged:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._leaving: dict[str, asyncio.Future[Record]] = {}  # removals on their way to disk, by key

    async def put(self, key: str, expected: Revision, document: Document, limit: int | None = MAX_BYTES) -> Record:
        try:
            return await self._store.put(key, expected, at_revision(document, limit))
        except StoreError as error:
            raise _unavailable(error) from error

    async def remove(self, record: Record, last: Document) -> Record:
        """Takes the object out of the store; watchers see its last state."""
        try:
            future = self._store.delete(record.key, record.revision, at_revision(last, limit=None))
            self._leaving[record.key] = future
            future.add_done_callback(lambda done: self._left(record.key, done))
            return await asyncio.shield(future)  # others may wait for it too
        except StoreError as error:
            raise _unavailable(error) from error

    def _left(self, key: str, future: asyncio.Future[Record]) -> None:
        if self._leaving.get(key) is future:
            del self._leaving[key]

    async def durable(self, revision: Revision) -> None:
        """Waits until an answer that was derived from that revision may be told."""
        if revision <= self._store.revision:
            return
        try:
            await self._store.durable(revision)
        except StoreError as error:
            raise _unavailable(error) from error

    async def settled(self, key: str) -> None:
        """The same for whatever the newest state of that key is, absence included."""
        record = self._store.newest(key)
        await (self.absent(key) if record is None else self.durable(record.revision))

    async def absent(self, key: str) -> None:
        """The same for the absence of an object: waits for the removal that made it so, if it is not yet durable."""
        leaving = self._leaving.get(key)
        if leaving is None:
            return
        try:
            await asyncio.shield(leaving)
        except StoreError as error:
            raise _unavailable(error) from error


def _unavailable(error: StoreError) -> Unavailable:
    return Unavailable(f"the write could not be made durable: {error}")
