"""Backups that are damaged: every changed bit is noticed, what is damaged is named, and what is sound can be had."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest

from sandpool.controlplane.store.backup import TITLE, VERSION, backup, encode, parse, read_backup
from sandpool.controlplane.store.errors import DamagedBackup, ForeignFile, StoreError, UnknownFormat
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.model.metadata import NO_REVISION, Revision
from support.storage.damage import filled, flip, key, value, write_format_1

RECORDS = tuple(
    Record(f"core/pods/default/{name}", Revision(n), Revision(n), b'{"n":%d}' % n) for n, name in enumerate("abc", 1)
)
SMALL = b"".join(encode(RECORDS, Revision(3)))


def pieces() -> list[bytes]:
    """The title, the three records, the list of keys, the end, and the checksum of all."""
    return list(encode(RECORDS, Revision(3)))


def test_a_sound_one() -> None:
    found = parse(SMALL)
    assert (tuple(found.records), found.problems, found.lost) == (RECORDS, [], [])


@pytest.mark.parametrize("records", [(), RECORDS])
def test_every_flipped_bit_is_noticed_and_costs_at_most_one_object(records: tuple[Record, ...]) -> None:
    whole = b"".join(encode(records, Revision(3)))
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        found = parse(bytes(data))
        assert found.problems, f"bit {bit} went unnoticed"
        assert set(found.records) <= set(records)
        assert len(found.records) >= len(records) - 1
        missing = [record.key for record in records if record not in found.records]
        assert found.lost == missing


def test_every_length_of_a_cut_file_is_noticed() -> None:
    for length in range(len(SMALL)):
        found = parse(SMALL[:length])
        assert found.problems
        assert set(found.records) <= set(RECORDS)


@pytest.mark.parametrize("garbage", [b"\0", b"\n", SMALL, bytes(5000)])
def test_what_follows_after_the_end_is_noticed(garbage: bytes) -> None:
    found = parse(SMALL + garbage)
    assert any(f"{len(garbage)} bytes follow" in problem for problem in found.problems)
    assert tuple(found.records) == RECORDS


@pytest.mark.parametrize("order", [[0, 2, 1, 3, 4, 5, 6], [0, 1, 1, 2, 3, 4, 5, 6], [0, 1, 3, 4, 5, 6]])
@pytest.mark.parametrize("resealed", [False, True])
def test_swapped_doubled_and_missing_records_are_noticed(order: list[int], resealed: bool) -> None:
    """Also by somebody who makes the checksum of the whole file anew."""
    parts = pieces()
    data = b"".join(parts[n] for n in order)
    if resealed:
        data = data[:-32] + hashlib.sha256(data[:-32]).digest()
    found = parse(data)
    assert found.problems
    assert set(found.records) <= set(RECORDS)


def test_random_damage_never_gives_another_object() -> None:
    chosen = random.Random(4)
    for _ in range(2000):
        data = bytearray(SMALL)
        for _ in range(chosen.randint(1, 8)):
            start = chosen.randrange(len(data))
            data[start : start + chosen.randint(0, 40)] = chosen.randbytes(chosen.randint(0, 40))
        found = parse(bytes(data))
        assert found.problems or bytes(data) == SMALL
        assert set(found.records) <= set(RECORDS)


# Files.


async def a_backup(tmp_path: Path) -> Path:
    store = await filled(tmp_path / "store.db")
    backup(tmp_path / "store.db", tmp_path / "copy")
    await store.close()
    return tmp_path / "copy"


async def test_a_damaged_file_names_the_object_and_the_place(tmp_path: Path) -> None:
    file = await a_backup(tmp_path)
    place = file.read_bytes().index(b'"at":"4"')
    flip(file, 8 * place)
    with pytest.raises(DamagedBackup) as caught:
        read_backup(file)
    for words in (str(file), f"record 3 ({key(3)}) at byte", "38 objects in it are sound", "--salvage"):
        assert words in str(caught.value)
    found = read_backup(file, salvaging=True)
    assert found.left_out == (key(3),)
    assert (len(found.records), found.whole, found.sealed) == (38, False, True)


async def test_what_is_no_backup(tmp_path: Path) -> None:
    for content, error in ((b"", ForeignFile), (b"sandpool-backup 2", ForeignFile), (b"x" * 500, ForeignFile)):
        (tmp_path / "file").write_bytes(content)
        for salvaging in (False, True):
            with pytest.raises(error, match="not a backup"):
                read_backup(tmp_path / "file", salvaging)
    with pytest.raises(StoreError, match="is not a file"):
        read_backup(tmp_path)
    with pytest.raises(StoreError, match="no backup at"):
        read_backup(tmp_path / "absent")
    os.truncate(tmp_path / "file", 1 << 40)
    with pytest.raises(StoreError, match="larger than any backup"):
        read_backup(tmp_path / "file", salvaging=True)


async def test_a_newer_version_is_named(tmp_path: Path) -> None:
    file = await a_backup(tmp_path)
    data = TITLE % (VERSION + 1) + file.read_bytes()[len(TITLE % VERSION) : -32]
    file.write_bytes(data + hashlib.sha256(data).digest())
    for content in (file.read_bytes(), TITLE % (VERSION + 1) + b"whatever that will be"):
        file.write_bytes(content)
        for salvaging in (False, True):
            with pytest.raises(UnknownFormat, match=f"version {VERSION + 1}.*up to version {VERSION}"):
                read_backup(file, salvaging)


async def test_a_backup_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that stores something else is noticed while there is still something to make a backup of."""
    from sandpool.controlplane.store import backup as module

    store = await filled(tmp_path / "store.db")
    sync = module.sync_file  # type: ignore[attr-defined]

    def lying_disk(path: Path) -> None:
        sync(path)
        flip(path, 8 * 200)

    monkeypatch.setattr(module, "sync_file", lying_disk)
    with pytest.raises(DamagedBackup):
        backup(tmp_path / "store.db", tmp_path / "copy")
    await store.close()
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob("*partial*"))


