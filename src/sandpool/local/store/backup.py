"""Backups: a live store copied by any process, and read back.

A backup is itself a store file, whole and consistent as of one revision, in a single file that can be moved around.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from sandpool.local.store.errors import StoreError
from sandpool.local.store.record import Record
from sandpool.local.store.sqlite_file import (
    check_format,
    check_header,
    create_private,
    damaged,
    load,
    rename_durably,
)


def backup(source: Path, target: Path) -> None:
    """Copies the store at `source`, which may be in use, to `target`. The target appears complete or not at all."""
    if not source.exists():
        raise StoreError(f"there is no store at {source}")
    if target.exists():
        raise StoreError(f"{target} already exists: choose another name for the backup")
    check_header(source)
    draft = target.with_name(f"{target.name}.partial-{os.getpid()}")
    create_private(draft)
    try:
        _copy(source, draft)
        rename_durably(draft, target)
    except sqlite3.OperationalError as error:  # of either file: SQLite does not say which
        raise StoreError(
            f"{source} cannot be copied to {target} ({error}): check the room on the disk and who may write there"
        ) from error
    except sqlite3.DatabaseError as error:
        raise damaged(source, error) from error
    finally:
        for leftover in (draft, Path(f"{draft}-journal"), Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            leftover.unlink(missing_ok=True)


def _copy(source: Path, draft: Path) -> None:
    reader = sqlite3.connect(source, isolation_level=None)
    try:
        writer = sqlite3.connect(draft, isolation_level=None)
        try:
            reader.backup(writer)  # all pages in one read transaction: one revision, whatever is written meanwhile
            writer.execute("PRAGMA journal_mode = DELETE")  # one file, readable without side files
        finally:
            writer.close()
    finally:
        reader.close()


def read_backup(path: Path) -> Iterator[Record]:
    """The records that the backup holds, in the order of their keys. Raises before the first one if it is damaged."""
    if not path.exists():
        raise StoreError(f"there is no backup at {path}")
    check_header(path)
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        check_format(path, connection.execute("PRAGMA user_version").fetchone()[0])
        live = load(path, connection, 0).live
    except sqlite3.DatabaseError as error:
        raise damaged(path, error) from error
    finally:
        connection.close()
    for key in sorted(live):
        yield live[key]
