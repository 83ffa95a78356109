"""Damaged files: what is missing is named, nothing is changed, and a start without it happens only when it was asked for."""

from __future__ import annotations

import os
import random
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.controlplane.store import files
from sandpool.controlplane.store.damage import Damaged
from sandpool.controlplane.store.errors import StoreError, UnknownFormat
from sandpool.controlplane.store.opening import OpenOptions
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.sqlite_file import PAGE
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.model.metadata import NO_REVISION, Revision
from support.storage.damage import (
    as_if_killed,
    contents,
    execute,
    filled,
    flip,
    key,
    opened,
    states,
    value,
    write_format_1,
)

GARBAGE = b"\x00\xff garbage"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def place() -> Iterator[Path]:
    """Where hundreds of stores are made and opened: in memory, if there is such a place."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


async def closed(path: Path, objects: int = 40) -> dict[str, Record]:
    store = await filled(path, objects)
    before = states(store)
    await store.close()
    return before


async def refused(path: Path, *said: str) -> Damaged:
    """It is not opened, it says all that, and no file is changed."""
    before = contents(path.parent)
    with pytest.raises(Damaged) as caught:
        await opened(path)
    for words in (*said, str(path), "sandpool restore", "--accept-loss"):
        assert words in str(caught.value)
    assert contents(path.parent) == before
    return caught.value


async def test_garbage_in_a_value_is_named_and_only_that_object_is_lost(place: Path) -> None:
    path = place / "store.db"
    before = await closed(path)
    execute(path, "UPDATE log SET value = ? WHERE key = ?", GARBAGE, key(3))
    await refused(path, f"{key(3)}: revision 4: its checksum is wrong; nothing is left of it", "38 objects can be read")
    revision, found = await opened(path, accept_loss=True)
    assert found == {name: record for name, record in before.items() if name != key(3)}
    assert await opened(path) == (revision, found)  # and from now on it is sound


async def test_the_older_state_of_an_object_is_what_is_left(place: Path) -> None:
    path = place / "store.db"
    before = await closed(path)
    damaged = before[key(20)]
    execute(path, "UPDATE log SET value = ? WHERE id = ?", GARBAGE, damaged.revision)
    await refused(path, f"{key(20)}: revision {damaged.revision}", "its state at revision 21 is what is left")
    _, found = await opened(path, accept_loss=True)
    assert found.pop(key(20)).value == value(Revision(21))
    assert found == {name: record for name, record in before.items() if name != key(20)}


@pytest.mark.parametrize("column", ["key", "prev_revision", "created", "deleted", "value", "census", "checksum"])
@pytest.mark.parametrize("content", [77, 0.5, "text", GARBAGE])
async def test_no_column_may_change(place: Path, column: str, content: object) -> None:
    path = place / "store.db"
    await closed(path)
    execute(path, f"UPDATE log SET {column} = ? WHERE id = 5", content)
    await refused(path, "revision 5")


async def test_damage_that_only_costs_history_costs_no_object(place: Path) -> None:
    path = place / "store.db"
    before = await closed(path)
    execute(path, "UPDATE log SET value = ? WHERE id = 21", GARBAGE)
    await refused(path, "a newer revision of it is sound", "All 39 objects can be read")
    assert (await opened(path, accept_loss=True))[1] == before


async def test_a_row_that_vanished_is_noticed(place: Path) -> None:
    """Nothing refers to it: only the census tells."""
    path = place / "store.db"
    await closed(path)
    execute(path, "DELETE FROM log WHERE id = 4")
    await refused(path, "there are 38 objects where the newest row counts 39")


async def test_a_page_that_was_never_written_again_is_noticed(place: Path) -> None:
    """A disk that lost a write gives back what was there before, which is sound by itself."""
    path = place / "store.db"
    await closed(path)
    old = path.read_bytes()
    store = await Store.open(SqliteLog(path))
    for number in range(10, 40):
        record = store.get(key(number))
        assert record is not None
        await store.put(key(number), record.revision, value)
    await store.close()
    new = path.read_bytes()
    changed = [page for page in range(1, len(old) // PAGE) if old[page * PAGE :][:PAGE] != new[page * PAGE :][:PAGE]]
    assert changed
    for page in changed:
        path.write_bytes(new[: page * PAGE] + old[page * PAGE :][:PAGE] + new[(page + 1) * PAGE :])
        await refused(path)


async def test_what_is_kept_of_a_damaged_store(place: Path) -> None:
    path = place / "data" / "store.db"
    path.parent.mkdir()
    store = await filled(path)
    path = as_if_killed(path, place / "killed")
    await store.close()
    flip(path.with_name("store.db-wal"), 8 * 5000)
    before = contents(path.parent)
    newest = (await refused(path)).diagnosis.newest
    revision, _ = await opened(path, accept_loss=True)
    kept = path.with_name("damaged-1")
    files = contents(kept)
    report = files.pop("report.txt").decode()
    assert files == before
    assert "were acknowledged and cannot be found" in report
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept.iterdir()} == {0o600}
    assert revision == newest == 71  # none of the lost revisions is given again
    store = await Store.open(SqliteLog(path))
    assert (await store.put("core/pods/default/new", NO_REVISION, value)).revision == 72
    await store.close()


async def test_every_way_to_lose_the_write_ahead_log(place: Path) -> None:
    """Cut anywhere or gone: either nothing acknowledged is missing, or it is said how much."""
    path = place / "store.db"
    store = await filled(path)
    whole = as_if_killed(path, place / "whole")
    truth = states(store)
    await store.close()
    log = whole.with_name("store.db-wal").read_bytes()
    cuts = [None, 0, 31, 32, 33, *range(40, len(log), 80_021), len(log) - 1]
    for number, cut in enumerate(cuts):
        damaged = as_if_killed(whole, place / f"cut-{number}")
        damaged_log = damaged.with_name("store.db-wal")
        if cut is None:
            damaged_log.unlink()
        else:
            damaged_log.write_bytes(log[:cut])
        error = await refused(damaged, "store.db-wal is")
        assert [missing.last for missing in error.diagnosis.missing] == [71]
        _, found = await opened(damaged, accept_loss=True)
        assert found.keys() <= truth.keys() | {key(9)}
    assert await opened(whole) == (71, truth)


async def test_flipped_bits_in_the_write_ahead_log(place: Path) -> None:
    path = place / "store.db"
    store = await filled(path, objects=15)
    whole = as_if_killed(path, place / "whole")
    truth = (store.revision, states(store))
    await store.close()
    size = whole.with_name("store.db-wal").stat().st_size
    chosen = random.Random(5)
    missed = 0
    for number in range(60):
        damaged = as_if_killed(whole, place / f"flip-{number}")
        flip(damaged.with_name("store.db-wal"), chosen.randrange(8 * size))
        before = contents(damaged.parent)
        try:
            assert await opened(damaged) == truth  # bits that nobody reads: of a salt's copy, or of an index
            missed += 1
        except Damaged:
            assert contents(damaged.parent) == before
    assert missed < 10


async def test_flipped_bits_in_the_database(place: Path) -> None:
    """It starts as it was, or says what is wrong; and what it starts with in spite of that are states that there have been."""
    path = place / "store.db"
    before = (Revision(71), await closed(path))
    chosen = random.Random(6)
    pages = chosen.sample(range(8 * PAGE, 8 * path.stat().st_size), 150)
    for bit in [*range(0, 8 * 100, 5), *pages]:
        damaged = as_if_killed(path, place / f"bit-{bit}")
        flip(damaged, bit)
        try:
            assert await opened(damaged) == before
            continue
        except Damaged:
            pass
        except UnknownFormat:  # the bit is in the number of the format
            continue
        _, found = await opened(damaged, accept_loss=True)
        for name, record in found.items():
            assert record.value == value(record.revision)
            assert name in before[1] or name == key(9)


async def test_whole_pages_of_zeros(place: Path) -> None:
    path = place / "store.db"
    before = await closed(path, objects=400)
    content = path.read_bytes()
    lost: list[int] = []
    for page in range(1, len(content) // PAGE):
        damaged = as_if_killed(path, place / f"page-{page}")
        damaged.write_bytes(content[: page * PAGE] + bytes(PAGE) + content[(page + 1) * PAGE :])
        await refused(damaged)
        _, found = await opened(damaged, accept_loss=True)
        assert all(record.value == value(record.revision) for record in found.values())
        lost.append(len(before.keys() - found.keys()))
    assert sorted(lost)[len(lost) // 2] < 100, lost  # most pages hold a few of the rows


async def test_the_database_is_gone(place: Path) -> None:
    path = place / "store.db"
    await closed(path)
    path.unlink()
    await refused(path, "revisions 1 to 71 were acknowledged and cannot be found: the file is missing", "No object")
    assert await opened(path, accept_loss=True) == (71, {})


async def test_the_database_is_gone_and_only_other_things_tell_of_it(place: Path) -> None:
    path = place / "store.db"
    with pytest.raises(Damaged, match="the file is missing, though access, node/volumes is there"):
        await Store.open(SqliteLog(path, options=OpenOptions(traces=("access", "node/volumes"))))
    assert list(place.iterdir()) == []


async def test_a_first_start_that_was_cut_short_is_no_damage(place: Path) -> None:
    path = place / "store.db"
    await (await Store.open(SqliteLog(path))).close()
    path.unlink()  # the marker is made before the store
    assert await opened(path) == (0, {})


async def test_the_marker_is_gone_or_damaged_or_of_another_store(place: Path) -> None:
    path, other = place / "store.db", place / "other.db"
    before = await closed(path)
    await closed(other)
    mark = place / "store.db-mark"
    content = mark.read_bytes()
    mark.unlink()
    await refused(path, "store.db-mark is missing")
    mark.write_bytes(GARBAGE)
    await refused(path, "store.db-mark is damaged")
    mark.write_bytes((place / "other.db-mark").read_bytes())
    await refused(path, "store.db-mark belongs to another store")
    assert await opened(path, accept_loss=True) == (71, before)
    assert content != mark.read_bytes()


async def test_an_older_copy_of_the_database_is_noticed(place: Path) -> None:
    path = place / "store.db"
    before = await closed(path)
    content = path.read_bytes()
    store = await Store.open(SqliteLog(path))
    await store.put("core/pods/default/new", NO_REVISION, value)
    await store.close()
    path.write_bytes(content)
    await refused(path, "revision 72 was acknowledged and cannot be found", "replaced by an older copy")
    assert await opened(path, accept_loss=True) == (72, before)


async def test_a_replacement_that_is_cut_short_anywhere_is_finished(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write-ahead log of the damaged store must never be applied to the new one, nor be missing before that is there."""
    path = place / "store.db"
    store = await filled(path)
    whole = as_if_killed(path, place / "whole")
    await store.close()
    log = whole.with_name("store.db-wal")
    log.write_bytes(log.read_bytes()[:-20_000])
    expected = await opened(as_if_killed(whole, place / "expected"), accept_loss=True)
    for number in range(100):
        damaged = as_if_killed(whole, place / f"cut-{number}")
        with monkeypatch.context() as patch:
            failing = FailingOs(number)
            patch.setattr(files, "os", failing)
            try:
                await opened(damaged, accept_loss=True)
            except (InterruptedError, StoreError):
                pass
        assert await opened(damaged, accept_loss=True) == expected
        if failing.left >= 0:
            break
    assert 8 < number < 99


