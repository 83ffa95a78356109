"""The port between the store and its disk: a log that makes changes durable. Also a log in memory that keeps nothing.

A unit is one caller's write: its entries become durable together or not at all. `append` never waits. Later, on the loop's thread and in
the order of the appends, the log calls its sink: `committed` for units that are durable, or `failed` once, which means that every unit not
yet committed is lost, including those in flight.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sandpool.controlplane.store.errors import DamagedStore, StoreFailed
from sandpool.controlplane.store.record import Change, Record
from sandpool.model.metadata import NO_REVISION, Revision


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One row of the log. `prior` is the revision of the key's previous row, which may be a deletion; 0 if there is none."""

    change: Change
    prior: Revision


Unit = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """One durable transaction: its size, its duration, and the compaction floor after it."""

    units: int
    writes: int
    seconds: float
    floor: Revision  # rows that were superseded up to this revision are compacted


@dataclass(slots=True)
class Loaded:
    """The content of a log when it is opened."""

    live: dict[str, Record] = field(default_factory=dict)
    tombstones: OrderedDict[str, Revision] = field(default_factory=OrderedDict)
    tail: list[Change] = field(default_factory=list)  # all changes after `since`
    since: Revision = NO_REVISION
    floor: Revision = NO_REVISION
    revision: Revision = NO_REVISION
    identity: str = ""  # a random id of this store; empty for a log in memory
    census: int = 0  # checksum of the set of live records, see rows.py


class Sink(Protocol):
    """Receives the outcome of appended units, on the loop's thread."""

    def committed(self, commit: Commit) -> None: ...

    def failed(self, error: StoreFailed) -> None: ...


class Log(Protocol):
    """Makes units durable, in order. See the module."""

    async def open(self, sink: Sink) -> Loaded: ...

    def append(self, unit: Unit) -> None:
        """Queues a unit. Raises StoreFailed if this log takes no more writes."""
        ...

    async def close(self) -> None:
        """Makes what was appended durable, then closes the file."""
        ...


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row read from disk."""

    record: Record
    prior: Revision
    deleted: bool


def replay(rows: Iterable[Row], floor: Revision, since: Revision) -> Loaded:
    """The state after all rows, given in the order of their revisions. Raises DamagedStore if the previous row of a key is not
    the one that the row names as its predecessor (below the floor, predecessors may be compacted)."""
    loaded = Loaded(since=since, floor=floor, revision=floor)
    live, tombstones = loaded.live, loaded.tombstones
    for row in rows:
        record, key = row.record, row.record.key
        previous = live.get(key)
        found = previous.revision if previous else tombstones.get(key, NO_REVISION)
        if found != row.prior and (found or (record.revision > floor and row.prior > floor)):
            raise DamagedStore(
                f"revision {record.revision} of {key} follows revision {row.prior}, but the log holds {found or 'none'}"
            )
        tombstones.pop(key, None)
        if row.deleted:
            live.pop(key, None)
            tombstones[key] = record.revision
        else:
            live[key] = record
        if record.revision > since:
            loaded.tail.append(Change(record, previous, row.deleted))
        loaded.revision = max(floor, record.revision)
    return loaded


class MemoryLog:
    """A Log in memory: units count as durable in the next turn of the event loop."""

    def __init__(self, window: int = 20_000) -> None:
        self._window = window
        self._sink: Sink | None = None
        self._units: list[Unit] = []

    async def open(self, sink: Sink) -> Loaded:
        self._sink = sink
        return Loaded()

    def append(self, unit: Unit) -> None:
        if not self._units:
            asyncio.get_running_loop().call_soon(self.commit)
        self._units.append(unit)

    def commit(self) -> None:
        units, self._units = self._units, []
        if units and self._sink is not None:
            newest = units[-1][-1].change.record.revision
            floor = Revision(max(NO_REVISION, newest - self._window))
            self._sink.committed(Commit(len(units), sum(map(len, units)), 0.0, floor))

    async def close(self) -> None:
        self.commit()
