"""The interface of a store, for the layers above it. One test suite runs on it with the SQLite log and with the log in memory.

All methods run on the event loop's thread. Reads never wait and see only what is durable. A write is decided immediately, by compare-and-swap
against the newest state. That includes writes still in flight to disk, so that successive writers of one key need not wait for each other.
Its future resolves once it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from sandpool.controlplane.store.log import Unit
from sandpool.controlplane.store.record import Change, Record, Snapshot
from sandpool.model.metadata import Revision

Encode = Callable[[Revision], bytes]
"""Encodes the value of a write, given the revision that it will have (for its resourceVersion)."""


Count = Callable[[Sequence[Change], int], None]
"""Counts what is stored: called with 1 for changes that were decided, and with -1 for changes whose commit failed."""
Write = tuple[str, Revision, Encode]
"""The arguments of `put`: a key, the revision that it must have, and the value."""


class Watcher(Protocol):
    """A cursor into the shared history of one prefix. Nothing is queued per watcher."""

    async def changes(self) -> list[Change]:
        """Waits for at least one durable change since the last call and returns changes in order. Raises Compacted when this
        watcher has fallen behind the history. A slow watcher never delays others."""
        ...

    @property
    def revision(self) -> Revision:
        """The newest durable revision of the whole store up to which this watcher has missed nothing."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """See the module."""

    decided: Callable[[Unit], None] | None
    """Called with each unit (one write, or several in one commit) when it is decided. `newest` already shows it."""
    upset: Callable[[], None] | None
    """Called when the newest state is no longer what `decided` reported: writes failed, or everything was replaced."""

    @property
    def revision(self) -> Revision:
        """The revision of the newest durable write."""
        ...

    @property
    def oldest(self) -> Revision:
        """The oldest revision from which every watch can start."""
        ...

    def get(self, key: str) -> Record | None: ...

    def newest(self, key: str) -> Record | None:
        """Like `get`, but including writes that are not yet durable. A read-modify-write builds on this. An answer derived from it
        must not leave the process before `durable(record.revision)`."""
        ...

    def newest_under(self, prefix: str) -> Sequence[Record]:
        """The `newest` record of each key under the prefix, unordered."""
        ...

    def deciding(self, key: str) -> Revision:
        """The revision of the newest write (or deletion) of the key that is not yet durable; 0 if there is none."""
        ...

    async def durable(self, revision: Revision) -> None:
        """Waits until that revision is on disk."""
        ...

    def scan(self, prefix: str, *, at: Revision | None = None, after: str = "", limit: int = 0) -> Snapshot:
        """Records under the prefix, in key order, beyond the key `after`, as of revision `at` (default: now).
        Raises Compacted if the history no longer reaches back to `at`."""
        ...

    def count(self, prefix: str, after: str = "") -> int:
        """The number of keys under the prefix, beyond the key `after`."""
        ...

    def newer(self, prefix: str, at: Revision) -> int:
        """How many changes a scan as of revision `at` has to walk over; 0 if `at` is compacted or not reached yet."""
        ...

    def put(self, key: str, expected: Revision, encode: Encode) -> asyncio.Future[Record]:
        """Writes if the newest state of the key has revision `expected` (0: the key is absent), else raises Stale immediately."""
        ...

    def put_together(self, *writes: Write, early: bool = False) -> tuple[tuple[Record, ...], asyncio.Future[None]]:
        """Makes several writes like `put`, in this order, all of them or none. A second write of the same key builds on the first; its
        expected revision is ignored. Returns the records, and a future that resolves when they are durable. With `early`, a task that
        awaits the future continues before anyone, itself included, can read or watch these writes: they appear in the next turn of the loop."""
        ...

    def delete(self, key: str, expected: Revision, encode: Encode) -> asyncio.Future[Record]:
        """Removes the key, with the same compare-and-swap as `put`. `encode` makes the last state, which watchers see."""
        ...

    def watch(self, prefix: str, since: Revision) -> Watcher:
        """Watches changes under the prefix after `since`. Raises Compacted if the history no longer reaches back that far."""
        ...

    def count_with(self, count: Count) -> Callable[[], None]:
        """Calls `count` now for everything stored, each key as if it were new, and from now on for every change, at the latest when it is
        durable. Call the returned function to have all changes counted that are decided so far."""
        ...

    async def close(self) -> None:
        """Makes all accepted writes durable, then stops."""
        ...
