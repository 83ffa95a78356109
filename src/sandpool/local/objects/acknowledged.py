"""Writes to the store, acknowledged: nothing is told before what it was derived from is durable.

Decisions build on the newest state, which may still be on its way to disk. Whoever stops waiting does not undo what was
decided. The store's own troubles become answers: 503.
"""

from __future__ import annotations

import asyncio
from functools import partial

from sandpool.kube.errors import Unavailable
from sandpool.local.objects.document import MAX_BYTES, Document, encoded_at
from sandpool.local.store.errors import StoreError
from sandpool.local.store.port import Store
from sandpool.local.store.record import Record
from sandpool.model.metadata import Revision


class Acknowledged:
    """`put` and `remove` decide at once and raise StoreError at once or later: whoever awaits says it with `unavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(
        self, key: str, expected: Revision, document: Document, limit: int | None = MAX_BYTES
    ) -> asyncio.Future[Record]:
        return self._store.put(key, expected, partial(encoded_at, document, limit))

    def put_together(self, *writes: tuple[str, Revision, Document]) -> tuple[tuple[Record, ...], asyncio.Future[None]]:
        """All of them or none."""
        return self._store.put_together(
            *((key, expected, partial(encoded_at, document, MAX_BYTES)) for key, expected, document in writes)
        )

    def remove(self, record: Record, last: Document) -> asyncio.Future[Record]:
        """Takes the object out of the store; watchers see its last state."""
        return self._store.delete(record.key, record.revision, partial(encoded_at, last, None))

    async def durable(self, revision: Revision) -> None:
        """Waits until an answer that was derived from that revision may be told."""
        if revision <= self._store.revision:
            return
        try:
            await self._store.durable(revision)
        except StoreError as error:
            raise unavailable(error) from error

    async def settled(self, key: str) -> None:
        """The same for whatever the newest state of that key is, its absence included: waits for what made it so."""
        await self.durable(self._store.deciding(key))


def unavailable(error: StoreError) -> Unavailable:
    return Unavailable(f"the write could not be made durable: {error}")