async def test_a_damaged_store_is_not_backed_up(tmp_path: Path) -> None:
    await (await filled(tmp_path / "store.db")).close()
    flip(tmp_path / "store.db", 8 * (tmp_path / "store.db").read_bytes().index(b'"at":"4"'))
    with pytest.raises(StoreError, match=key(3)):
        backup(tmp_path / "store.db", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_backing_up_a_store_at_rest_leaves_nothing_behind(tmp_path: Path) -> None:
    await (await filled(tmp_path / "store.db")).close()
    backup(tmp_path / "store.db", tmp_path / "copy")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy", "store.db", "store.db-mark"]


def an_old_backup(path: Path) -> None:
    rows = [(n + 1, key(n), 0, n + 1, 0, value(Revision(n + 1))) for n in range(100)]
    write_format_1(path, rows)


def test_an_old_backup_is_read_and_says_that_it_carries_no_checksums(tmp_path: Path) -> None:
    an_old_backup(tmp_path / "old")
    found = read_backup(tmp_path / "old")
    assert (len(found.records), found.sealed, found.whole) == (100, False, True)
    assert found.records[3].value == value(Revision(4))


def test_an_old_backup_that_is_damaged(tmp_path: Path) -> None:
    """Cut off anywhere: refused in words, and what can be read of it can be had."""
    an_old_backup(tmp_path / "old")
    content = (tmp_path / "old").read_bytes()
    had = 0
    for length in (99, 100, 5000, 16384, 40000, len(content) - 16384, len(content) - 1):
        (tmp_path / "cut").write_bytes(content[:length])
        with pytest.raises(StoreError, match="cut"):
            read_backup(tmp_path / "cut")
        if length > 100:
            found = read_backup(tmp_path / "cut", salvaging=True)
            assert not found.whole
            had = max(had, len(found.records))
    assert had > 30


def test_an_old_backup_with_garbage_in_a_value(tmp_path: Path) -> None:
    write_format_1(tmp_path / "old", [(1, key(1), 0, 1, 0, value(Revision(1))), (2, key(2), 0, 2, 0, b"garbage")])

    def check(record: Record) -> str:
        return "" if record.value.startswith(b"{") else "its value is no JSON"

    with pytest.raises(DamagedBackup, match=f"{key(2)}: revision 2: its value is no JSON"):
        read_backup(tmp_path / "old", check=check)
    found = read_backup(tmp_path / "old", salvaging=True, check=check)
    assert (found.left_out, [record.key for record in found.records]) == ((key(2),), [key(1)])


async def test_a_restore_of_a_store_goes_on_counting(tmp_path: Path) -> None:
    file = await a_backup(tmp_path)
    store = await Store.open(SqliteLog(tmp_path / "other.db"))
    await store.put("core/pods/default/extra", NO_REVISION, value)
    done = await store.replace_all(read_backup(file).records, lambda record, revision: record.value)
    assert (done.written, done.removed, store.count("")) == (39, 1, 39)
    await store.close()
