"""Writes to the store, and waits until the state that a response was derived from is durable.

Decisions are based on the newest state, which may still be on its way to disk. A client that disconnects does not undo a
decided write. Errors of the store become 503.
"""

from __future__ import annotations

import asyncio
from functools import partial

from sandpool.controlplane.objects.document import MAX_BYTES, Document, encoded_at
from sandpool.controlplane.objects.holdings import Holdings
from sandpool.controlplane.store.errors import StoreError
from sandpool.controlplane.store.port import Encode, Store
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import Unavailable
from sandpool.model.metadata import NO_REVISION, Revision


class Acknowledged:
    """`put` and `remove` decide immediately. They, or their futures, raise StoreError: the caller converts it with `unavailable`."""

    def __init__(self, store: Store, holdings: Holdings) -> None:
        self._store = store
        self._holdings = holdings
        self._guarded = holdings.guarded

    def put(
        self, key: str, current: Record | None, document: Document, tenant: str, made_for: str = ""
    ) -> asyncio.Future[Record]:
        """Replaces `current`, or creates an object. With `tenant`, it is charged to that tenant and refused beyond its share. With
        `made_for`, it is an object that a controller made for that tenant, and may grow only within bounds."""
        encode: Encode = partial(encoded_at, document, MAX_BYTES)
        if tenant:
            encode = self._guarded(encode, key, current, tenant)
        elif made_for and current is not None and self._holdings.scarce:
            encode = self._holdings.bounded(encode, key, current, made_for)
        return self._store.put(key, NO_REVISION if current is None else current.revision, encode)

    def mark(self, record: Record, document: Document) -> asyncio.Future[Record]:
        """Stores an object that is being deleted. It has no size limit: this must succeed whatever is full."""
        return self._store.put(record.key, record.revision, partial(encoded_at, document, None))

    def put_together(
        self, *writes: tuple[str, Revision, Document], tenant: str, early: bool
    ) -> tuple[tuple[Record, ...], asyncio.Future[None]]:
        """Makes all writes or none. Only the first, which the tenant itself requested, is charged to the tenant. `early`: see the store."""
        encoded = [(key, expected, partial(encoded_at, document, MAX_BYTES)) for key, expected, document in writes]
        if not tenant:
            return self._store.put_together(*encoded, early=early)
        (key, expected, encode), *others = encoded
        own = key, expected, self._guarded(encode, key, None, tenant)
        return self._store.put_together(own, *others, early=early)

    def remove(self, record: Record, last: Document) -> asyncio.Future[Record]:
        """Removes the object from the store; watchers see `last` as its last state."""
        return self._store.delete(record.key, record.revision, partial(encoded_at, last, None))

    async def durable(self, revision: Revision) -> None:
        """Waits until a response that was derived from that revision may be sent."""
        if revision <= self._store.revision:
            return
        try:
            await self._store.durable(revision)
        except StoreError as error:
            raise unavailable(error) from error

    async def settled(self, key: str) -> None:
        """Like `durable`, for the newest state of a key, even if that is its absence: waits for the newest pending write of it."""
        await self.durable(self._store.deciding(key))


def unavailable(error: StoreError) -> Unavailable:
    return Unavailable(f"the write could not be made durable: {error}")
