"""The targets, and whether they were reached: pure functions from results to verdicts.

A number of a series is the median of its runs; a ratio is that of two medians, with the interval that `sandpool load compare` gives.
Why a target was missed is written by hand in `why.toml`, under the target's key, because no number shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.contenders import FLOOR, GO, GO_DEFAULTS
from sandpool.load.compare import compare
from sandpool.load.counts import is_aside
from sandpool.load.series import OURS, Series

SEED = 1
POOL_STATUS = "patch sandboxwarmpools/status"
KIB = 1024
COMMIT = 50.0
"""Milliseconds between the news of two writes of one commit, at most: its fsync, and the event loop that hands out its events."""
SECOND = 1000.0
KUBE_OVERLOAD = "kube-overload"
Found = Mapping[str, Series]


@dataclass(frozen=True, slots=True)
class Value:
    """`low` and `high` are the range of the runs, or the interval of a ratio."""

    number: float
    low: float | None
    high: float | None
    runs: int


@dataclass(frozen=True, slots=True)
class Target:
    key: str
    what: str
    limit: float
    unit: str
    value: Callable[[Found], Value | None]
    at_least: bool = False

    def reached(self, value: Value) -> bool:
        return value.number >= self.limit if self.at_least else value.number <= self.limit

    def missed_by(self, value: Value) -> str:
        """How far away it is, in times the target; a target of 0 in its own unit."""
        if not self.limit:
            return f"{value.number:g} instead of 0"
        if self.at_least:
            return f"{value.number / self.limit:.2f} of the target"
        return f"{value.number / self.limit:.2f} times the target"


def of_runs(runs: Sequence[Mapping[str, Any]], measure: str) -> Value | None:
    numbers = [float(run[measure]) for run in runs if isinstance(run.get(measure), int | float)]
    if not numbers:
        return None
    return Value(median(numbers), min(numbers), max(numbers), len(numbers))


def _median(scenario: str, measure: str, unit: float = 1, side: str = OURS) -> Callable[[Found], Value | None]:
    def value(found: Found) -> Value | None:
        measured = of_runs(found[scenario].sides.get(side, []), measure) if scenario in found else None
        if measured is None or unit == 1:
            return measured
        return Value(measured.number / unit, (measured.low or 0) / unit, (measured.high or 0) / unit, measured.runs)

    return value


_COMPARED: dict[tuple[int, ...], tuple[Any, Any, Any]] = {}


def _compared(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> Any:
    """All measures of the same runs at once: the draws are what takes long. Runs are kept, so that no other can have their identity."""
    key = (*map(id, a), 0, *map(id, b))
    if key not in _COMPARED:
        _COMPARED[key] = tuple(a), tuple(b), compare(a, b, SEED)
    return _COMPARED[key][2]


def ratio(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]], measure: str) -> Value | None:
    """B over A."""
    if not a or not b:
        return None
    row = _compared(a, b)["measures"].get(measure)
    if row is None or row["ratio"] is None:
        return None
    return Value(row["ratio"], row["low"], row["high"], min(len(a), len(b)))


def _sides(scenario: str, other: str, measure: str) -> Callable[[Found], Value | None]:
    """Ours over the other's."""

    def value(found: Found) -> Value | None:
        if scenario not in found:
            return None
        return ratio(found[scenario].sides.get(other, []), found[scenario].runs, measure)

    return value


def _against_go(scenario: str, measure: str) -> Callable[[Found], Value | None]:
    """Ours over the Go controller's, with its better set of flags, so that the comparison is fair."""

    def value(found: Found) -> Value | None:
        if scenario not in found:
            return None
        sides = found[scenario].sides
        measured = {side: of_runs(sides.get(side, []), measure) for side in (GO, GO_DEFAULTS)}
        best = min((each.number, side) for side, each in measured.items() if each) if any(measured.values()) else None
        return None if best is None else ratio(sides[best[1]], found[scenario].runs, measure)

    return value


def _scenarios(a: str, b: str, measure: str) -> Callable[[Found], Value | None]:
    def value(found: Found) -> Value | None:
        return ratio(found[a].runs, found[b].runs, measure) if a in found and b in found else None

    return value


def _worst(scenario: str, measure: str) -> Callable[[Found], Value | None]:
    """The maximum of all runs: for what should never happen, which a median would hide."""

    def value(found: Found) -> Value | None:
        measured = of_runs(found[scenario].runs, measure) if scenario in found else None
        return (
            None
            if measured is None or measured.high is None
            else Value(measured.high, measured.low, measured.high, measured.runs)
        )

    return value


def _own_writes(scenario: str) -> Callable[[Found], Value | None]:
    """Writes of controllers for each claim that was served, without those for many claims at once, whose number depends on
    how long a burst takes, not on the cost of a claim."""

    def value(found: Found) -> Value | None:
        runs = found[scenario].runs if scenario in found else []
        known = [(run["writes"]["controllers"], run["ready"]) for run in runs if run.get("writes") and run["ready"]]
        measured = [{"each": _own(kinds) / ready} for kinds, ready in known if kinds]
        return of_runs(measured, "each")

    return value


def _own(kinds: Mapping[str, int]) -> int:
    return sum(count for kind, count in kinds.items() if not is_aside(kind) and kind != POOL_STATUS)


def _past(found: Found, scenario: str) -> list[Mapping[str, Any]]:
    """The measurements past capacity."""
    return [past for run in (found[scenario].runs if scenario in found else []) for past in run["past"]]


