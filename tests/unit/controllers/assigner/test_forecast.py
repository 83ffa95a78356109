"""When a claim's turn comes, whether a cold start is sooner, and what both are measured by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandpool.controllers.assigner.forecast import Situation, cold_is_sooner, expected, turn
from sandpool.controllers.assigner.start_rate import FIRST, LEAST, SPAN, StartRate

BUSY = Situation(replicas=10, warming=10, begun=0, took=2.0, rate=5.0, bearable=4.0)
"""Ten start at once, and each takes so long only because of the others."""
ROOMY = Situation(replicas=2, warming=2, begun=0, took=4.0, rate=0.5, bearable=100.0)
"""A pool that is small for its cluster."""


def test_a_turn_is_the_time_of_a_start_as_long_as_members_are_coming() -> None:
    assert [turn(BUSY, place) for place in (0, 9)] == [2.0, 2.0]
    assert turn(BUSY, 99) == pytest.approx(20.0), "a hundred starts at five a second"


def test_a_pool_that_has_shown_that_it_can_is_counted_on_for_all_that_it_wants() -> None:
    drained = replace(BUSY, warming=0)
    assert (drained.coming, turn(drained, 9)) == (10, 2.0)
    unproven = replace(drained, took=None)
    assert (unproven.coming, turn(unproven, 0)) == (0, None)


def test_what_was_measured_when_little_was_wanted_is_not_all_that_can_be() -> None:
    assert turn(replace(BUSY, rate=0.1), 99) == pytest.approx(20.0)


def test_whoever_has_waited_long_is_told_by_what_was_served() -> None:
    slow_server = replace(BUSY, rate=2.0)  # members start soon once they are made, but few are
    assert expected(slow_server, 99) == turn(slow_server, 99) == pytest.approx(20.0), "nobody knows yet"
    assert expected(replace(slow_server, pressed=True), 99) == pytest.approx(50.0)
    assert expected(replace(slow_server, pressed=True, rate=0.0), 99) == pytest.approx(20.0)


def test_where_machines_are_busy_a_cold_start_is_not_sooner_however_long_the_line() -> None:
    assert not any(cold_is_sooner(BUSY, place) for place in (10, 100, 10_000))


def test_where_they_are_not_and_the_pool_is_small_it_is() -> None:
    assert cold_is_sooner(ROOMY, 2)
    assert not cold_is_sooner(replace(ROOMY, begun=98), 100), "as many as are bearable"


def test_a_pool_that_makes_members_slowly_on_purpose_is_judged_by_what_it_makes() -> None:
    held = replace(BUSY, warming=0, rate=1.0, prompt=False)
    assert cold_is_sooner(held, 10)
    assert not cold_is_sooner(replace(held, begun=4), 10)


def test_a_pool_of_none_and_one_that_is_not_known_yet() -> None:
    assert cold_is_sooner(replace(BUSY, replicas=0, begun=1_000), 0)
    assert cold_is_sooner(replace(ROOMY, took=None, rate=0.0, warming=0), 0)
    assert turn(replace(BUSY, replicas=0), 0) is None


def ended(start_rate: StartRate, number: int, at_once: int, took: float) -> float:
    """So many starts, so many of them at once, one after the other."""
    now, running = 0.0, [start_rate.begin(took * (number / at_once - 1)) for number in range(at_once)]
    for _ in range(number):
        now += took / at_once
        start_rate.ended(now, running.pop(0))
        running.append(start_rate.begin(now))
    return now


def test_the_rate_is_that_of_the_last_seconds() -> None:
    start_rate = StartRate()
    now = ended(start_rate, 200, 10, 1.0)
    assert start_rate.rate(now) == pytest.approx(10.0, rel=0.1)
    assert start_rate.took == pytest.approx(1.0)
    assert start_rate.moving(now)
    assert not start_rate.moving(now + SPAN)
    assert start_rate.rate(now + SPAN + 1) == 0.0


def test_a_few_more_than_made_sense_are_bearable() -> None:
    start_rate = StartRate()
    assert start_rate.bearable == FIRST
    ended(start_rate, 200, 50, 1.0)
    assert start_rate.bearable == pytest.approx(62.5, rel=0.1)


def test_starts_that_wait_for_each_other_make_fewer_bearable() -> None:
    start_rate = StartRate()
    ended(start_rate, 10, 1, 0.1)
    now = 1.0
    for _ in range(200):  # forty at once on what bears one
        began = start_rate.begin(now - 4.0)
        now += 0.1
        start_rate.ended(now, began._replace(ended=began.ended - 40))
    assert start_rate.bearable == pytest.approx(LEAST, rel=0.2)
    assert start_rate.bearable >= LEAST


def test_what_was_not_seen_to_begin_counts_for_the_rate_only() -> None:
    start_rate = StartRate()
    start_rate.ended(1.0, None)
    assert (start_rate.took, start_rate.last, start_rate.rate(1.0)) == (None, 1.0, 1.0)
