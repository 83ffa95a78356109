"""Replaying rows, and how far compaction goes."""

from __future__ import annotations

import pytest

from sandpool.controlplane.store.errors import DamagedStore
from sandpool.controlplane.store.log import Row, replay
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.writer import SMALLEST_STEP, next_floor
from sandpool.model.metadata import NO_REVISION, Revision


def a_row(revision: int, key: str, prior: int = 0, deleted: bool = False) -> Row:
    return Row(Record(key, Revision(revision), Revision(prior or revision), b"%d" % revision), Revision(prior), deleted)


def test_replay_tells_live_keys_deletions_and_the_history() -> None:
    rows = [a_row(1, "a/b/x"), a_row(2, "a/b/y"), a_row(4, "a/b/x", 1), a_row(5, "a/b/y", 2, deleted=True)]
    loaded = replay(rows, NO_REVISION, Revision(1))
    assert loaded.live == {"a/b/x": rows[2].record}
    assert loaded.tombstones == {"a/b/y": 5}
    assert loaded.revision == 5
    assert [(c.record.revision, c.previous and c.previous.revision, c.deleted) for c in loaded.tail] == [
        (2, None, False),
        (4, 1, False),
        (5, 2, True),
    ]


def test_a_key_lives_again_after_its_deletion() -> None:
    rows = [a_row(1, "a/b/x"), a_row(2, "a/b/x", 1, deleted=True), a_row(3, "a/b/x", 2)]
    loaded = replay(rows, NO_REVISION, NO_REVISION)
    assert loaded.live["a/b/x"].revision == 3
    assert not loaded.tombstones
    assert loaded.tail[-1].previous is None


def test_below_the_floor_predecessors_may_be_gone() -> None:
    assert replay([a_row(7, "a/b/x", 3), a_row(9, "a/b/x", 7)], Revision(8), Revision(8)).tail[0].previous is not None


@pytest.mark.parametrize(
    "rows",
    [
        [a_row(3, "a/b/x", 2)],  # its predecessor is above the floor and missing
        [a_row(2, "a/b/x"), a_row(3, "a/b/x")],  # created twice
        [a_row(2, "a/b/x"), a_row(3, "a/b/x", 2), a_row(4, "a/b/x", 2)],  # two successors
    ],
)
def test_rows_that_do_not_follow_each_other_are_damage(rows: list[Row]) -> None:
    with pytest.raises(DamagedStore, match="a/b/x"):
        replay(rows, Revision(1), Revision(1))


def test_compaction_never_enters_the_window_and_catches_up() -> None:
    floor, newest = NO_REVISION, 0
    for _ in range(1000):
        newest += 10
        moved = next_floor(floor, Revision(newest), 200, 10)
        if moved is not None:
            assert floor < moved <= newest - 200
            floor = moved
    assert newest - 200 - floor < SMALLEST_STEP


def test_compaction_never_takes_the_newest_row() -> None:
    assert next_floor(NO_REVISION, Revision(1000), 0, 10_000) == 999
