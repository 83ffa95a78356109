from __future__ import annotations

from sandpool.controllers.sandbox.memory import RESPITE, Memory, Notes
from sandpool.model.metadata import Uid


def test_a_status_of_somebody_else_is_put_right_at_once_and_then_less_and_less_soon() -> None:
    notes = Notes()
    assert [notes.dispute(100.0, pause=1.0) for _ in range(8)] == [0, 1, 2, 4, 8, 16, 16, 16]


def test_a_dispute_that_rested_is_over() -> None:
    notes = Notes()
    for _ in range(3):
        notes.dispute(100.0, pause=1.0)
    assert notes.dispute(100.0 + RESPITE + 1, pause=1.0) == 0


def test_what_vanishes_again_and_again_is_made_less_and_less_often() -> None:
    notes, now, pauses = Notes(), 100.0, []
    assert notes.not_before(1.0) is None, "the first is made without a thought"
    for _ in range(7):
        notes.makes(now)
        not_before = notes.not_before(1.0)
        assert not_before is not None
        pauses.append(not_before - now)
        now = not_before
    assert pauses == [0, 1, 2, 4, 8, 16, 16]


def test_what_lasted_may_be_replaced_at_once() -> None:
    notes = Notes()
    for _ in range(4):
        notes.makes(100.0)
    notes.makes(100.0 + RESPITE + 1)
    assert notes.not_before(1.0) == notes.made


def test_what_we_ended_ourselves_did_not_vanish() -> None:
    notes = Notes()
    for _ in range(4):
        notes.makes(100.0)
    notes.unmade()
    assert notes.not_before(1.0) is None


def test_a_difference_waits_since_it_was_first_seen() -> None:
    notes = Notes()
    assert [notes.waits_since(now) for now in (5.0, 6.0)] == [5.0, 5.0]


def test_notes_live_as_long_as_their_sandbox() -> None:
    memory = Memory()
    memory.of(Uid("gone")).disputes = 3
    assert len(memory) == 0
    memory.begin(Uid("a"))
    memory.of(Uid("a")).disputes = 3
    memory.begin(Uid("a"))
    assert memory.of(Uid("a")).disputes == 3
    memory.drop(Uid("a"))
    assert len(memory) == memory.of(Uid("a")).disputes == 0
