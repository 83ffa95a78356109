"""Which rate is tried next, and what a step means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sandpool.load.arrivals import Arrival
from sandpool.load.counts import Counts
from sandpool.load.ramp import Climb, Ramp, Step, climb, judge, lines, next_rate
from sandpool.load.record import ClaimRecord, PoolLevel
from sandpool.load.session import Measured
from sandpool.load.summary import Used

RAMP = Ramp(start=100, p99=0.1, hold=1, factor=2, refine=3)


def measured(latency: float = 0.01, error: str = "", cpu: float = 0.1) -> Measured:
    records = [ClaimRecord(name=str(n), scheduled=0.0, sent=0.0, ready=latency, error=error) for n in range(10)]
    return Measured(records, Counts(), Used(cpu, 1.0))


def step(rate: float, held: bool, share: float = 0.1, errors: int = 0) -> Step:
    return Step(rate, 0.01, errors, share, measured(), held)


def test_the_rate_rises_until_a_step_breaks_then_the_edge_is_halved() -> None:
    steps: list[Step] = []
    tried = []
    while (rate := next_rate(steps, RAMP)) is not None:
        tried.append(rate)
        steps.append(step(rate, held=rate <= 530))
    assert tried == [100, 200, 400, 800, 800, 600, 600, 500, 550, 550]
    assert Climb(steps).highest == 500


def test_a_step_that_holds_when_it_is_repeated_does_not_end_the_climb() -> None:
    steps: list[Step] = []
    tried = []
    while (rate := next_rate(steps, RAMP)) is not None:
        stalled = rate in (200, 600) and rate not in tried
        tried.append(rate)
        steps.append(step(rate, held=rate <= 600 and not stalled))
    assert tried == [100, 200, 200, 400, 800, 800, 600, 600, 700, 700, 650, 650]
    assert Climb(steps).highest == 600
    assert Climb(steps[:3]).limited_by.startswith("nothing"), "what was held in the end did not limit"


def test_a_first_step_that_breaks_is_searched_below() -> None:
    steps: list[Step] = []
    tried = []
    while (rate := next_rate(steps, RAMP)) is not None:
        tried.append(rate)
        steps.append(step(rate, held=rate <= 20))
    assert tried == [100, 100, 50, 50, 25, 25, 12.5]
    assert Climb(steps).highest == 12.5


def test_a_ramp_ends_at_the_highest_rate_it_may_try() -> None:
    ramp = Ramp(start=100, p99=1, factor=2, most=500)
    assert next_rate([step(100, True), step(200, True), step(400, True)], ramp) is None
    assert Climb([step(400, True)]).limited_by.startswith("nothing")


def test_a_step_holds_within_the_limit_and_without_errors() -> None:
    assert judge(5, measured(0.1), RAMP).held
    assert not judge(5, measured(0.11), RAMP).held
    assert not judge(5, measured(0.01, error="create: Conflict"), RAMP).held


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (step(200, False), "p99"),
        (step(200, False, errors=3), "errors"),
        (replace(step(200, False), turned_away=2), "429"),
        (replace(step(200, False), turned_away=3, not_sent=2), "429"),
        (replace(step(200, False), turned_away=2, not_sent=2), "slow answers"),
        (step(200, False, share=0.97), "the generator"),
    ],
)
def test_what_ended_the_ramp_is_told(broken: Step, cause: str) -> None:
    assert Climb([step(100, True), broken]).limited_by.startswith(cause)


def test_a_step_tells_its_p50_too() -> None:
    as_dict = judge(5, measured(0.05), RAMP).as_dict()
    assert (as_dict["p50_ms"], as_dict["p99_ms"], as_dict["held"]) == (50.0, 50.0, True)
    none = judge(5, Measured([ClaimRecord(name="a", error="x")], Counts(), Used(0.1, 1.0)), RAMP).as_dict()
    assert (none["p50_ms"], none["p99_ms"], none["held"]) == (None, None, False)


def test_claims_of_all_steps_are_kept_one_step_after_the_other() -> None:
    steps = []
    for rate, began in ((100.0, 1000.0), (200.0, 1020.0)):
        found = Measured([ClaimRecord(name="a", scheduled=0.5, ready=0.6, files=0.1)], Counts(), Used(0.1, 1.0))
        found.began, found.pool_levels = began, [(1.0, 7)]
        steps.append(Step(rate, 0.1, 0, 0.1, found, True))
    assert list(lines(steps)) == [
        ClaimRecord(name="a", scheduled=0.5, ready=0.6, files=0.1, step=100.0),
        PoolLevel(at=1.0, ready=7, step=100.0),
        ClaimRecord(name="a", scheduled=20.5, ready=20.6, files=0.1, step=200.0),
        PoolLevel(at=21.0, ready=7, step=200.0),
    ]
    assert steps[1].measured.records[0].scheduled == 0.5, "what the page is made from stays as it was"


async def test_a_climb_measures_each_rate_for_as_long_as_it_is_held() -> None:
    asked: list[int] = []

    async def measure(arrivals: Sequence[Arrival]) -> Measured:
        asked.append(len(arrivals))
        return measured(0.05 if len(arrivals) < 350 else 0.2)

    found = await climb(measure, Ramp(start=100, p99=0.1, hold=2, factor=2, refine=1), lambda phase: None)
    assert asked == [200, 400, 400, 300]
    assert found.highest == 150
    assert found.best is not None
    assert found.best.records[0].ready == 0.05


def test_a_claim_that_was_turned_away_is_no_error_and_its_step_is_not_held() -> None:
    as_dict, unsent = (
        ClaimRecord(name="a", sent=0.1, throttled=1, turned_away=True),
        ClaimRecord(name="b", turned_away=True),
    )
    found = judge(5, Measured([as_dict, unsent], Counts(), Used(0.1, 1.0)), RAMP)
    assert (found.held, found.errors, found.turned_away, found.not_sent) == (False, 0, 2, 1)
    assert (found.as_dict()["turned_away"], found.as_dict()["not_sent"]) == (2, 1)


async def test_past_what_was_held_so_many_times_as_much_is_offered() -> None:
    offered: list[tuple[int, float]] = []

    async def measure(arrivals: Sequence[Arrival]) -> Measured:
        """A hundred a second are served, in order, in time; what is beyond waits."""
        offered.append((len(arrivals), arrivals[-1].offset))
        records = [
            ClaimRecord(name=str(n), scheduled=each.offset, ready=max(each.offset, n / 100), answered=0.0, warm=True)
            for n, each in enumerate(arrivals)
        ]
        return Measured(records, Counts(), Used(0.1, 1.0))

    ramp = Ramp(start=50, p99=0.1, hold=1, factor=2, refine=0, past=(2.0, 5.0), past_hold=3.0)
    found = await climb(measure, ramp, lambda said: None)
    assert found.highest == 100
    assert [count for count, _ in offered[-2:]] == [600, 1500]
    as_dict = [past.as_dict() for past in found.past]
    assert [(past["times"], past["rate"]) for past in as_dict] == [(2.0, 200.0), (5.0, 500.0)]
    assert all(0.95 <= past["of_capacity"] <= 1.05 for past in as_dict)
    assert all(past["warm_fraction"] == 1.0 and not past["failed_admitted"] for past in as_dict)


async def test_where_nothing_was_held_nothing_more_is_offered() -> None:
    async def measure(arrivals: Sequence[Arrival]) -> Measured:
        return measured(1.0)

    ramp = Ramp(start=50, p99=0.1, hold=1, refine=0, past=(2.0,))
    assert (await climb(measure, ramp, lambda said: None)).past == []
