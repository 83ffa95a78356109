"""Writes to the store, acknowledged: nothing is told before what it was derived from is durable.

Decisions build on the newest state, which may still be on its way to disk. Whoever stops waiting does not undo what was
decided. The store's own troubles become answers: 503.
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
    """`put` and `remove` decide at once and raise StoreError at once or later: whoever awaits says it with `unavailable`."""

    def __init__(self, store: Store, holdings: Holdings) -> None:
        self._store = store
        self._holdings = holdings
        self._guarded = holdings.guarded

    def put(
        self, key: str, current: Record | None, document: Document, tenant: str, made_for: str = ""
    ) -> asyncio.Future[Record]:
        """In the place of `current`, or as a new object; on a tenant's account, whose shares it may exceed, or as something that
        controllers have made for one."""
        encode: Encode = partial(encoded_at, document, MAX_BYTES)
        if tenant:
            encode = self._guarded(encode, key, current, tenant)
        elif made_for and current is not None and self._holdings.size.used >= self._holdings.size.easy // 2:
            encode = self._holdings.bounded(encode, key, current, made_for)
        return self._store.put(key, NO_REVISION if current is None else current.revision, encode)

    def mark(self, record: Record, document: Document) -> asyncio.Future[Record]:
        """An object that is leaving: whatever is full, this fits."""
        return self._store.put(record.key, record.revision, partial(encoded_at, document, None))

    def put_together(
        self, *writes: tuple[str, Revision, Document], tenant: str, early: bool
    ) -> tuple[tuple[Record, ...], asyncio.Future[None]]:
        """All of them or none. On a tenant's account is the first: what it asked for itself. `early`: see the store."""
        encoded = [(key, expected, partial(encoded_at, document, MAX_BYTES)) for key, expected, document in writes]
        if not tenant:
            return self._store.put_together(*encoded, early=early)
        (key, expected, encode), *others = encoded
        own = key, expected, self._guarded(encode, key, None, tenant)
        return self._store.put_together(own, *others, early=early)

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
