"""Reading a whole store, and trusting nothing of it: the first thing that does not fit ends it.

What exactly is damaged, and what could be had in spite of it, is the business of salvage.py: it takes longer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from sandpool.controlplane.store.checksums import EMPTY, census_of, counted, floor_checksum
from sandpool.controlplane.store.errors import DamagedStore
from sandpool.controlplane.store.log import Loaded, Row, replay
from sandpool.controlplane.store.rows import Check, read_rows
from sandpool.controlplane.store.sqlite_file import SCHEMA
from sandpool.model.metadata import Revision

UNSOUND = (sqlite3.DatabaseError, DamagedStore, TypeError, ValueError, OverflowError)
"""What reading may raise where a file is damaged; see `in_the_way` for what only looks like it. BadRow is a DamagedStore."""


def load(connection: sqlite3.Connection, sealed: bool, window: int, check: Check) -> Loaded:
    """Checks the file and replays it: one pass over the rows, the newest `window` of them as history. Raises one of UNSOUND."""
    connection.execute("BEGIN")  # all of it as of one moment, whoever writes meanwhile
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
    return f"there are {found} objects where the newest row tells of {expected}"


def check_structure(connection: sqlite3.Connection, sealed: bool) -> None:
    """The pages, the index, and the tables' own descriptions."""
    verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if verdict != "ok":
        raise DamagedStore(" ".join(str(verdict).replace("*** in database main ***", "").split()))
    if sealed:
        found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        if found != SCHEMA:
            raise DamagedStore("the description of its tables is damaged")


def read_floor(connection: sqlite3.Connection, sealed: bool) -> tuple[Revision, str]:
    """The floor, and which store this is."""
    if not sealed:
        return Revision(connection.execute("SELECT revision FROM floor").fetchone()[0]), ""
    found = connection.execute("SELECT revision, identity, checksum FROM floor").fetchone()
    if found is None or floor_checksum(found[0], found[1]) != found[2]:
        raise DamagedStore("the row that holds the compaction floor is damaged")
    return Revision(found[0]), str(found[1])