def _past_a_ramp(measure: str) -> Callable[[Found], Value | None]:
    """Of `sandpool load ramp --past`: what was served past the rate that it found."""
    return lambda found: of_runs(_past(found, KUBE_OVERLOAD), measure)


def _worst_past(scenario: str, measure: str) -> Callable[[Found], Value | None]:
    """Of all times that more was offered, in all runs."""

    def value(found: Found) -> Value | None:
        measured = of_runs(_past(found, scenario), measure)
        return (
            None
            if measured is None or measured.high is None
            else Value(measured.high, measured.low, measured.high, measured.runs)
        )

    return value


def _in_order(key: str, scenario: str, limit: float, within: str) -> Target:
    """A claim may be served before an older one of its pool only `within` what has no order of its own."""
    what = f"the same: longest time by which a claim was served after a younger one of its pool ({within})"
    return Target(key, what, limit, "ms", _worst_past(scenario, "inversion_max_ms"))


def _served(key: str, what: str, scenario: str, times: int) -> Target:
    return Target(key, what, 0.9, "times", _median(scenario, f"of_capacity_{times}x"), at_least=True)


def _past_capacity() -> tuple[Target, ...]:
    local, real = "local-overload", "local-overload-real"
    rate, failed = "served per second, relative to that rate", "the same: admitted claims that failed"
    warm = "the same: fraction served by warm members, the lower of the two"
    one_commit = "writes of one commit are unordered"
    return (
        _served("overload-2x", f"one machine, twice that rate offered for 30 s: {rate}", local, 2),
        _served("overload-5x", "the same, 5 times that rate offered", local, 5),
        Target("overload-warm", warm, 0.95, "", _median(local, "warm_past"), at_least=True),
        Target("overload-failed", failed, 0, "", _worst(local, "failed")),
        _in_order("overload-order", local, COMMIT, one_commit),
        _served(
            "overload-real",
            f"one machine, real sandboxes, twice their highest rate offered for 30 s: {rate}",
            real,
            2,
        ),
        Target("overload-real-failed", failed, 0, "", _worst(real, "failed")),
        _in_order("overload-real-order", real, COMMIT, one_commit),
    )


def _past_capacity_of_a_server() -> tuple[Target, ...]:
    rate = "served per second, relative to that rate"
    what = f"Kubernetes, twice the highest rate offered for 30 s: {rate}"
    warm, failed = "the same: fraction served by warm members", "the same: admitted claims that failed"
    return (
        Target("kube-overload", what, 0.9, "times", _past_a_ramp("of_capacity"), at_least=True),
        Target("kube-overload-warm", warm, 0.95, "", _past_a_ramp("warm_fraction"), at_least=True),
        Target("kube-overload-failed", failed, 0, "", _worst_past(KUBE_OVERLOAD, "failed_admitted")),
        _in_order("kube-overload-order", KUBE_OVERLOAD, SECOND, "creation times have a resolution of one second"),
    )


BURST = "300 claims at once on a pool of 600"
TARGETS = (
    Target("burst-p50", f"one machine, {BURST}: p50 to Ready", 30, "ms", _median("local-burst", "p50_ms")),
    Target("burst-p99", f"one machine, {BURST}: p99 to Ready", 60, "ms", _median("local-burst", "p99_ms")),
    Target(
        "rate",
        "one machine, highest rate held for a minute with a p99 within 100 ms, refill included",
        2000,
        "claims/s",
        _median("local-rate", "held_rate"),
        at_least=True,
    ),
    *_past_capacity(),
    *_past_capacity_of_a_server(),
    Target(
        "first-output",
        "one machine, 100 claims at once on real sandboxes: p50 to the first output of a command",
        350,
        "ms",
        _median("local-first-output", "first_output_p50_ms"),
    ),
    Target(
        "pool-growth",
        "p50 to Ready on a pool of 10,000, relative to a pool of 100",
        1.2,
        "times",
        _scenarios("local-pool-100", "local-pool-10000", "p50_ms"),
    ),
    Target("memory", "controller memory per pool member", 6, "KiB", _median("local-memory", "bytes_per_member", KIB)),
    Target(
        "kube-go-p50",
        f"Kubernetes, {BURST}: p50, relative to the Go controller",
        0.5,
        "times",
        _against_go("kube-burst", "p50_ms"),
    ),
    Target(
        "kube-go-p99", "the same: p99, relative to the Go controller", 0.5, "times", _against_go("kube-burst", "p99_ms")
    ),
    Target(
        "kube-floor-p99", "the same: p99, relative to the floor", 1.5, "times", _sides("kube-burst", FLOOR, "p99_ms")
    ),
    Target(
        "kube-writes",
        "the same: controller writes per claim, excluding the pool's status, one write for many claims",
        8,
        "",
        _own_writes("kube-burst"),
    ),
    Target(
        "kube-go-writes",
        "the same: writes per claim, relative to the Go controller",
        0.5,
        "times",
        _against_go("kube-burst", "writes_per_claim"),
    ),
    Target("conflicts", "one machine, conflicts in 5 bursts of 300", 0, "", _worst("local-bursts", "conflicts")),
    Target("kube-conflicts", "Kubernetes, conflicts in 5 bursts of 300", 0, "", _worst("kube-bursts", "conflicts")),
)
