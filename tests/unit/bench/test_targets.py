"""Targets: which number of which results is compared with what, and what is said of one that was missed."""

from __future__ import annotations

from typing import Any

import pytest
from bench.pages import verdict
from bench.targets import TARGETS, Target, Value, of_runs

from sandpool.load.series import Series

BY_KEY = {target.key: target for target in TARGETS}


def series(name: str, **sides: list[dict[str, Any]]) -> dict[str, Series]:
    return {name: Series(scenario=name, title=name, command="", sides=sides, conditions={})}


def value(key: str, found: dict[str, Series]) -> Value:
    told = BY_KEY[key].value(found)
    assert told is not None
    return told


def test_keys_are_unique() -> None:
    assert len(BY_KEY) == len(TARGETS)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.key)
def test_what_was_not_measured_is_neither_reached_nor_missed(target: Target) -> None:
    assert target.value({}) is None
    assert verdict(target, None, {}) == "–"


def test_a_number_is_the_median_of_the_runs_with_their_range() -> None:
    runs = [{"p50_ms": number} for number in (40.0, 20.0, 30.0)]
    assert value("burst-p50", series("local-burst", ours=runs)) == Value(30.0, 20.0, 40.0, 3)


def test_runs_that_do_not_tell_are_left_out() -> None:
    assert of_runs([{"p50_ms": None}, {}, {"p50_ms": 4}], "p50_ms") == Value(4.0, 4.0, 4.0, 1)
    assert of_runs([{"p50_ms": None}], "p50_ms") is None


def test_a_conflict_in_one_run_is_not_hidden_by_the_others() -> None:
    found = series("local-bursts", ours=[{"conflicts": 0}, {"conflicts": 0}, {"conflicts": 2}])
    assert value("conflicts", found).number == 2
    assert verdict(BY_KEY["conflicts"], value("conflicts", found), {}).startswith("**missed**, 2 instead of 0")


def test_a_ratio_is_ours_over_the_other_s_with_an_interval() -> None:
    found = series(
        "kube-burst",
        ours=[{"p99_ms": number} for number in (40.0, 41.0, 42.0)],
        go=[{"p99_ms": number} for number in (100.0, 102.0, 104.0)],
    )
    told = value("kube-go-p99", found)
    assert told.number == pytest.approx(41 / 102, abs=1e-4)
    assert told.low is not None
    assert told.high is not None
    assert told.low <= told.number <= told.high < 0.5
    assert BY_KEY["kube-go-p99"].reached(told)


def test_the_go_controller_is_compared_with_the_flags_that_suit_it_better() -> None:
    found = series("kube-burst", ours=[{"p99_ms": 40.0}], go=[{"p99_ms": 100.0}], **{"go-defaults": [{"p99_ms": 80.0}]})
    assert value("kube-go-p99", found).number == 0.5
    found["kube-burst"].sides["go"] = [{"p99_ms": 50.0}]
    assert value("kube-go-p99", found).number == 0.8


def test_one_side_alone_makes_no_ratio() -> None:
    assert BY_KEY["kube-go-p99"].value(series("kube-burst", ours=[{"p99_ms": 1.0}])) is None


def test_memory_is_told_in_kib() -> None:
    assert value("memory", series("local-memory", ours=[{"bytes_per_member": 6 * 1024.0}])).number == 6.0


def test_a_rate_must_be_at_least_the_target() -> None:
    found = series("local-rate", ours=[{"held_rate": 1500.0}])
    told = value("rate", found)
    assert not BY_KEY["rate"].reached(told)
    assert verdict(BY_KEY["rate"], told, {}) == "**missed**, 0.75 of the target: cause not known yet"
    assert BY_KEY["rate"].reached(Value(2000.0, None, None, 1))


def test_a_missed_target_says_by_how_much_and_why() -> None:
    told = Value(90.0, 80.0, 95.0, 5)
    said = verdict(BY_KEY["burst-p99"], told, {"burst-p99": "the disk syncs in 20 ms."})
    assert said == "**missed**, 1.50 times the target: the disk syncs in 20 ms."


def test_a_reason_is_not_told_of_a_target_that_was_reached() -> None:
    assert verdict(BY_KEY["burst-p99"], Value(60.0, None, None, 1), {"burst-p99": "old"}) == "reached"


def test_the_status_of_a_pool_is_no_write_of_a_claim() -> None:
    kinds = {"patch sandboxes": 300, "create pods": 300, "patch sandboxwarmpools/status": 2, "create events": 40}
    found = series("kube-burst", ours=[{"ready": 300, "writes": {"controllers": kinds}}])
    assert value("kube-writes", found).number == 2.0
