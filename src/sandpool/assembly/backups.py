"""Backup and restore of a data directory, whether its cluster runs or not.

A backup is read straight from the store's file, which other processes may be writing. A restore must happen where the writes
happen: in the running process, which is handed a file that was laid down in its data directory; else here, under the lock.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from sandpool.assembly.data_dir import DataDir, DataDirError
from sandpool.kube.errors import BadRequest
from sandpool.local.store.backup import backup, read_backup
from sandpool.local.store.errors import StoreError
from sandpool.local.store.record import Record
from sandpool.local.store.sqlite_log import SqliteLog
from sandpool.local.store.store import Store
from sandpool.model.metadata import Revision

RESTORE_PATH = "/sandpool/restore"


def write_backup(directory: DataDir, file: Path) -> int:
    """Writes a backup and answers how many objects it holds."""
    if not directory.store.exists():
        raise DataDirError(f"{directory.root} holds no cluster's data: nothing to back up. Name it with --data-dir.")
    directory.check_format()
    try:
        backup(directory.store, file)
    except OSError as error:
        raise StoreError(
            f"{file} cannot be written: {error.strerror}. Choose another place, or make the folder first."
        ) from error
    return sum(1 for _ in read_backup(file))


async def restore_offline(directory: DataDir, file: Path) -> dict[str, int]:
    """Restores into a data directory whose cluster does not run; one that does not exist yet is made."""
    records = tuple(read_backup(file))
    directory.prepare()
    lock = directory.take()
    try:
        store = await Store.open(SqliteLog(directory.store))
        try:
            return await replace(store, records)
        finally:
            await store.close()
    finally:
        lock.release()


async def replace(store: Store, records: tuple[Record, ...]) -> dict[str, int]:
    """Makes the store hold exactly these objects, in one durable step."""
    done = await store.replace_all(records, _at_revision)
    return {"written": done.written, "removed": done.removed}


def _at_revision(record: Record, revision: Revision) -> bytes:
    document = msgspec.json.decode(record.value)
    document["metadata"]["resourceVersion"] = str(revision)
    return msgspec.json.encode(document)


@contextmanager
def lay_down(directory: DataDir, file: Path) -> Iterator[str]:
    """Copies a backup to where the running cluster reads it, checked, and takes it away again. Yields its name there."""
    for _ in read_backup(file):
        break  # a file that cannot be read is refused here, with the name that the user gave it
    directory.incoming.mkdir(mode=0o700, exist_ok=True)
    name = secrets.token_hex(8)
    target = directory.incoming / name
    try:
        shutil.copyfile(file, target)
        target.chmod(0o600)
        yield name
    finally:
        target.unlink(missing_ok=True)


class Restorer:
    """The running cluster's side of a restore."""

    def __init__(self, store: Store, directory: DataDir) -> None:
        self._store = store
        self._directory = directory

    async def restore(self, request: Mapping[str, Any]) -> dict[str, int]:
        name = request.get("name")
        if not isinstance(name, str) or len(name) != 16 or not all(digit in "0123456789abcdef" for digit in name):
            raise BadRequest("name: expected the name of a backup that was laid down by `sandpool restore`")
        path = self._directory.incoming / name
        if path.is_symlink() or not path.is_file():
            raise BadRequest(f"name: no backup {name} was laid down; use `sandpool restore`")
        try:
            records = await asyncio.to_thread(lambda: tuple(read_backup(path)))  # others are served meanwhile
            return await replace(self._store, records)
        except StoreError as error:
            raise BadRequest(str(error)) from error
