from __future__ import annotations

import pytest

from sandpool.base.backoff import Backoff


def test_delays_double_up_to_the_cap_and_start_over_when_forgotten() -> None:
    backoff: Backoff[str] = Backoff(0.005, 0.03)
    assert [backoff.next("a") for _ in range(5)] == [0.005, 0.01, 0.02, 0.03, 0.03]
    assert backoff.next("b") == 0.005
    assert backoff.failures("a") == 5
    backoff.forget("a")
    assert backoff.next("a") == 0.005


def test_many_failures_stay_at_the_cap() -> None:
    backoff: Backoff[str] = Backoff()
    assert [backoff.next("a") for _ in range(5000)][-1] == 1000.0


@pytest.mark.parametrize(("random", "delay"), [(0.0, 0.5), (0.5, 1.0), (0.999, 1.499)])
def test_jitter_spreads_around_the_delay(random: float, delay: float) -> None:
    backoff: Backoff[str] = Backoff(1.0, 10.0, jitter=0.5, random=lambda: random)
    assert backoff.next("a") == pytest.approx(delay)
