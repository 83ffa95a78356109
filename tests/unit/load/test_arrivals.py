"""When claims arrive: known answers for each shape."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from sandpool.load.arrivals import Arrival, BadShape, burst, bursts, constant, poisson, replayed


def offsets(arrivals: list[Arrival]) -> list[float]:
    return [arrival.offset for arrival in arrivals]


def test_a_burst_is_all_at_once() -> None:
    assert offsets(burst(3)) == [0, 0, 0]


def test_bursts_are_bursts_apart() -> None:
    assert offsets(bursts(2, times=3, every=10)) == [0, 0, 10, 10, 20, 20]


def test_a_constant_rate_is_evenly_spaced() -> None:
    assert offsets(constant(4, seconds=1)) == [0, 0.25, 0.5, 0.75]
    assert len(constant(2000, seconds=60)) == 120_000


def test_poisson_arrivals_repeat_with_their_seed() -> None:
    assert poisson(50, 10, Random(7)) == poisson(50, 10, Random(7)) != poisson(50, 10, Random(8))


def test_poisson_arrivals_have_the_rate_and_the_spread_of_chance() -> None:
    found = offsets(poisson(100, 100, Random(1)))
    gaps = [later - earlier for earlier, later in pairwise(found)]
    mean = sum(gaps) / len(gaps)
    spread = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert len(found) == pytest.approx(10_000, rel=0.03)
    assert spread**0.5 == pytest.approx(mean, rel=0.05)  # of exponential gaps both are the same
    assert found == sorted(found)
    assert found[-1] < 100


def test_a_trace_starts_at_its_first_arrival_and_keeps_its_pools() -> None:
    trace = [Arrival(12.0, "b"), Arrival(10.0, "a"), Arrival(14.0)]
    assert replayed(trace) == [Arrival(0, "a"), Arrival(2, "b"), Arrival(4)]
    assert offsets(replayed(trace, speed=2)) == [0, 1, 2]


@pytest.mark.parametrize(
    "made",
    [
        lambda: burst(0),
        lambda: burst(3_000_000),
        lambda: bursts(1, 0, 1),
        lambda: bursts(1, 1, 0),
        lambda: constant(0, 1),
        lambda: constant(float("nan"), 1),
        lambda: constant(float("inf"), 1),
        lambda: constant(1e6, 1e6),
        lambda: poisson(-1, 1, Random(1)),
        lambda: replayed([]),
        lambda: replayed([Arrival(0)], speed=0),
    ],
)
def test_what_means_nothing_is_refused(made: object) -> None:
    with pytest.raises(BadShape):
        made()  # type: ignore[operator]
