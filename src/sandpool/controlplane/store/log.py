"""Where changes become durable: the port between the store and its disk (or its memory twin).

A unit is what one caller wrote: its entries become durable together or not at all. `append` never waits. Later, on the
loop's thread and in the order of the appends, the sink hears `committed` for units that are durable; or `failed`, once,
which means that every unit not yet committed is lost, those still on their way included.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sandpool.controlplane.store.errors import DamagedStore, StoreFailed
from sandpool.controlplane.store.record import Change, Record
from sandpool.model.metadata import NO_REVISION, Revision


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One row of the log. `prior` is the revision of the key's last row, a deletion included; 0 if it has none."""

    change: Change
    prior: Revision


Unit = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """What one durable transaction held."""

    units: int
    writes: int
    seconds: float
    floor: Revision  # rows superseded up to here are gone


@dataclass(slots=True)
class Loaded:
    """The state that a log holds when it is opened."""

    live: dict[str, Record] = field(default_factory=dict)
    tombstones: OrderedDict[str, Revision] = field(default_factory=OrderedDict)
    tail: list[Change] = field(default_factory=list)  # all changes after `since`
    since: Revision = NO_REVISION
    floor: Revision = NO_REVISION
    revision: Revision = NO_REVISION
    identity: str = ""  # which store this is; empty where nothing is kept
    census: int = 0  # of the live records, see checksums.py


class Sink(Protocol):
    def committed(self, commit: Commit) -> None: ...

    def failed(self, error: StoreFailed) -> None: ...


class Log(Protocol):
    async def open(self, sink: Sink) -> Loaded: ...

    def append(self, unit: Unit) -> None:
        """Hands a unit over. Raises StoreFailed if this log takes no more writes."""
        ...

    async def close(self) -> None:
        """Makes what was appended durable, then lets go of the file."""
        ...


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row as it comes back from the disk."""

    record: Record
    prior: Revision
    deleted: bool


def replay(rows: Iterable[Row], floor: Revision, since: Revision) -> Loaded:
    """The state after all rows, which come in the order of their revisions; raises DamagedStore where a row does not
    follow the row that it names as its predecessor (below the floor predecessors may be compacted away)."""
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
