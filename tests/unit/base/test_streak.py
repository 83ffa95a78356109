from __future__ import annotations

from sandpool.base.backoff import LONGEST, RESPITE, Streak


def test_at_first_there_is_no_delay_then_it_doubles_up_to_a_limit() -> None:
    streak, delays = Streak(), []
    for _ in range(8):
        streak.count(100.0)
        delays.append(streak.delay(1.0))
    assert delays == [0, 1, 2, 4, 8, 16, 16, 16]


def test_it_goes_on_as_long_as_its_own_delays_are_kept() -> None:
    streak, now = Streak(), 100.0
    for _ in range(20):
        streak.count(now)
        now += streak.delay(1.0)
    assert streak.delay(1.0) == LONGEST < RESPITE


def test_after_a_rest_it_begins_anew() -> None:
    streak = Streak(100.0, 5)
    streak.count(100.0 + RESPITE + 1)
    assert streak.delay(1.0) == 0


def test_it_can_be_ended() -> None:
    streak = Streak(100.0, 5)
    streak.end()
    assert streak == Streak()
