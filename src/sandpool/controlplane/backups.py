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

from sandpool.controlplane.damage import keep_volumes, store_terms, unlike_an_object
from sandpool.controlplane.data_dir import DataDir, DataDirError
from sandpool.controlplane.store.backup import Contents, backup, read_backup
from sandpool.controlplane.store.damage import Damaged, Diagnosis
from sandpool.controlplane.store.errors import StoreError
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.replacement import discard_draft, draft_of, install, set_aside
from sandpool.controlplane.store.sqlite_file import write_store
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.errors import BadRequest
from sandpool.model.metadata import Revision

RESTORE_PATH = "/sandpool/restore"


def write_backup(directory: DataDir, file: Path) -> int:
    """Writes a backup and answers how many objects it holds."""
    if not directory.store.exists():
        raise DataDirError(f"{directory.root} holds no cluster's data: nothing to back up. Name it with --data-dir.")
    directory.check_format()
    try:
        return backup(directory.store, file, unlike_an_object)
    except OSError as error:
        raise StoreError(
            f"{file} cannot be written: {error.strerror}. Choose another place, or make the folder first."
        ) from error


class Restored(msgspec.Struct, frozen=True):
    """What a restore did."""

    written: int
    removed: int
    left_out: tuple[str, ...] = ()  # objects of the backup that are damaged, as far as they are known
    whole: bool = True  # False: the backup is damaged, so nothing was removed
    sealed: bool = True  # False: an old backup without checksums
    kept: str = ""  # where the files of a store that was damaged are now


async def restore_offline(directory: DataDir, file: Path, salvaging: bool = False) -> Restored:
    """Restores into a data directory whose cluster does not run; one that does not exist yet is made, one that is damaged made anew."""
    contents = read(file, salvaging)
    directory.prepare()
    lock = directory.take()
    try:
        try:
            store = await Store.open(SqliteLog(directory.store, terms=store_terms(directory)))
        except Damaged as damage:
            return await _make_anew(directory, damage.diagnosis, contents)
        try:
            return await replace(store, contents)
        finally:
            await store.close()
    finally:
        lock.release()


async def _make_anew(directory: DataDir, diagnosis: Diagnosis, contents: Contents) -> Restored:
    """Prepares a store with the backup's objects beside the damaged one, then lets it take that one's place."""
    draft = draft_of(directory.store)
    discard_draft(directory.store)
    write_store(draft, (), floor=diagnosis.newest)
    store = await Store.open(SqliteLog(draft))
    try:
        done = await replace(store, contents)
    finally:
        await store.close()
    kept = set_aside(diagnosis)
    keep_volumes(directory, contents.records, kept)
    install(directory.store)
    return msgspec.structs.replace(done, kept=str(kept))


def read(file: Path, salvaging: bool) -> Contents:
    """What a backup holds, all of it checked."""
    return read_backup(file, salvaging, unlike_an_object)


async def replace(store: Store, contents: Contents) -> Restored:
    """Makes the store hold exactly these objects, in one durable step. A backup that is not whole removes nothing: what it does
    not hold may be what is damaged in it."""
    records = {record.key: record for record in contents.records}
    if not contents.whole:
        records = {record.key: record for record in store.scan("").records} | records
    done = await store.replace_all(records.values(), _at_revision)
    return Restored(done.written, done.removed, contents.left_out, contents.whole, contents.sealed)


def _at_revision(record: Record, revision: Revision) -> bytes:
    document = msgspec.json.decode(record.value)
    document["metadata"]["resourceVersion"] = str(revision)
    return msgspec.json.encode(document)


@contextmanager
def lay_down(directory: DataDir, file: Path, salvaging: bool = False) -> Iterator[str]:
    """Copies a backup to where the running cluster reads it, checked, and takes it away again. Yields its name there."""
    read(file, salvaging)  # a file that is refused is refused here, with the name that the user gave it
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

    async def restore(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name, salvaging = request.get("name"), request.get("salvage") is True
        if not isinstance(name, str) or len(name) != 16 or not all(digit in "0123456789abcdef" for digit in name):
            raise BadRequest("name: expected the name of a backup that was laid down by `sandpool restore`")
        path = self._directory.incoming / name
        if path.is_symlink() or not path.is_file():
            raise BadRequest(f"name: no backup {name} was laid down; use `sandpool restore`")
        try:
            contents = await asyncio.to_thread(read, path, salvaging)  # others are served meanwhile
            done: dict[str, Any] = msgspec.to_builtins(await replace(self._store, contents))
            return done
        except StoreError as error:
            raise BadRequest(str(error)) from error
