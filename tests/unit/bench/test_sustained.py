"""The search for the highest rate: always ends, with a rate if any was held, and says what was in the way of more."""

from __future__ import annotations

from typing import Any

import pytest
from bench.scenarios import FULL, QUICK
from bench.sustained import CLOSE, held, limited_by, minute, next_minute
from bench.tables import rate

from sandpool.load.series import Series


def tried(rate: float, holds: bool, **more: Any) -> dict[str, Any]:
    usual = {"p50_ms": 5.0, "p99_ms": 50.0 if holds else 400.0, "failed": 0, "warm_fraction": 1.0}
    return {"rate": rate, "held": holds, **usual, "server_cores": 1.02, "generator_cores": 0.4, **more}


def search(first: float, edge: float, tries: int = FULL.tries) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < tries and (rate := next_minute(found, first)) is not None:
        found.append(tried(rate, rate <= edge))
    return found


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"failed": 0, "p99_ms": 100.0}, True),
        ({"failed": 0, "p99_ms": 100.1}, False),
        ({"failed": 1, "p99_ms": 5.0}, False),
        ({"failed": 0, "p99_ms": None}, False),
    ],
)
def test_a_minute_is_held_or_not(result: dict[str, Any], expected: bool) -> None:
    assert held(result) is expected


def test_a_ramp_that_said_too_little_is_not_the_last_word() -> None:
    assert [each["rate"] for each in search(100, 1000)] == [100, 140, 196, 274.4, 384.2, 537.9, 753.1, 1054.3]
    assert [each["rate"] for each in search(100, 150)] == [100, 140, 196, 196, 168, 168, 154, 154]


def test_one_that_is_not_held_is_followed_by_slower_ones_and_the_gap_is_halved() -> None:
    assert [each["rate"] for each in search(500, 300)] == [500, 500, 350, 350, 171.5, 260.8, 305.4, 305.4]


@pytest.mark.parametrize("edge", [70, 100, 200, 333, 499])
def test_a_rate_far_below_the_ramp_is_found_all_the_same(edge: float) -> None:
    found = search(500, edge)
    assert any(each["held"] for each in found)
    assert len(found) <= FULL.tries


def test_a_minute_that_is_held_when_it_is_repeated_counts() -> None:
    found = [tried(100, False)]
    assert next_minute(found, 100) == 100
    found.append(tried(100, True))
    assert next_minute(found, 100) == 140
    assert limited_by(found, {"limited_by": "nothing"}) == "nothing in the ramp before it"


def test_the_search_ends_when_the_edge_is_near() -> None:
    found = search(500, 450, tries=50)
    assert len(found) < 16
    highest = max(each["rate"] for each in found if each["held"])
    assert min(each["rate"] for each in found if not each["held"]) <= highest * CLOSE


def test_what_was_in_the_way_is_told() -> None:
    ramp = {"limited_by": "p99"}
    assert limited_by([tried(300, True)], ramp) == "p99 in the ramp before it"
    told = limited_by([tried(500, False), tried(400, False), tried(300, True)], ramp)
    assert told == "a p99 of 400 ms at 400/s, where the server used 1.02 cores and the generator used 0.40"
    busy = limited_by([tried(400, False, failed=1200, generator_cores=0.97, server_cores=None)], ramp)
    assert busy == "1,200 claims that failed at 400/s, where the generator used 0.97: it may be the limit"


def test_the_pool_of_a_minute_is_some_seconds_of_its_rate() -> None:
    assert "--pool-size 1500" in " ".join(minute(FULL, 500))
    assert "--pool-size 200" in " ".join(minute(FULL, 20))
    assert "--for 1s" in " ".join(minute(QUICK, 20))


def test_a_run_without_any_held_minute_has_a_row() -> None:
    minutes = [tried(50, False, p99_ms=None, failed=3000)]
    run = {
        **{"held_rate": 0, "p50_ms": None, "p99_ms": None, "max_ms": None, "warm_fraction": None},
        **{"minutes": minutes, "minute_limited_by": limited_by(minutes, {}), "ramp": {"highest_rate": None}},
    }
    series = Series(scenario="local-rate", title="t", command="c", sides={"ours": [run]}, conditions={})
    row = rate({"local-rate": series})[2]
    assert row.startswith(
        "| 0 | – | – | – | – | – | 50.0/s: none Ready, 3,000 failed | 3,000 claims that failed at 50/s"
    )
