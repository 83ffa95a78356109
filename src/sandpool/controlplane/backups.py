"""Backup and restore of a data directory, whether its cluster runs or not.

A backup is read directly from the store's file, even while another process writes to it. A restore must happen in the process that writes: a
running cluster gets the name of a file in its data directory and restores it; otherwise this process does, under the lock.
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

from sandpool.controlplane.damage import keep_volumes, object_problem, open_options
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
    """Writes a backup and returns the number of its objects."""
    if not directory.store.exists():
        raise DataDirError(f"{directory.root} holds no cluster's data: nothing to back up. Name it with --data-dir.")
    directory.check_format()
    try:
        return backup(directory.store, file, object_problem)
    except OSError as error:
        raise StoreError(
            f"{file} cannot be written: {error.strerror}. Choose another place, or create the directory first."
        ) from error


class Restored(msgspec.Struct, frozen=True):
    """What a restore did."""

    written: int
    removed: int
    left_out: tuple[str, ...] = ()  # damaged objects of the backup, where their names are known
    whole: bool = True  # False: the backup is damaged, so nothing was removed
    sealed: bool = True  # False: an old backup without checksums
    kept: str = ""  # the directory that keeps the files of a damaged store


async def restore_offline(directory: DataDir, file: Path, salvaging: bool = False) -> Restored:
    """Restores into a data directory whose cluster does not run. Creates a missing directory, and replaces a damaged store."""
    contents = read(file, salvaging)
    directory.prepare()
    lock = directory.take()
    try:
        try:
            store = await Store.open(SqliteLog(directory.store, options=open_options(directory)))
        except Damaged as damage:
            return await _make_anew(directory, damage.diagnosis, contents)
        try:
            return await replace(store, contents)
        finally:
            await store.close()
    finally:
        lock.release()


async def _make_anew(directory: DataDir, diagnosis: Diagnosis, contents: Contents) -> Restored:
    """Prepares a new store with the backup's objects beside the damaged one, then replaces the damaged one."""
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
    """The objects of a backup, all verified."""
    return read_backup(file, salvaging, object_problem)


async def replace(store: Store, contents: Contents) -> Restored:
    """Makes the store hold exactly these objects, in one durable commit. A damaged backup removes nothing from the store: an object
    that is missing in it may be one that could not be read."""
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
def stage_backup(directory: DataDir, file: Path, salvaging: bool = False) -> Iterator[str]:
    """Checks a backup, copies it to where the running cluster reads it, and removes the copy afterwards. Yields the copy's name."""
    read(file, salvaging)  # errors are raised here, so that they show the path that the user gave
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
            raise BadRequest("name: expected the name of a backup that was staged by `sandpool restore`")
        path = self._directory.incoming / name
        if path.is_symlink() or not path.is_file():
            raise BadRequest(f"name: no backup {name} was staged; use `sandpool restore`")
        try:
            contents = await asyncio.to_thread(read, path, salvaging)  # a large file must not block the loop
            done: dict[str, Any] = msgspec.to_builtins(await replace(self._store, contents))
            return done
        except StoreError as error:
            raise BadRequest(str(error)) from error
