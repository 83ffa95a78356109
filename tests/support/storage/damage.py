"""Damage to the files of a store, as disks and people do it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from sandpool.controlplane.store.opening import OpenOptions
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds
from sandpool.model.metadata import NO_REVISION, Revision

FORMAT_1 = (
    "CREATE TABLE log (id INTEGER PRIMARY KEY, key TEXT NOT NULL, prev_revision INTEGER NOT NULL,"
    " created INTEGER NOT NULL, deleted INTEGER NOT NULL, value BLOB NOT NULL, UNIQUE (key, prev_revision))",
    "CREATE TABLE floor (only INTEGER PRIMARY KEY CHECK (only = 0), revision INTEGER NOT NULL)",
    "INSERT INTO floor VALUES (0, 0)",
    "PRAGMA application_id = 1397771313",
    "PRAGMA user_version = 1",
)
"""What the first version of the store wrote."""


def value(revision: Revision) -> bytes:
    return b'{"at":"%d","pad":"%b"}' % (revision, b"x" * 300)


def key(number: int) -> str:
    return f"core/pods/default/pod-{number:03}"


async def filled(path: Path, objects: int = 40, bounds: Bounds = Bounds()) -> Store:
    """An open store whose objects were written twice, but for the first ten; the tenth is deleted."""
    store = await Store.open(SqliteLog(path, bounds))
    for number in range(objects):
        await store.put(key(number), NO_REVISION, value)
    for number in range(10, objects):
        await store.put(key(number), Revision(number + 1), value)
    await store.delete(key(9), Revision(10), value)
    return store


def states(store: Store) -> dict[str, Record]:
    return {record.key: record for record in store.scan("").records}


async def opened(path: Path, accept_loss: bool = False) -> tuple[Revision, dict[str, Record]]:
    """The revision and the objects that a store starts with."""
    store = await Store.open(SqliteLog(path, options=OpenOptions(accept_loss=accept_loss)))
    try:
        return store.revision, states(store)
    finally:
        await store.close()


def as_if_killed(path: Path, folder: Path) -> Path:
    """The files of an open store as a killed process leaves them: copied elsewhere."""
    folder.mkdir()
    for name in (path.name, f"{path.name}-wal", f"{path.name}-mark"):
        if (path.parent / name).exists():
            shutil.copyfile(path.parent / name, folder / name)
    return folder / path.name


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the one that SQLite makes anew whenever it likes."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def execute(path: Path, statement: str, *parameters: object) -> None:
    """Changes a store behind its back."""
    connection = sqlite3.connect(path)
    try:
        connection.execute(statement, parameters)
        connection.commit()
    finally:
        connection.close()


def write_format_1(path: Path, rows: list[tuple[int, str, int, int, int, bytes]]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA page_size = 16384")
        connection.execute("PRAGMA journal_mode = WAL")
        for statement in FORMAT_1:
            connection.execute(statement)
        connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", rows)
    finally:
        connection.close()
