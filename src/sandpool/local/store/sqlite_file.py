"""The file: how it is made, recognised, opened and read.

A new file is made complete under another name and then renamed, so a file at its path is either one of ours or foreign.
What it is stands in its first 100 bytes, which are read before SQLite may touch anything.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from sandpool.local.store.errors import DamagedStore, ForeignFile, StoreError, UnknownFormat
from sandpool.local.store.log import Loaded, Row, replay
from sandpool.local.store.record import Record
from sandpool.model.metadata import NO_REVISION, Revision

APPLICATION = 0x53504C31  # "SPL1"
FORMAT = 1
PAGE = 16_384  # several objects fit in one: a third less to write than with pages of 4096, and one write costs the same

_SCHEMA = (
    # The row id is the revision. Compaction never removes the newest row, so its id is also the high-water mark.
    "CREATE TABLE log (id INTEGER PRIMARY KEY, key TEXT NOT NULL, prev_revision INTEGER NOT NULL,"
    " created INTEGER NOT NULL, deleted INTEGER NOT NULL, value BLOB NOT NULL, UNIQUE (key, prev_revision))",
    "CREATE TABLE floor (only INTEGER PRIMARY KEY CHECK (only = 0), revision INTEGER NOT NULL)",
    "INSERT INTO floor VALUES (0, 0)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable: those created, renamed and removed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_durably(source: Path, target: Path) -> None:
    descriptor = os.open(source, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(source, target)
    sync_directory(target.parent)


def create_private(path: Path) -> None:
    """An empty file that only its owner may read. SQLite gives its side files the same mode."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def create(path: Path) -> None:
    """Makes an empty store at a path where nothing is."""
    draft = path.with_name(path.name + ".new")
    for leftover in (f"{draft}-journal", f"{draft}-wal", f"{draft}-shm"):
        Path(leftover).unlink(missing_ok=True)
    create_private(draft)
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("BEGIN")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    rename_durably(draft, path)


def check_header(path: Path) -> None:
    """Raises unless the file is a store of a format that this program knows. Changes nothing."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise ForeignFile(f"{path} is not a sandpool store: move it away, or choose another data directory")
    if int.from_bytes(header[68:72], "big") != APPLICATION:
        raise ForeignFile(f"{path} is a database of another program: move it away, or choose another data directory")
    check_format(path, int.from_bytes(header[60:64], "big"))


def check_format(path: Path, found: int) -> None:
    if found > FORMAT:
        raise UnknownFormat(
            f"{path} has format {found}, this program knows up to format {FORMAT}:"
            " start the version of sandpool that wrote it, or a newer one"
        )
    if found < 1:
        raise DamagedStore(f"{path} says that its format is {found}: restore a backup")


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """A connection for one thread at a time that makes every commit durable and never checkpoints by itself."""
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def open_store(path: Path, wait: float) -> sqlite3.Connection:
    """The writer's connection to a store that exists, or is made now."""
    connection: sqlite3.Connection | None = None
    try:
        if not path.exists():
            create(path)
        check_header(path)
        connection = connect(path, wait)
        check_format(path, connection.execute("PRAGMA user_version").fetchone()[0])
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(
                f"{path} cannot be opened in WAL mode: its file system lacks shared memory (is it remote?)"
            )
        os.chmod(path, 0o600)
        # The write-ahead log's name must be durable before anything in it counts as durable.
        connection.execute("SELECT 1 FROM floor").fetchone()
        sync_directory(path.parent)
    except sqlite3.DatabaseError as error:
        if connection is not None:
            connection.close()
        raise damaged(path, error) from error
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection


def damaged(path: Path, error: Exception) -> StoreError:
    if isinstance(error, sqlite3.OperationalError):
        return StoreError(f"{path} cannot be opened ({error}): check the room on its disk and who may write there")
    return DamagedStore(f"{path} is damaged ({error}): restore a backup, or move the file away to start empty")


def load(path: Path, connection: sqlite3.Connection, window: int) -> Loaded:
    """Checks the file and replays it: one pass over the rows, the newest `window` of them as history."""
    try:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise DamagedStore(f"{path} is damaged ({verdict}): restore a backup, or move the file away to start empty")
        floor, newest = connection.execute("SELECT revision, (SELECT max(id) FROM log) FROM floor").fetchone()
        since = max(floor, (newest or 0) - window)
        return replay(read_rows(connection), Revision(floor), Revision(since))
    except (sqlite3.DatabaseError, TypeError) as error:
        raise damaged(path, error) from error
    except DamagedStore as error:
        raise damaged(path, error) from error


def read_rows(connection: sqlite3.Connection) -> Iterator[Row]:
    keys: dict[str, str] = {}  # the rows of one key share one string
    cursor = connection.execute("SELECT id, key, prev_revision, created, deleted, value FROM log ORDER BY id")
    for revision, key, prior, created, deleted, value in cursor:
        record = Record(keys.setdefault(key, key), Revision(revision), Revision(created or NO_REVISION), value)
        yield Row(record, Revision(prior), bool(deleted))
