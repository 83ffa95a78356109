"""How refilling is slowed down."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.pool.pace import Hold, Pause, Tokens, filled, held, next_hold, next_pause, next_token, spent
from unit.controllers.pool.views import NOW, ago, later

DELAY: dict[str, Any] = {"full": False, "delay": 10.0, "longest": 3.0, "now": NOW}


def test_the_first_look_never_holds() -> None:
    assert next_hold(None, 5, **DELAY) == Hold(5)


def test_a_loss_holds() -> None:
    hold = next_hold(Hold(2), 3, **DELAY)
    assert hold == Hold(3, NOW, later(10))
    assert held(hold, later(9))
    assert not held(hold, later(10))


def test_a_further_loss_begins_anew_but_not_for_ever() -> None:
    assert next_hold(Hold(3, ago(5), later(5)), 4, **DELAY) == Hold(4, ago(5), later(10))
    assert next_hold(Hold(3, ago(25), later(1)), 4, **DELAY) == Hold(4, ago(25), later(5))


def test_nothing_lost_nothing_changes_until_it_is_over() -> None:
    hold = Hold(3, ago(5), later(5))
    assert next_hold(hold, 3, **DELAY) is hold
    assert next_hold(Hold(3, ago(15), ago(5)), 3, **DELAY) == Hold(3)


def test_a_full_pool_ends_it_even_with_a_loss() -> None:
    assert next_hold(Hold(3, ago(5), later(5)), 9, **(DELAY | {"full": True})) == Hold(9)


def test_without_a_delay_nothing_is_held() -> None:
    assert next_hold(Hold(3), 9, **(DELAY | {"delay": 0.0})) == Hold(9)


def test_a_new_bucket_holds_one_second() -> None:
    assert filled(None, 5.0, NOW).left == 5.0
    assert next_token(Tokens(0.0, NOW), 5.0) == later(0.2)


def test_idle_time_is_not_banked() -> None:
    assert filled(Tokens(0.0, ago(3600)), 5.0, NOW).left == 5.0


def test_a_slow_rate_holds_one() -> None:
    bucket = filled(None, 0.1, NOW)
    assert bucket.left == 1.0
    assert next_token(spent(bucket, 1), 0.1) == later(10)


@pytest.mark.parametrize("rate", [1e300, 2.0**31 * 4])
def test_a_huge_rate_does_not_overflow(rate: float) -> None:
    bucket = filled(filled(None, rate, ago(1)), rate, NOW)
    assert int(bucket.left) >= 2**31
    assert next_token(bucket, rate) == NOW


def test_a_clock_that_goes_back_gives_nothing() -> None:
    assert filled(Tokens(0.5, later(10)), 5.0, NOW).left == pytest.approx(0.5)


def test_a_token_is_there_when_it_was_promised() -> None:
    bucket = Tokens(0.0, NOW)
    for rate in (0.3, 0.7, 3.0, 7.0, 11.0):
        assert filled(bucket, rate, next_token(bucket, rate)).left >= 1


def test_what_is_made_in_vain_once_is_made_again_at_once_and_then_less_and_less_often() -> None:
    pause, delays = None, []
    for lost_unready in range(1, 9):
        pause = next_pause(pause, lost_unready, 1.0, NOW)
        assert pause.until is not None
        delays.append((pause.until - NOW).total_seconds())
    assert delays == [0, 1, 2, 4, 8, 16, 16, 16]


def test_as_long_as_nothing_more_vanishes_a_pause_stays_as_it_is() -> None:
    pause = Pause(3, 2, ago(5), later(5))
    assert next_pause(pause, 3, 1.0, NOW) is pause
    assert held(pause, NOW)
    assert not held(pause, later(5))


def test_after_a_while_it_counts_as_the_first_time() -> None:
    assert next_pause(Pause(3, 2, ago(31), ago(20)), 4, 1.0, NOW) == Pause(4, 0, NOW, NOW)
