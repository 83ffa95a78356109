"""The SQLite file of a store: creates it, recognises it and opens it.

A new file is completed under another name and then renamed, so a file at the store's path is either a whole store or foreign.
The first 100 bytes show which; they are read before SQLite may touch the file.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandpool.controlplane.store.errors import DamagedStore, ForeignFile, StoreError, UnknownFormat
from sandpool.controlplane.store.files import create_private, remove, rename_durably, side_files, sync_directory
from sandpool.controlplane.store.log import Entry, Row
from sandpool.controlplane.store.marker import Mark, write_mark
from sandpool.controlplane.store.record import Change, Record
from sandpool.controlplane.store.rows import COLUMNS, EMPTY, Columns, census_after, floor_checksum, row_columns
from sandpool.model.metadata import NO_REVISION, Revision

APPLICATION = 0x53504C31  # "SPL1"
FORMAT = 2
PAGE = 16_384  # bytes; several objects fit into one page: a third fewer bytes than with pages of 4096, at the same cost per write

SCHEMA = {
    # The row id is the revision. Compaction never removes the newest row, so its id is also the high-water mark.
    "log": "CREATE TABLE log (id INTEGER PRIMARY KEY, key TEXT NOT NULL, prev_revision INTEGER NOT NULL,"
    " created INTEGER NOT NULL, deleted INTEGER NOT NULL, value BLOB NOT NULL, census INTEGER NOT NULL,"
    " checksum INTEGER NOT NULL, UNIQUE (key, prev_revision))",
    "floor": "CREATE TABLE floor (only INTEGER PRIMARY KEY CHECK (only = 0), revision INTEGER NOT NULL,"
    " identity TEXT NOT NULL, checksum INTEGER NOT NULL)",
}
_STAMPS = (f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {FORMAT}")


def create(path: Path) -> None:
    """Creates an empty store, with its marker, at an unused path."""
    write_store(path, ())


def write_store(path: Path, rows: Iterable[Row], floor: Revision = NO_REVISION) -> None:
    """Creates a store with these rows, given in the order of their revisions. It appears complete or not at all. Its marker is written
    first, so a store without a marker has lost it."""
    draft = path.with_name(path.name + ".new")
    for leftover in side_files(draft):
        remove(leftover)
    create_private(draft)
    try:
        mark = _fill(draft, rows, floor)
        write_mark(path, mark)
        rename_durably(draft, path)
    except BaseException:  # a full disk needs the space back
        for leftover in (draft, *side_files(draft)):
            remove(leftover)
        raise


def _fill(draft: Path, rows: Iterable[Row], floor: Revision) -> Mark:
    """Writes schema and rows into the draft. Returns the content of its marker."""
    identity, newest = secrets.token_hex(8), floor
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("BEGIN")
        for statement in (*SCHEMA.values(), *_STAMPS):
            connection.execute(statement)
        connection.execute("INSERT INTO floor VALUES (0, ?, ?, ?)", (floor, identity, floor_checksum(floor, identity)))
        for columns in _columns(rows):
            newest = max(newest, columns[0])
            connection.execute(f"INSERT INTO log ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", columns)  # noqa: S608
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    return Mark(identity, newest)


def _columns(rows: Iterable[Row]) -> Iterator[Columns]:
    live: dict[str, Record] = {}
    census = EMPTY
    for row in rows:
        key = row.record.key
        change = Change(row.record, live.get(key), row.deleted)
        census = census_after(census, change)
        if row.deleted:
            live.pop(key, None)
        else:
            live[key] = row.record
        yield row_columns(Entry(change, row.prior), census)


def check_header(path: Path) -> int:
    """The format of a store. Raises if the file is not a store of a format that this program knows. Changes nothing."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise ForeignFile(f"{path} is not a sandpool store: move it away, or choose another data directory")
    if int.from_bytes(header[68:72], "big") != APPLICATION:
        raise ForeignFile(f"{path} is a database of another program: move it away, or choose another data directory")
    found = int.from_bytes(header[60:64], "big")
    if found > FORMAT:
        raise UnknownFormat(
            f"{path} has format {found}, this program knows up to format {FORMAT}:"
            " start the version of sandpool that wrote it, or a newer one"
        )
    if found < 1:
        raise DamagedStore(f"{path} says that its format is {found}: restore a backup")
    return found


def check_length(path: Path) -> None:
    """Raises DamagedStore if a database without a writer is shorter than its header says: SQLite would read the rest as zeros."""
    with path.open("rb") as file:
        header = file.read(100)
        size = os.fstat(file.fileno()).st_size
    expected = int.from_bytes(header[28:32], "big") * (int.from_bytes(header[16:18], "big") or 1)
    if size < expected:
        raise DamagedStore(f"the file is cut off: it has {size} bytes and says that it has {expected}")


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """A connection, for one thread at a time, that makes every commit durable and never checkpoints by itself."""
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def open_writer(path: Path, wait: float) -> sqlite3.Connection:
    """The writer's connection to a store that was verified."""
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(path, wait)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(
                f"{path} cannot be opened in WAL mode: its file system lacks shared memory (is it remote?)"
            )
        os.chmod(path, 0o600)
        # The directory entry of the write-ahead log must be durable before any commit in it counts as durable.
        connection.execute("SELECT 1 FROM floor").fetchone()
        sync_directory(path.parent)
    except sqlite3.DatabaseError as error:
        if connection is not None:
            connection.close()
        raise unusable(path, error) from error
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, whatever state the files are in. A writing connection would copy the readable part of a damaged
    write-ahead log into the database and remove the rest."""
    how = "mode=ro" if side_files(path)[0].exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, check_same_thread=False)


_ELSEWHERE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_FULL,
    }
)
"""SQLite errors whose cause is not damage, but for example a full disk."""


def is_not_damage(error: Exception) -> bool:
    """Whether an error has a cause other than damage."""
    code = getattr(error, "sqlite_errorcode", None)
    shared_memory = code is not None and code >> 8 in _SHARED_MEMORY and code & 0xFF == sqlite3.SQLITE_IOERR
    return code is not None and (code & 0xFF in _ELSEWHERE or shared_memory)


_SHARED_MEMORY = frozenset(
    code >> 8
    for code in (
        sqlite3.SQLITE_IOERR_SHMOPEN,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_SHMLOCK,
        sqlite3.SQLITE_IOERR_SHMMAP,
    )
)


def unusable(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} cannot be opened ({error}): check the room on its disk and who may write there")
