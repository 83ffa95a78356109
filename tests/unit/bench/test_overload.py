"""What is told of claims that come faster than they can be served."""

from __future__ import annotations

from typing import Any

from bench.local_tables import overload
from bench.overload import KEPT, offered, summed, told
from bench.scenarios import FULL, real
from bench.series import Series
from bench.targets import TARGETS

BY_KEY = {target.key: target for target in TARGETS}


def a_load(rate: float, served: float, warm: float = 1.0, failed: int = 0) -> dict[str, Any]:
    numbers = {**dict.fromkeys(KEPT, 0), "sustained_per_s": served, "warm_fraction": warm, "failed_admitted": failed}
    return {**numbers, "load": {"rate": rate}}


def a_run(*past: dict[str, Any]) -> dict[str, Series]:
    run = {"held_rate": 100.0, "past": list(past), **summed(past)}
    series = Series(scenario="local-overload", title="t", command="c", sides={"ours": [run]}, conditions={})
    return {"local-overload": series}


def test_goodput_is_told_as_a_part_of_capacity() -> None:
    found = a_run(
        told(2.0, 100.0, a_load(200, 97.0), "c"), told(5.0, 100.0, a_load(500, 80.0, warm=0.9, failed=3), "c")
    )
    numbers = {key: target.value(found) for key, target in BY_KEY.items() if key.startswith("overload")}
    assert {key: None if value is None else value.number for key, value in numbers.items()} == {
        "overload-2x": 0.97,
        "overload-5x": 0.8,
        "overload-warm": 0.9,
        "overload-failed": 3.0,
        "overload-real": None,
        "overload-real-failed": None,
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
    run = {"highest_rate": 20.0, "past": [told(2.0, 20.0, a_load(40, 19.0, warm=0.99), "c")]}
    series = Series(scenario="kube-overload", title="t", command="c", sides={"ours": [run]}, conditions={})
    found = {"kube-overload": series}
    numbers = [BY_KEY[key].value(found) for key in ("kube-overload", "kube-overload-warm")]
    assert [value.number for value in numbers if value is not None] == [0.95, 0.99]
    assert overload(found)[2].startswith("| 40.0, 2 times 20.0, Kubernetes | 19.0 |")
