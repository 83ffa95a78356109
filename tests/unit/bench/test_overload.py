"""What is past_row of claims that come faster than they can be served."""

from __future__ import annotations

from typing import Any

from bench.overload import KEPT, offered, past_row, summed
from bench.scenarios import FULL, real
from bench.tables import overload
from bench.targets import TARGETS

from sandpool.load.series import Series

BY_KEY = {target.key: target for target in TARGETS}


def a_load(
    rate: float, served: float, warm: float = 1.0, failed: int = 0, late: float | None = 0.0, inversions: int = 0
) -> dict[str, Any]:
    """`late`: by how many milliseconds somebody was overtaken; None: nobody knows."""
    numbers = {**dict.fromkeys(KEPT, 0), "sustained_per_s": served, "warm_fraction": warm, "failed_admitted": failed}
    order = {"inversions": None if late is None else inversions, "inversion_max_ms": late}
    return {**numbers, **order, "load": {"rate": rate}}


def a_run(*past: dict[str, Any]) -> dict[str, Series]:
    run = {"held_rate": 100.0, "past": list(past), **summed(past)}
    series = Series(scenario="local-overload", title="t", command="c", sides={"ours": [run]}, conditions={})
    return {"local-overload": series}


def test_goodput_is_told_as_a_part_of_capacity() -> None:
    found = a_run(
        past_row(2.0, 100.0, a_load(200, 97.0), "c"), past_row(5.0, 100.0, a_load(500, 80.0, warm=0.9, failed=3), "c")
    )
    numbers = {key: target.value(found) for key, target in BY_KEY.items() if key.startswith("overload")}
    assert {key: None if value is None else value.number for key, value in numbers.items()} == {
        "overload-2x": 0.97,
        "overload-5x": 0.8,
        "overload-warm": 0.9,
        "overload-failed": 3.0,
        "overload-order": 0.0,
        "overload-real": None,
        "overload-real-failed": None,
        "overload-real-order": None,
    }
    assert BY_KEY["kube-overload"].value(found) is None
    assert BY_KEY["overload-2x"].reached(numbers["overload-2x"])  # type: ignore[arg-type]
    assert not BY_KEY["overload-5x"].reached(numbers["overload-5x"])  # type: ignore[arg-type]
    rows = overload(found)
    assert rows[2].startswith("| 200, 2 times 100 | 97.0 | 0.97 | 1 |")


def test_nothing_is_offered_past_what_was_never_held() -> None:
    assert summed([]) == {"warm_past": None, "failed": 0}


def test_the_pool_of_an_overload_is_that_of_a_minute_at_capacity() -> None:
    flags = offered(FULL, 5.0, 250.0, "--backend", "hollow")
    assert flags[flags.index("--pool-size") + 1] == "750"
    assert flags[flags.index("--rate") + 1] == "1250"
    assert flags[-2:] == ("--backend", "hollow")
    assert real(FULL).past == (2.0,)


def test_on_kubernetes_a_ramp_tells_its_own_past() -> None:
    run = {"highest_rate": 20.0, "past": [past_row(2.0, 20.0, a_load(40, 19.0, warm=0.99), "c")]}
    series = Series(scenario="kube-overload", title="t", command="c", sides={"ours": [run]}, conditions={})
    found = {"kube-overload": series}
    numbers = [BY_KEY[key].value(found) for key in ("kube-overload", "kube-overload-warm")]
    assert [value.number for value in numbers if value is not None] == [0.95, 0.99]
    assert overload(found)[2].startswith("| 40.0, 2 times 20.0, Kubernetes | 19.0 |")


def kubernetes(*past: dict[str, Any]) -> dict[str, Series]:
    runs = [{"highest_rate": 20.0, "past": [each]} for each in past]
    series = Series(scenario="kube-overload", title="t", command="c", sides={"ours": runs}, conditions={})
    return {"kube-overload": series}


def number(key: str, found: dict[str, Series]) -> float:
    value = BY_KEY[key].value(found)
    assert value is not None
    return value.number


def reached(key: str, found: dict[str, Series]) -> bool:
    value = BY_KEY[key].value(found)
    assert value is not None
    return BY_KEY[key].reached(value)


def test_within_one_commit_claims_may_be_served_in_any_order_and_beyond_it_never() -> None:
    within = past_row(2.0, 100.0, a_load(200, 97.0, late=12.0, inversions=7), "c")
    beyond = past_row(5.0, 100.0, a_load(500, 97.0, late=900.0, inversions=1), "c")
    assert reached("overload-order", a_run(within))
    assert number("overload-order", a_run(within, beyond)) == 900.0, "the one that was right hides nothing"
    assert not reached("overload-order", a_run(within, beyond))
    assert "| 7, by at most 12.0 ms |" in overload(a_run(within))[2]


def test_an_order_that_nobody_knows_is_not_measured() -> None:
    found = a_run(past_row(2.0, 100.0, a_load(200, 97.0, late=None), "c"))
    assert BY_KEY["overload-order"].value(found) is None
    assert "| 0 | – | 0 |" in overload(found)[2]


def test_real_sandboxes_are_served_in_order_too() -> None:
    series = a_run(past_row(2.0, 30.0, a_load(60, 29.0, late=51.0, inversions=1), "c"))["local-overload"]
    found = {"local-overload-real": series}
    assert not reached("overload-real-order", found)
    assert BY_KEY["overload-order"].value(found) is None


def test_on_kubernetes_claims_of_one_second_are_as_old_as_each_other() -> None:
    good, bad = (past_row(2.0, 20.0, a_load(40, 19.0, late=late, inversions=3), "c") for late in (999.0, 1001.0))
    assert reached("kube-overload-order", kubernetes(good))
    assert not reached("kube-overload-order", kubernetes(bad, good, good)), "the median would hide it"


def test_on_kubernetes_one_failed_claim_of_all_runs_is_one_too_many() -> None:
    good, bad = (past_row(2.0, 20.0, a_load(40, 19.0, failed=failed), "c") for failed in (0, 1))
    assert reached("kube-overload-failed", kubernetes(good, good))
    assert number("kube-overload-failed", kubernetes(good, bad, good)) == 1.0
