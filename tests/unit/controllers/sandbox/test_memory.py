from __future__ import annotations

from sandpool.controllers.sandbox.memory import Memory, Notes
from sandpool.model.metadata import Uid


def test_a_status_of_somebody_else_is_put_right_at_once_and_then_less_and_less_soon() -> None:
    notes = Notes()
    assert [notes.dispute(100.0, pause=1.0) for _ in range(4)] == [0, 1, 2, 4]


def test_what_vanishes_again_and_again_is_made_less_and_less_often() -> None:
    notes, now, pauses = Notes(), 100.0, []
    assert notes.not_before(1.0) is None, "the first is made without a thought"
    for _ in range(4):
        notes.made.count(now)
        not_before = notes.not_before(1.0)
        assert not_before is not None
        pauses.append(not_before - now)
        now = not_before
    assert pauses == [0, 1, 2, 4]


def test_a_difference_waits_since_it_was_first_seen() -> None:
    notes = Notes()
    assert [notes.waits_since(now) for now in (5.0, 6.0)] == [5.0, 5.0]


def test_notes_live_as_long_as_their_sandbox() -> None:
    memory = Memory()
    memory.of(Uid("gone")).unpublished = 3.0
    assert len(memory) == 0
    memory.begin(Uid("a"))
    memory.of(Uid("a")).unpublished = 3.0
    memory.begin(Uid("a"))
    assert memory.of(Uid("a")).unpublished == 3.0
    memory.drop(Uid("a"))
    assert len(memory) == 0
    assert memory.of(Uid("a")).unpublished is None
