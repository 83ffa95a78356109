"""The values of the store: immutable records, changes, snapshots, and the two exceptions that callers expect, Stale and Compacted."""

from __future__ import annotations

import msgspec

from sandpool.model.metadata import Revision


class Record(msgspec.Struct, frozen=True, gc=False):
    """One state of one key. `value` is the object's JSON, with `revision` inside as its resourceVersion."""

    key: str
    revision: Revision
    created: Revision  # revision of the put that created this incarnation of the key
    value: bytes


class Change(msgspec.Struct, frozen=True, gc=False):
    """One entry of the log. For a delete, `record` is the last state, re-encoded with the revision of the deletion."""

    record: Record
    previous: Record | None  # None: the key was absent before
    deleted: bool = False


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """Records under a prefix, in key order, all as of one revision."""

    records: tuple[Record, ...]
    revision: Revision
    remaining: int = 0  # how many more keys follow beyond the limit


class Stale(Exception):
    """Compare-and-swap failed: `newest` is what the key holds instead (None: nothing)."""

    def __init__(self, key: str, newest: Record | None) -> None:
        super().__init__(key)
        self.key = key
        self.newest = newest


class Compacted(Exception):
    """The requested revision is older than the history that is kept."""

    def __init__(self, asked: Revision, oldest: Revision) -> None:
        super().__init__(f"revision {asked} is compacted, the oldest remembered is {oldest}")
        self.asked = asked
        self.oldest = oldest
