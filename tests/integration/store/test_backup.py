"""Backups of a store that is being written, and making a store equal to one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from sandpool.controlplane.store.backup import backup, read_backup
from sandpool.controlplane.store.errors import ForeignFile, StoreError
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.model.metadata import NO_REVISION, Revision


def encode(revision: Revision) -> bytes:
    return b"at %d" % revision


def encode_again(record: Record, revision: Revision) -> bytes:
    return record.value.partition(b" in")[0] + b" in %d" % revision


async def copy_elsewhere(source: Path, target: Path) -> None:
    """By another process, as the command does."""
    code = "import sys, pathlib; from sandpool.controlplane.store.backup import backup; backup(*map(pathlib.Path, sys.argv[1:]))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(source), str(target))
    assert await process.wait() == 0


async def test_a_backup_is_one_moment_of_a_busy_store(tmp_path: Path) -> None:
    """Two keys are always written together, so every consistent copy holds the same number in both."""
    path = tmp_path / "store.db"
    store = await Store.open(SqliteLog(path))
    stopping = asyncio.Event()
    written = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            pair = [Record(f"core/pods/default/{n}", NO_REVISION, NO_REVISION, b"%d" % number) for n in "ab"]
            await store.replace_all(pair, lambda record, revision: record.value)
            written.set()

    writing = asyncio.create_task(write())
    for n in range(3):
        written.clear()
        await written.wait()  # a slow disk may not have taken the next pair while a process started
        await copy_elsewhere(path, tmp_path / f"backup-{n}")
    stopping.set()
    await writing
    await store.close()
    numbers = []
    for n in range(3):
        first, second = read_backup(tmp_path / f"backup-{n}").records
        assert first.value == second.value
        numbers.append(int(first.value))
    assert numbers == sorted(set(numbers))


async def test_restoring_goes_forward_and_is_watched(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy"
    store = await Store.open(SqliteLog(path))
    for name in ("kept", "changed", "deleted"):
        await store.put(f"core/pods/default/{name}", NO_REVISION, encode)
    backup(path, copy)
    await store.put("core/pods/default/changed", Revision(2), encode)
    await store.delete("core/pods/default/deleted", Revision(3), encode)
    await store.put("core/pods/default/extra", NO_REVISION, encode)
    watcher = store.watch("core/pods/", store.revision)
    result = await store.replace_all(read_backup(copy).records, encode_again)
    assert (result.revision, result.written, result.removed) == (9, 2, 1)
    assert [(c.record.key[18:], c.deleted, c.record.value) for c in await watcher.changes()] == [
        ("changed", False, b"at 2 in 7"),
        ("deleted", False, b"at 3 in 8"),
        ("extra", True, b"at 6 in 9"),
    ]
    await store.close()
    store = await Store.open(SqliteLog(path))
    assert {r.key[18:]: r.revision for r in store.scan("").records} == {"kept": 1, "changed": 7, "deleted": 8}
    await store.close()


async def test_only_the_owner_may_read_a_backup(tmp_path: Path) -> None:
    store = await Store.open(SqliteLog(tmp_path / "store.db"))
    await store.put("core/pods/default/one", NO_REVISION, encode)
    assert backup(tmp_path / "store.db", tmp_path / "copy") == 1
    await store.close()
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


async def test_what_cannot_be_backed_up_or_read(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a store" * 20)
    with pytest.raises(StoreError, match="no store at"):
        backup(tmp_path / "absent", tmp_path / "copy")
    with pytest.raises(ForeignFile):
        backup(tmp_path / "text", tmp_path / "copy")
    await (await Store.open(SqliteLog(tmp_path / "store.db"))).close()
    with pytest.raises(StoreError, match="already exists"):
        backup(tmp_path / "store.db", tmp_path / "text")
    with pytest.raises(ForeignFile):
        read_backup(tmp_path / "text")
    with pytest.raises(StoreError, match="no backup"):
        read_backup(tmp_path / "absent")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["store.db", "store.db-mark", "text"]


def test_reading_a_backup_needs_no_write_access(tmp_path: Path) -> None:
    """Also not beside it: a backup may lie on a read-only medium."""
    code = (
        "import asyncio, pathlib, sys; from sandpool.controlplane.store.sqlite_log import SqliteLog\n"
        "from sandpool.controlplane.store.store import Store; from sandpool.controlplane.store.backup import backup\n"
        "async def main(folder):\n"
        "    store = await Store.open(SqliteLog(folder / 'store.db'))\n"
        "    await store.put('core/pods/default/one', 0, lambda r: b'x'); await store.close()\n"
        "    backup(folder / 'store.db', folder / 'copy')\n"
        "asyncio.run(main(pathlib.Path(sys.argv[1])))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    before = sorted(tmp_path.iterdir())
    (tmp_path / "copy").chmod(0o400)
    assert [record.value for record in read_backup(tmp_path / "copy").records] == [b"x"]
    assert sorted(tmp_path.iterdir()) == before
