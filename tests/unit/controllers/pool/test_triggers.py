"""What of a member wakes its pool, and how soon."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sandpool.controllers.pool.roster import Member
from sandpool.controllers.pool.triggers import wake_after
from sandpool.model.metadata import Revision
from unit.controllers.pool.views import NOW, a_member, a_roster, ready

ONE, UNREADY = ready(1), a_member(1)
MANY = [ready(number) for number in range(2, 6)]


def after(old: Member | None, new: Member | None, *, ours: bool = False, others: list[Member] = MANY) -> float | None:
    roster = a_roster([*others, *([] if new is None else [new])])
    return wake_after(old, new, ours, roster, 1.0)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (ONE, None, 0.0),
        (None, UNREADY, 0.0),
        (ONE, replace(ONE, leaving=True), 0.0),
        (ONE, replace(ONE, stale=True), 0.0),
        (ONE, replace(ONE, marked=False), 0.0),
        (UNREADY, ONE, 1.0),
        (ONE, UNREADY, 1.0),
        (UNREADY, replace(UNREADY, placed=False), 1.0),
        (UNREADY, replace(UNREADY, message="waiting"), 1.0),
        (UNREADY, replace(UNREADY, since=NOW), 1.0),
        (ONE, replace(ONE, revision=Revision(99)), None),
    ],
)
def test_how_soon(old: Member | None, new: Member | None, expected: float | None) -> None:
    assert after(old, new) == expected


def test_our_own_create_wakes_nobody() -> None:
    assert after(None, UNREADY, ours=True) is None


def test_the_first_and_the_last_ready_member_are_news() -> None:
    assert after(UNREADY, ONE, others=[]) == 0.0
    assert after(ONE, UNREADY, others=[]) == 0.0


def test_during_a_rollout_every_ready_member_counts() -> None:
    assert after(UNREADY, ONE, others=[*MANY, ready(9, stale=True)]) == 0.0


def test_the_member_that_fills_a_pool_of_which_none_was_ready_is_news() -> None:
    full, missing = a_roster([*MANY, ONE]), a_roster([*MANY, ONE, a_member(9)])
    assert wake_after(UNREADY, ONE, False, full, 1.0, published_empty=True) == 0.0
    assert wake_after(UNREADY, ONE, False, missing, 1.0, published_empty=True) == 1.0
    assert wake_after(UNREADY, ONE, False, full, 1.0, published_empty=False) == 1.0
