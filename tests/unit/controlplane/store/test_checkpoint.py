"""When a checkpoint may begin beside the writer."""

from __future__ import annotations

from sandpool.controlplane.store.checkpoint import Turns


def commit(turns: Turns) -> None:
    turns.commit_begins()
    turns.commit_ended()


def test_only_after_a_commit_that_began_after_the_last_checkpoint() -> None:
    turns = Turns()
    assert not turns.safe
    commit(turns)
    assert turns.safe
    turns.checkpoint_ended()
    assert not turns.safe, "the log may be wholly copied: a commit beginning now would start it anew"
    turns.commit_begins()
    assert not turns.safe, "it may be starting the log anew this very moment"
    turns.commit_ended()
    assert turns.safe


def test_a_commit_that_overlapped_the_checkpoint_does_not_count() -> None:
    turns = Turns()
    commit(turns)
    turns.commit_begins()
    turns.checkpoint_ended()
    turns.commit_ended()
    assert not turns.safe
    commit(turns)
    assert turns.safe


def test_a_failed_commit_does_not_count() -> None:
    turns = Turns()
    turns.commit_begins()
    assert not turns.safe
