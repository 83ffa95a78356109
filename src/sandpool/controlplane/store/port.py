"""What the layers above see of a store. The SQLite store and its memory twin both are one, and pass one suite.

All methods run on the event loop's thread. Reads never wait and see only what is durable. A write is decided at once
(compare-and-swap against the newest state, including writes still on their way to disk, so that writers of one key follow
each other without waiting) and acknowledged, by its future, once it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from sandpool.controlplane.store.log import Unit
from sandpool.controlplane.store.record import Change, Record, Snapshot
from sandpool.model.metadata import Revision

Encode = Callable[[Revision], bytes]
"""Makes the value of a write, given the revision that it will have (to be put into resourceVersion)."""


Count = Callable[[Sequence[Change], int], None]
"""Counts what is stored: hears of changes that were decided, with 1, and of those whose commit failed once more, with -1."""
Write = tuple[str, Revision, Encode]
"""A key, the revision that it must have, and the value: what `put` takes."""


class Watcher(Protocol):
    """A cursor into the shared history of one prefix. Nothing is queued per watcher."""

    async def changes(self) -> list[Change]:
        """All durable changes since the last call, at least one, in order. Waits. Raises Compacted when this watcher
        has fallen behind what is remembered; nobody ever waits for a slow watcher."""
        ...

    @property
    def revision(self) -> Revision:
        """The newest durable revision of the whole store that this watcher is known to have caught up with."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    decided: Callable[[Unit], None] | None
    """Called with each write, or with several that go together, at the moment in which it is decided: `newest` shows it already."""
    upset: Callable[[], None] | None
    """Called when the newest state is another than `decided` told: writes failed, or everything was replaced."""

    @property
    def revision(self) -> Revision:
        """Of the newest durable write."""
        ...

    @property
    def oldest(self) -> Revision:
        """A watch may start from here or later."""
        ...

    def get(self, key: str) -> Record | None: ...

    def newest(self, key: str) -> Record | None:
        """Like get, but including writes that are not yet durable. What a read-modify-write builds on; an answer derived
        from it must not leave the process before `durable(record.revision)`."""
        ...

    def newest_under(self, prefix: str) -> Sequence[Record]:
        """What `newest` says of each key under the prefix, in no order."""
        ...

    def deciding(self, key: str) -> Revision:
        """Of the newest write to the key that is not yet durable, a deletion included; 0 if there is none."""
        ...

    async def durable(self, revision: Revision) -> None:
        """Waits until that revision is on disk."""
        ...

    def scan(self, prefix: str, *, at: Revision | None = None, after: str = "", limit: int = 0) -> Snapshot:
        """Keys under the prefix, in order, beyond the key `after`, as of revision `at` (default: now).
        Raises Compacted if `at` is no longer remembered."""
        ...

    def count(self, prefix: str) -> int: ...

    def put(self, key: str, expected: Revision, encode: Encode) -> asyncio.Future[Record]:
        """Writes if the newest state of the key has revision `expected` (0: is absent), else raises Stale at once."""
        ...

    def put_together(self, *writes: Write, early: bool = False) -> tuple[tuple[Record, ...], asyncio.Future[None]]:
        """Makes several writes on the same terms, in this order, all of them or none. One of a key that came before follows that
        one, whatever it expects. What they become, and when that is durable. With `early`, a task that awaits this goes on before
        anybody can read these writes or hear of them, itself included: in the next turn of the loop they are there."""
        ...

    def delete(self, key: str, expected: Revision, encode: Encode) -> asyncio.Future[Record]:
        """Removes on the same terms; `encode` makes the last state that watchers see."""
        ...

    def watch(self, prefix: str, since: Revision) -> Watcher:
        """Changes under the prefix after `since`. Raises Compacted if they are no longer remembered."""
        ...

    def count_with(self, count: Count) -> Callable[[], None]:
        """From now on `count` hears of every change, at the latest when it is durable; at once of what is there already, each key as
        if it were new. Call what is returned to let it hear of all that is decided."""
        ...

    async def close(self) -> None:
        """Makes what was accepted durable, then stops."""
        ...