class FailingOs:
    """The `os` module until so many changes to the disk were made; then the process ends, as it were."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def __getattr__(self, name: str) -> object:
        found = getattr(os, name)
        if name in ("fsync", "rename", "unlink", "open"):
            self.left -= 1
            if self.left < 0:
                raise InterruptedError(name)
        return found


# What the first version wrote.


def rows_of_old(objects: int = 3) -> list[tuple[int, str, int, int, int, bytes]]:
    rows = [(n + 1, key(n), 0, n + 1, 0, value(Revision(n + 1))) for n in range(objects)]
    return [*rows, (objects + 1, key(0), 1, 1, 0, value(Revision(objects + 1)))]


async def test_a_store_of_the_first_format_is_upgraded_with_its_history(place: Path) -> None:
    path = place / "store.db"
    write_format_1(path, rows_of_old())
    store = await Store.open(SqliteLog(path))
    assert {record.key: record.revision for record in store.scan("").records} == {key(0): 4, key(1): 2, key(2): 3}
    assert len(await store.watch("", NO_REVISION).changes()) == 4
    await store.put(key(1), Revision(2), value)
    await store.close()
    execute(path, "UPDATE log SET value = ? WHERE id = 3", GARBAGE)
    await refused(path, f"{key(2)}: revision 3")


async def test_garbage_in_a_store_of_the_first_format(place: Path) -> None:
    path = place / "store.db"
    write_format_1(path, [*rows_of_old(), (5, key(7), 0, 5, 0, GARBAGE), (6, key(8), 0, 6, 0, value(Revision(6)))])

    def check(record: Record) -> str:
        return "" if record.value.startswith(b"{") else "its value is no JSON"

    with pytest.raises(Damaged, match=f"{key(7)}: revision 5: its value is no JSON"):
        await Store.open(SqliteLog(path, options=OpenOptions(check=check)))
    store = await Store.open(SqliteLog(path, options=OpenOptions(accept_loss=True, check=check)))
    assert states(store).keys() == {key(0), key(1), key(2), key(8)}
    await store.close()
