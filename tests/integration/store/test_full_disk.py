"""A disk without room, for real: writes fail and say so, reads go on, and writing goes on once there is room."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandpool.controlplane.store.errors import StoreError, StoreFailed
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.node.disk.space import Ballast
from support.node.small_disk import MIB
from support.node.small_disk import fill as fill_disk
from support.node.small_disk import small_disk as small_disk_of
from support.storage.damage import contents, write_format_1

KEY = "core/pods/default/one"


def encode(revision: Revision) -> bytes:
    return b"%d" % revision + bytes(60_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("this root may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def fill(store: Store, name: str) -> None:
    for count in range(200):
        await store.put(f"core/pods/{name}/{count}", NO_REVISION, encode)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
async def test_a_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    store = await Store.open(SqliteLog(small_disk / "store.db"))
    with pytest.raises(StoreFailed, match=r"free space on the disk|write again"):
        await fill(store, "first")
    count = store.count("core/pods/first/")
    assert count > 3
    before = store.revision
    burst = [store.put(f"core/pods/burst/{n}", NO_REVISION, encode) for n in range(20)]
    failed = await asyncio.gather(*burst, return_exceptions=True)
    assert all(isinstance(error, StoreFailed) for error in failed)
    assert (store.revision, store.count("core/pods/first/")) == (before, count)
    assert store.newest("core/pods/burst/0") is None
    ballast.unlink()
    made = await store.put(KEY, NO_REVISION, encode)
    assert made.revision > before + 20  # revisions of failed writes are not given again
    await store.close()
    store = await Store.open(SqliteLog(small_disk / "store.db"))
    assert store.revision == made.revision
    assert store.count("") == count + 1
    await store.close()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
async def test_an_upgrade_without_room_changes_nothing(small_disk: Path) -> None:
    path = small_disk / "store.db"
    write_format_1(path, [(n, f"core/pods/default/{n}", 0, n, 0, encode(Revision(n))) for n in range(1, 11)])
    (small_disk / "ballast").write_bytes(bytes(1_000_000))
    before = contents(small_disk)
    with pytest.raises(StoreError, match="free as much space on its disk"):
        await Store.open(SqliteLog(path))
    assert contents(small_disk) == before
    path.write_bytes(before["store.db"][:300_000])
    damaged = contents(small_disk)
    with pytest.raises(StoreError, match="is damaged"):
        await Store.open(SqliteLog(path))
    assert contents(small_disk) == damaged


LIMITED = """
import asyncio, pathlib, resource, signal, sys
from sandpool.node.disk.space import Ballast
from sandpool.controlplane.store.errors import StoreFailed
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds

async def main(path):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, resource.RLIM_INFINITY))
    store = await Store.open(SqliteLog(path))
    count = 0
    try:
        while count < 200:
            await store.put(f"core/pods/default/{count}", 0, lambda r: bytes(60_000))
            count += 1
    except StoreFailed as error:
        assert "write again" in str(error) or "make room" in str(error), error
    assert 3 < count < 200 and store.count("core/pods/") == count, count
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.put("core/pods/default/after", 0, lambda r: bytes(60_000))
    await store.close()
    print(count)

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


async def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    store = await Store.open(SqliteLog(path))
    assert store.count("") == int(done.stdout) + 1
    await store.close()


LARGE = 900_000


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
async def test_everything_can_be_deleted_on_a_full_disk(tmp_path: Path) -> None:
    """A reserve that is a third of what is deleted is enough: what a delete supersedes makes room for the next one."""
    with small_disk_of(tmp_path, 96 * MIB) as disk:
        room = 2 * MIB
        reserve = Ballast(disk / "reserve", 4 * room)
        assert reserve.hold()
        bounds = Bounds(room=room, checkpoint=room // 2)
        async with opened(disk / "store.db", bounds) as store:
            made = [await store.put(f"core/pods/default/{n}", NO_REVISION, large) for n in range(30)]
            fill_disk(disk / "hog", leave=0)
            failures = 0
            for record in made:
                while store.get(record.key) is not None:
                    try:
                        await store.delete(record.key, record.revision, large)
                    except StoreFailed:
                        reserve.release(room)
                        failures += 1
                        assert failures < 10, "the disk stays full, and so deletes fail for ever"
            newest = store.revision
        async with opened(disk / "store.db", bounds) as store:
            assert (store.revision, store.count("")) == (newest, 0)


async def test_history_is_given_up_while_the_disk_is_full_and_kept_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    log = SqliteLog(path, Bounds(window=200))
    store = await Store.open(log)

    async def write(count: int) -> int:
        for _ in range(count):
            current = store.get(KEY)
            await store.put(KEY, NO_REVISION if current is None else current.revision, encode)
        return rows(path)

    assert await write(150) == 150
    log.room_is_short(True)
    assert await write(10) <= 2
    log.room_is_short(False)
    assert await write(100) >= 100
    await store.close()


@contextlib.asynccontextmanager
async def opened(path: Path, bounds: Bounds) -> AsyncIterator[Store]:
    store = await Store.open(SqliteLog(path, bounds))
    try:
        yield store
    finally:
        await store.close()


def rows(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as reader:
        return int(reader.execute("SELECT count(*) FROM log").fetchone()[0])


def large(revision: Revision) -> bytes:
    return b"%d" % revision + bytes(LARGE)
