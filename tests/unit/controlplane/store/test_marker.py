"""The marker: what it says after anything that can happen to its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.controlplane.store.marker import (
    DamagedMarker,
    Mark,
    Marker,
    decode_slot,
    encode_slot,
    marker_of,
    read_mark,
    write_mark,
)
from sandpool.model.metadata import Revision

MARK = Mark("0123456789abcdef", Revision(1234))


def test_every_flipped_bit_of_a_slot_is_noticed() -> None:
    slot = encode_slot(MARK)
    assert decode_slot(slot + b"\0" * 100) == MARK
    for bit in range(8 * len(slot)):
        changed = bytearray(slot)
        changed[bit // 8] ^= 1 << bit % 8
        assert decode_slot(bytes(changed)) is None
    for length in range(len(slot)):
        assert decode_slot(slot[:length]) is None


def test_it_says_the_newest_that_can_be_read(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    assert read_mark(store) is None
    write_mark(store, MARK)
    assert marker_of(store).stat().st_mode & 0o777 == 0o600
    marker = Marker(store, MARK.identity, spacing=3600)
    for revision in range(1235, 1300):
        marker.acknowledge(Revision(revision))
        assert read_mark(store) == Mark(MARK.identity, Revision(revision))
    marker.close()
    assert read_mark(store) == Mark(MARK.identity, Revision(1299))


def test_a_slot_that_was_torn_leaves_the_others(tmp_path: Path) -> None:
    """Whichever slot is lost, what is said is true, if old."""
    store = tmp_path / "store.db"
    write_mark(store, MARK)
    marker = Marker(store, MARK.identity, spacing=3600)
    marker.acknowledge(Revision(1240))
    marker.close()
    content = marker_of(store).read_bytes()
    said = set()
    for slot in range(3):
        marker_of(store).write_bytes(content[: slot * 4096] + b"\xff" * 4096 + content[(slot + 1) * 4096 :])
        found = read_mark(store)
        assert found is not None
        said.add(found.revision)
    assert said == {1234, 1240}


@pytest.mark.parametrize("content", [b"", b"garbage" * 3000, encode_slot(MARK)[:-2]])
def test_one_that_says_nothing_is_damaged(tmp_path: Path, content: bytes) -> None:
    store = tmp_path / "store.db"
    marker_of(store).write_bytes(content)
    with pytest.raises(DamagedMarker):
        read_mark(store)


def test_slots_of_two_stores_are_damage(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    write_mark(store, MARK)
    content = marker_of(store).read_bytes()
    other = encode_slot(Mark("fedcba9876543210", Revision(9))).ljust(4096, b"\0")
    marker_of(store).write_bytes(other + content[4096:])
    with pytest.raises(DamagedMarker):
        read_mark(store)
