from __future__ import annotations

from datetime import UTC, datetime

from sandpool.telemetry.reconcile_history import EACH, MOST_NOTES, Entry, ReconcileHistory, note, noting


def an_entry(rid: str) -> Entry:
    return Entry(datetime(2026, 1, 1, tzinfo=UTC), rid, "claim", "adopt x", "done")


def test_a_story_is_bounded_in_entries_and_keys() -> None:
    story = ReconcileHistory(keys=2, entries=3)
    for n in range(5):
        story.record("a", an_entry(str(n)))
    assert [entry.rid for entry in story.of("a")] == ["2", "3", "4"]
    story.record("b", an_entry("b"))
    story.record("a", an_entry("5"))
    story.record("c", an_entry("c"))
    assert len(story) == 2
    assert story.of("b") == (), "the one not touched for longest is forgotten"
    assert [entry.rid for entry in story.of("a")] == ["3", "4", "5"]
    assert story.of("never") == ()


def test_a_story_is_bounded_in_bytes() -> None:
    """Thousands of keys whose reconciles say much would be gigabytes."""
    story = ReconcileHistory(keys=100, entries=3, size=10 * (EACH + 1000))
    for n in range(1000):
        story.record(f"key-{n % 50}", Entry(datetime(2026, 1, 1, tzinfo=UTC), str(n), "", "x" * 1000, ""))
        assert story.size <= 10 * (EACH + 1000)
    assert [entry.rid for entry in story.of("key-49")] == ["999"]
    assert len(story) == 10
    story.record("long", Entry(datetime(2026, 1, 1, tzinfo=UTC), "r", "", "x" * 100_000, ""))
    assert len(story) == 1, "the newest is always there"
    for n in range(5):
        story.record("long", an_entry(str(n)))
    assert story.size == 3 * (EACH + len("claim" + "adopt x" + "done"))


def test_an_entry_reads_as_a_line() -> None:
    assert str(an_entry("r1")) == "2026-01-01T00:00:00+00:00 r1 claim | adopt x | done"


def test_notes_belong_to_the_innermost_reconcile() -> None:
    note("nobody listens")
    with noting() as outer:
        note("one")
        with noting() as inner:
            note("two")
        note("three")
    assert (outer, inner) == (["one", "three"], ["two"])


def test_a_reconcile_that_says_much_is_cut_short() -> None:
    with noting() as notes:
        for number in range(MOST_NOTES + 10):
            note(f"create {number}")
        note("x")
    assert len(notes) == MOST_NOTES
    assert notes[-2:] == [f"create {MOST_NOTES - 2}", "and 12 more"]
    with noting() as notes:
        note("y" * 10_000)
    assert len(notes[0]) < 600
