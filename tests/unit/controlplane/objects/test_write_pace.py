"""How fast tenants may write."""

from __future__ import annotations

from sandpool.controlplane.objects.holdings import LONGEST, Pace, Rate

RATE = Rate(burst=9000, per_second=1000)


def written(pace: Pace, tenant: str, now: float, piece: int = 10) -> int:
    """How much of it passes, until it does not."""
    total = 0
    while not pace.charge(tenant, piece, now):
        total += piece
    return total


def test_one_alone_has_nearly_all_of_the_burst_and_all_of_the_rate() -> None:
    pace = Pace(RATE)
    assert 7900 <= written(pace, "a", 10.0) <= 8000
    assert written(pace, "a", 10.0) == 0
    passed = sum(written(pace, "a", 10.0 + second) for second in range(1, 11))
    assert 9900 <= passed <= 10_100


def test_another_finds_room_however_much_one_writes() -> None:
    pace = Pace(RATE)
    for second in range(20):
        written(pace, "greedy", float(second))
        assert pace.charge("modest", 100, float(second)) == 0


def test_two_that_want_all_get_as_much() -> None:
    pace = Pace(RATE)
    passed = {"a": 0, "b": 0}
    for tick in range(400):
        for tenant in passed:
            passed[tenant] += written(pace, tenant, tick / 10)
    assert 0.8 <= passed["a"] / passed["b"] <= 1.25
    assert sum(passed.values()) <= RATE.burst + 40 * RATE.per_second


def test_how_long_to_wait_is_said_and_is_enough() -> None:
    pace = Pace(RATE)
    written(pace, "a", 1.0)
    wait = pace.charge("a", 500, 1.0)
    assert wait >= 1
    assert pace.charge("a", 500, 1.0 + wait) == 0
    assert pace.charge("a", 10**9, 1.0 + wait) == LONGEST


def test_a_clock_that_is_set_back_gives_nothing_away_and_takes_nothing() -> None:
    pace = Pace(RATE)
    written(pace, "a", 1000.0)
    assert pace.charge("a", 500, 10.0) > 0
    assert pace.charge("a", 500, 12.0) == 0
