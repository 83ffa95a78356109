"""The real file: restarts, compaction, checkpoints, and files that must not be opened."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from sandpool.controlplane.store.errors import DamagedStore, ForeignFile, StoreError, StoreFailed, UnknownFormat
from sandpool.controlplane.store.record import Compacted
from sandpool.controlplane.store.sqlite_file import FORMAT
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds
from sandpool.model.metadata import NO_REVISION, Revision

KEY = "core/pods/default/one"


def encode(revision: Revision) -> bytes:
    return b"at %d" % revision


async def rewrite(store: Store, key: str, times: int) -> None:
    record = store.newest(key)
    revision = record.revision if record else NO_REVISION
    for _ in range(times):
        revision = (await store.put(key, revision, encode)).revision


def row_count(path: Path, which: str = "true") -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(f"SELECT count(*) FROM log WHERE {which}").fetchone()[0])
    finally:
        connection.close()


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await Store.open(SqliteLog(path))
    await asyncio.gather(*(store.put(f"core/pods/default/{n:03}", NO_REVISION, encode) for n in range(200)))
    await store.delete("core/pods/default/007", Revision(8), encode)
    before = store.scan("")
    await store.close()
    store = await Store.open(SqliteLog(path))
    assert store.scan("") == before
    changes = await store.watch("core/pods/", Revision(199)).changes()
    assert [(c.record.revision, c.deleted) for c in changes] == [(200, False), (201, True)]
    assert changes[1].previous is not None
    assert store.scan("", at=Revision(200)).records[7].key == "core/pods/default/007"
    again = await store.put("core/pods/default/007", NO_REVISION, encode)
    assert again.revision == 202
    await store.close()


async def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await Store.open(SqliteLog(path))
    await store.put(KEY, NO_REVISION, encode)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600, "store.db-mark": 0o600}
    await store.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["store.db", "store.db-mark"]


async def test_a_revision_is_never_given_twice_whatever_is_compacted(tmp_path: Path) -> None:
    path, bounds = tmp_path / "store.db", Bounds(window=1)
    store = await Store.open(SqliteLog(path, bounds))
    await rewrite(store, KEY, 100)
    await store.delete(KEY, Revision(100), encode)
    await store.close()
    assert row_count(path) < 70
    for expected in (102, 104):  # the last row is a deletion each time
        store = await Store.open(SqliteLog(path, bounds))
        assert (await store.put(KEY, NO_REVISION, encode)).revision == expected
        await store.delete(KEY, Revision(expected), encode)
        await store.close()


async def test_compaction_keeps_the_window_and_the_living(tmp_path: Path) -> None:
    path, bounds = tmp_path / "store.db", Bounds(window=40)
    store = await Store.open(SqliteLog(path, bounds))
    await store.put("core/nodes/old", NO_REVISION, encode)
    for n in range(20):
        await store.put(f"core/pods/gone/{n}", NO_REVISION, encode)
        await store.delete(f"core/pods/gone/{n}", Revision(2 * n + 2), encode)
    await rewrite(store, KEY, 200)
    newest = store.revision
    await store.close()
    assert row_count(path) < 40 + 64 + 3
    assert row_count(path, "deleted") == 0
    store = await Store.open(SqliteLog(path, bounds))
    assert store.revision == newest
    assert store.get("core/nodes/old") is not None
    assert store.count("") == 2
    assert newest - 40 - 64 <= store.oldest <= newest - 40 + 1
    assert len(await store.watch("", store.oldest).changes()) == newest - store.oldest
    with pytest.raises(Compacted):
        store.watch("", Revision(store.oldest - 1))
    with pytest.raises(Compacted):
        store.scan("core/pods/", at=Revision(60))
    assert store.scan("core/pods/", at=store.oldest).records[0].revision == store.oldest
    await store.put("core/pods/gone/1", NO_REVISION, encode)  # its deletion is compacted away
    await store.close()


async def test_a_lull_compacts_what_no_commit_should_carry(tmp_path: Path) -> None:
    path, window = tmp_path / "store.db", 1000
    store = await Store.open(SqliteLog(path, Bounds(window=window)))
    newest = window + 200  # a quarter of a window would ride on commits
    await rewrite(store, KEY, newest)
    for _ in range(500):
        if row_count(path) < window + 64:
            break
        await asyncio.sleep(0.02)
    assert window <= row_count(path) < window + 64
    await store.close()
    store = await Store.open(SqliteLog(path, Bounds(window=window)))
    assert store.revision == newest
    await store.put(KEY, Revision(newest), encode)
    await store.close()


async def test_the_write_ahead_log_stays_bounded_under_steady_writes(tmp_path: Path) -> None:
    """Commit follows commit without a pause, so no checkpoint beside them ever finishes."""
    path, bounds = tmp_path / "store.db", Bounds(writes=20, checkpoint=256 * 1024, wal=512 * 1024)
    store = await Store.open(SqliteLog(path, bounds))
    writes = [store.put(f"core/pods/default/{n}", NO_REVISION, lambda r: bytes(4000)) for n in range(4000)]
    await asyncio.gather(*writes)
    largest = (tmp_path / "store.db-wal").stat().st_size  # it starts anew from its beginning and never shrinks
    await store.close()
    assert largest < 4 * 1024 * 1024 < 4000 * 4000


async def test_what_queued_behind_a_failure_is_not_written(tmp_path: Path) -> None:
    """Another process holds the file for longer than we wait; what was decided meanwhile is lost with what failed."""
    path = tmp_path / "store.db"
    log = SqliteLog(path, Bounds(writes=1, wait=0.05))
    store = await Store.open(log)
    await store.put(KEY, NO_REVISION, encode)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    futures = [store.put(KEY, Revision(n), encode) for n in range(1, 4)]
    await asyncio.sleep(0)
    while not log.writer.queue.empty():  # until the first of them has been taken and waits for the file
        await asyncio.sleep(0)
    futures += [store.put(KEY, Revision(n), encode) for n in range(4, 6)]
    with pytest.raises(StoreFailed, match="write again"):
        await futures[0]
    holder.execute("ROLLBACK")
    holder.close()
    assert all(isinstance(future.exception(), StoreFailed) for future in futures)
    again = await store.put(KEY, Revision(1), encode)
    assert again.revision == 7
    await store.close()
    store = await Store.open(SqliteLog(path))
    assert store.scan("").records == (again,)
    assert [c.record.revision for c in await store.watch("", NO_REVISION).changes()] == [1, 7]
    await store.close()


async def test_another_writer_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await Store.open(SqliteLog(path))
    intruder = await Store.open(SqliteLog(path))
    await intruder.put(KEY, NO_REVISION, lambda revision: b"intruder")
    await intruder.close()
    with pytest.raises(StoreFailed, match="another process"):
        await store.put("core/pods/default/two", NO_REVISION, encode)
    with pytest.raises(StoreFailed, match="another process"):
        store.put("core/pods/default/three", NO_REVISION, encode)
    assert store.count("") == 0
    await store.close()
    store = await Store.open(SqliteLog(path))
    assert [record.value for record in store.scan("").records] == [b"intruder"]
    await store.close()


async def a_file(path: Path) -> None:
    store = await Store.open(SqliteLog(path))
    await rewrite(store, KEY, 20)
    await store.close()


async def refused(path: Path, error: type[StoreError], match: str) -> None:
    """It is not opened, and not a byte of it, nor the directory, is changed."""
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(error, match=match) as caught:
        await Store.open(SqliteLog(path))
    assert str(path) in str(caught.value)
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before


@pytest.mark.parametrize("content", [b"", b"short", b"a text of some length that nobody would take for SQLite" * 4])
async def test_what_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    await refused(path, ForeignFile, "not a sandpool store")


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE log (id)")
    connection.close()
    await refused(path, ForeignFile, "another program")


async def test_a_newer_format_is_named_with_ours(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await a_file(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    await refused(path, UnknownFormat, f"format {FORMAT + 1}.* up to format {FORMAT}")


async def test_a_truncated_file_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await a_file(path)
    path.write_bytes(path.read_bytes()[: 16_384 + 5000])
    await refused(path, DamagedStore, "Restore a backup")


async def test_a_log_with_a_hole_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await a_file(path)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM log WHERE id = 10")
    connection.commit()
    connection.close()
    await refused(path, DamagedStore, "core/pods/default/one: revision 10: its row is gone")


async def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        await Store.open(SqliteLog(tmp_path / "absent" / "store.db"))


@pytest.mark.parametrize("writes", [1, 2, 3, 64, 65, 256, 257, 600])
async def test_rows_of_a_commit_are_few_statements(tmp_path: Path, writes: int) -> None:
    """Every statement gives the interpreter's lock away and waits for it: up to 256 rows are one, which commits itself."""
    log = SqliteLog(tmp_path / "store.db", Bounds(checkpoint=1 << 30, wal=1 << 31))
    store = await Store.open(log)
    said: list[str] = []
    log.connection.set_trace_callback(lambda text: said.append(text.split(" ", 1)[0]))
    await asyncio.gather(*(store.put(f"core/pods/default/{n:03}", NO_REVISION, encode) for n in range(writes)))
    log.connection.set_trace_callback(None)
    before = store.scan("")
    await store.close()
    if writes <= 64:  # more are handed over in parts
        assert said == ["INSERT"]
    assert said.count("INSERT") <= -(-writes // 64)
    store = await Store.open(SqliteLog(tmp_path / "store.db"))
    assert store.scan("") == before
    assert len(before.records) == writes
    await store.close()
