"""Reads a whole store: strictly (`load`), or as much as can be salvaged from a damaged one (`salvage`).

`load` trusts nothing: it raises at the first thing that is wrong. `salvage` is slow and only for stores that `load` refused: it reads rows
from both ends of the table and around whatever cannot be read. A row whose checksum matches is trusted wherever it was found. The index
of the keys is stored apart from the rows, so it often has the names of lost rows.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sandpool.controlplane.store.damage import Loss
from sandpool.controlplane.store.errors import DamagedStore
from sandpool.controlplane.store.log import Loaded, Row, replay
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.rows import (
    EMPTY,
    BadRow,
    Check,
    census_of,
    counted,
    floor_checksum,
    legible,
    read_rows,
    select,
    verified,
)
from sandpool.controlplane.store.sqlite_file import SCHEMA
from sandpool.model.metadata import NO_REVISION, Revision

UNSOUND = (sqlite3.DatabaseError, DamagedStore, TypeError, ValueError, OverflowError)
"""Errors raised while reading a damaged file, BadRow included. `is_not_damage` finds those with another cause."""
_PROBES: Final = 5_000  # queries into unreadable ranges before the rest is given up
_INDEX: Final = (
    "SELECT id, CAST(key AS BLOB) FROM log INDEXED BY sqlite_autoindex_log_1 ORDER BY key {0}, prev_revision {0}"
)
_FARTHEST: Final = (1 << 63) - 1


def load(connection: sqlite3.Connection, sealed: bool, window: int, check: Check) -> Loaded:
    """Checks the file and replays it in one pass over the rows; the newest `window` revisions become history. Raises one of UNSOUND."""
    connection.execute("BEGIN")  # a consistent snapshot, even if another process writes meanwhile
    try:
        check_structure(connection, sealed)
        floor, identity = read_floor(connection, sealed)
        newest = connection.execute("SELECT max(id) FROM log").fetchone()[0] or 0
        last = [EMPTY]
        rows = _remembering(read_rows(connection, sealed, check), last)
        loaded = replay(rows, floor, Revision(max(floor, newest - window)))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    loaded.identity = identity
    loaded.census = census_of(loaded.live.values())
    if sealed and loaded.census != last[0]:
        raise DamagedStore(wrong_census(last[0], len(loaded.live)))
    return loaded


def _remembering(rows: Iterable[tuple[Row, int]], last: list[int]) -> Iterator[Row]:
    for row, census in rows:
        last[0] = census
        yield row


def wrong_census(census: int, found: int) -> str:
    expected = counted(census)
    if expected == found:
        return f"there are {found} objects as there should be, but some of them are older states"
    return f"there are {found} objects where the newest row counts {expected}"


def check_structure(connection: sqlite3.Connection, sealed: bool) -> None:
    """Checks the pages, the index, and the schema of the tables."""
    verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if verdict != "ok":
        raise DamagedStore(" ".join(str(verdict).replace("*** in database main ***", "").split()))
    if sealed:
        found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        if found != SCHEMA:
            raise DamagedStore("the description of its tables is damaged")


def read_floor(connection: sqlite3.Connection, sealed: bool) -> tuple[Revision, str]:
    """The floor, and the identity of the store."""
    if not sealed:
        return Revision(connection.execute("SELECT revision FROM floor").fetchone()[0]), ""
    found = connection.execute("SELECT revision, identity, checksum FROM floor").fetchone()
    if found is None or floor_checksum(found[0], found[1]) != found[2]:
        raise DamagedStore("the row that holds the compaction floor is damaged")
    return Revision(found[0]), str(found[1])


@dataclass(slots=True)
class Salvaged:
    """The sound rows by revision, and what is known about the others."""

    rows: dict[int, Row] = field(default_factory=dict)
    censuses: dict[int, int] = field(default_factory=dict)
    bad: dict[int, BadRow] = field(default_factory=dict)
    holes: list[tuple[int, int]] = field(default_factory=list)  # exclusive bounds of unreadable ranges
    names: dict[int, str] = field(default_factory=dict)  # keys by revision, from the index
    facts: list[str] = field(default_factory=list)
    floor: Revision = NO_REVISION
    identity: str = ""


def salvage(connection: sqlite3.Connection, sealed: bool, check: Check, ceiling: Revision = NO_REVISION) -> Salvaged:
    """Reads what can be read. Never raises for damage. `ceiling` is the highest revision known to have rows."""
    found = Salvaged()
    try:
        check_structure(connection, sealed)
    except UNSOUND as error:
        found.facts.append(str(error))
    try:
        found.floor, found.identity = read_floor(connection, sealed)
    except UNSOUND as error:
        if str(error) not in found.facts:
            found.facts.append(str(error))
    for order in ("", "DESC"):
        with suppress(*UNSOUND):
            for revision, name in connection.execute(_INDEX.format(order)):
                found.names.setdefault(revision, legible(name))
    keys: dict[bytes, str] = {}
    for raw in _all(connection, sealed, max(ceiling, *found.names, 1), found.holes):
        try:
            found.rows[raw[0]] = verified(raw, sealed, check, keys)
            found.censuses[raw[0]] = raw[6]
        except BadRow as error:
            found.bad[raw[0]] = error
    return found


def _all(
    connection: sqlite3.Connection, sealed: bool, ceiling: int, holes: list[tuple[int, int]]
) -> Iterator[tuple[Any, ...]]:
    """All rows that can be read; ranges that cannot are added to `holes`. Bisects, breadth first, so that the widest gaps are tried first."""
    forward = select(sealed, "id > ? AND id < ?", "id")
    backward = select(sealed, "id > ? AND id < ?", "id DESC")
    yield from _until_error(connection, forward, ceiling, _FARTHEST)[0]
    gaps = deque([(0, ceiling + 1)])
    for _ in range(_PROBES):
        if not gaps:
            return
        low, high = gaps.popleft()
        rows, whole = _until_error(connection, forward, low, high)
        yield from rows
        if whole:
            continue
        low = rows[-1][0] if rows else low
        rows, whole = _until_error(connection, backward, low, high)
        yield from rows
        high = rows[-1][0] if rows else high
        if whole or high - low < 2:
            continue
        if high - low == 2:  # a single row
            holes.append((low, high))
            continue
        middle = (low + high) // 2
        gaps.extend(((low, middle + 1), (middle, high)))  # bounds are exclusive: `middle` is in the first
    holes.extend(gaps)


def _until_error(connection: sqlite3.Connection, query: str, low: int, high: int) -> tuple[list[tuple[Any, ...]], bool]:
    rows: list[tuple[Any, ...]] = []
    try:
        rows.extend(connection.execute(query, (low, high)))  # keeps what came before an error
    except (sqlite3.DatabaseError, OverflowError):
        return rows, False
    return rows, True


def live_of(rows: Iterable[Row]) -> dict[str, Record]:
    """The newest sound state of each object."""
    live: dict[str, Record] = {}
    for row in sorted(rows, key=lambda row: row.record.revision):
        live.pop(row.record.key, None)
        if not row.deleted:
            live[row.record.key] = row.record
    return live


def losses_of(found: Salvaged) -> tuple[Loss, ...]:
    """The rows that are known to have existed and cannot be read."""
    why = {revision: error.why for revision, error in found.bad.items()}
    keys = {revision: error.key for revision, error in found.bad.items()}
    for revision, name in found.names.items():
        if revision not in found.rows:
            why.setdefault(revision, "its row cannot be read")
            keys[revision] = name  # the index is more trustworthy than a row whose checksum is wrong
    for revision, row in found.rows.items():
        prior = row.prior
        if prior > found.floor and prior not in found.rows and revision > found.floor:
            why.setdefault(prior, "its row is gone")
            keys[prior] = row.record.key
    newest = _newest_of_keys(found.rows.values())
    return tuple(_loss(revision, keys[revision], reason, newest, found) for revision, reason in why.items())


def _newest_of_keys(rows: Iterable[Row]) -> dict[str, Row]:
    newest: dict[str, Row] = {}
    for row in rows:
        other = newest.get(row.record.key)
        if other is None or other.record.revision < row.record.revision:
            newest[row.record.key] = row
    return newest


def _loss(revision: int, key: str, why: str, newest: dict[str, Row], found: Salvaged) -> Loss:
    row = newest.get(key)
    if row is None:
        return Loss(key, Revision(revision), why)
    superseded = row.record.revision > revision
    instead = NO_REVISION if superseded or row.deleted else row.record.revision
    return Loss(key, Revision(revision), why, instead, superseded)


def holes_of(found: Salvaged) -> list[str]:
    """Messages for the ranges that cannot be read; adjacent ranges are joined."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(found.holes):
        if joined and low < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return [_hole(low + 1, high - 1) for low, high in joined]


def _hole(first: int, last: int) -> str:
    return (
        f"nothing between revisions {first} and {last} can be read"
        if first < last
        else f"revision {first} cannot be read"
    )


def census_fact(found: Salvaged, live: dict[str, Record]) -> str:
    """A message if the census of the newest sound row differs from what was found; else empty."""
    if not found.rows:
        return ""
    census = found.censuses[max(found.rows)]
    return "" if census == census_of(live.values()) else wrong_census(census, len(live))
