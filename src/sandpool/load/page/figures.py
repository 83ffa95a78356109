"""Which pictures there are: from records and counts to charts. Pure; what there is nothing to show of is an empty text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandpool.load import distribution as numbers
from sandpool.load.counts import is_aside
from sandpool.load.page.charts import Curve, Frame, Mark, columns, curves, rows
from sandpool.load.page.scales import linear, logarithmic
from sandpool.load.record import ClaimRecord
from sandpool.load.summary import held, waiting
from sandpool.load.table import ms

_POINTS = 400
_BINS = 40
_SAME = 0.02  # part of the p99 by which two curves must differ to be two


def distribution(records: Sequence[ClaimRecord]) -> str:
    wanted = _sorted([record.latency for record in records])
    sent = _sorted([record.latency_from_sent for record in records])
    if not wanted:
        return ""
    output = _sorted([None if r.first_output is None else r.first_output - r.scheduled for r in records])
    everything = [*wanted[:1], *wanted[-1:], *sent[:1], *output[-1:]]
    frame = Frame(logarithmic(min(everything), max(everything)), linear(1), _seconds, _percent, "time, logarithmic")
    drawn = [_ecdf("Ready, from when it was wanted", wanted, "one")]
    if abs(_at(sent, 99) - _at(wanted, 99)) > _SAME * _at(wanted, 99) or abs(_at(sent, 50) - _at(wanted, 50)) > 0.001:
        drawn.append(_ecdf("Ready, from when it was sent", sent, "two"))
    if output:
        drawn.append(_ecdf("first output", output, "three"))
    marks = [Mark(_at(wanted, each), f"p{each} {_seconds(_at(wanted, each))}") for each in (50, 99)]
    return curves(frame, drawn, marks, "Distribution of the time to Ready")


def histogram_of(records: Sequence[ClaimRecord]) -> str:
    samples = [each for each in _sorted([record.latency for record in records]) if each > 0]
    if not samples:
        return ""
    axis = logarithmic(samples[0], samples[-1])
    edges = numbers.log_edges(axis.low, axis.high, _BINS)
    counts = numbers.histogram(samples, edges)
    frame = Frame(axis, linear(max(counts)), _seconds, _count, "time, logarithmic")
    return columns(frame, edges, counts, "one", "Histogram of the time to Ready")


def timeline(records: Sequence[ClaimRecord]) -> str:
    served = [(record.ready, 1) for record in records if record.ready is not None]
    if not served:
        return ""
    end = max(moment for moment, _ in served)
    drawn = [
        _level("waiting", waiting(records), end, "two", filled=True),
        _level("Ready so far", numbers.levels(served), end, "one"),
        _level("Ready and not released", held(records), end, "three"),
    ]
    if drawn[1].points == drawn[2].points:
        drawn.pop()
    top = max(y for curve in drawn for _, y in curve.points)
    frame = Frame(linear(end), linear(top), _axis_seconds(end), _count, "seconds after the start")
    return curves(frame, drawn, label="Claims waiting and Ready over time")


def pool_level(pool: Sequence[tuple[float, int]], records: Sequence[ClaimRecord]) -> str:
    if len(pool) < 2:
        return ""
    end = max(pool[-1][0], *(record.ready or 0.0 for record in records), 1e-3)
    curve = _level("members", pool, end, "four", filled=True)
    top = max(y for _, y in curve.points)
    frame = Frame(linear(end), linear(top or 1), _axis_seconds(end), _count, "seconds after the start")
    return curves(frame, [curve], label="Members of the pool that can be claimed, over time")


def writes(result: Mapping[str, Any]) -> str:
    kinds: Mapping[str, int] = result["writes"].get("controllers") or result["writes"].get("everybody") or {}
    ordered = sorted(kinds.items(), key=lambda item: (is_aside(item[0]), -item[1], item[0]))
    return rows(
        [(kind, count, f"{count:,}", "four" if is_aside(kind) else "one") for kind, count in ordered[:14]], "Writes"
    )


def ramp(result: Mapping[str, Any]) -> str:
    steps = sorted((s for s in result["steps"] if s["p99_ms"] is not None), key=lambda step: step["rate"])
    if len(steps) < 2:
        return ""
    drawn = [
        Curve(name, [(step["rate"], step[key] / 1000) for step in steps], style, stepped=False)
        for name, key, style in (("p99", "p99_ms", "two"), ("p50", "p50_ms", "one"))
    ]
    rates = linear(steps[-1]["rate"])
    limit = result["load"].get("p99_limit_ms")
    if limit is not None:
        drawn.append(
            Curve("what the p99 may be", [(0.0, limit / 1000), (rates.top, limit / 1000)], "three", stepped=False)
        )
    times = [seconds for curve in drawn for _, seconds in curve.points if seconds > 0]
    frame = Frame(rates, logarithmic(min(times), max(times)), _count, _seconds, "claims a second")
    return curves(frame, drawn, _edge(result), "Time to Ready by rate")


def _edge(result: Mapping[str, Any]) -> list[Mark]:
    """The highest rate that was held, and the lowest that was not."""
    broken = min((step["rate"] for step in result["steps"] if not step["held"]), default=None)
    marks = [] if result["highest_rate"] is None else [Mark(result["highest_rate"], "held")]
    return marks if broken is None else [*marks, Mark(broken, "not held")]


def _ecdf(name: str, ordered: Sequence[float], style: str) -> Curve:
    return Curve(name, [(ordered[0], 0.0), *numbers.ecdf(ordered, _POINTS)], style)


def _level(name: str, points: Sequence[tuple[float, int]], end: float, style: str, filled: bool = False) -> Curve:
    inside = [(moment, level) for moment, level in points if moment <= end]
    shown: list[tuple[float, float]] = [*numbers.thinned(inside, _POINTS)]
    if shown:
        shown = [(0.0, shown[0][1] if filled and name == "members" else 0.0), *shown, (end, shown[-1][1])]
    return Curve(name, shown, style, filled=filled)


def _sorted(samples: Sequence[float | None]) -> list[float]:
    return sorted(sample for sample in samples if sample is not None)


def _at(ordered: Sequence[float], percent: float) -> float:
    return numbers.percentile(ordered, percent) or 0.0


def _seconds(value: float) -> str:
    if value >= 1:
        return f"{value:.3g} s"
    return ms(float(f"{value * 1000:.3g}")).replace(".0 ms", " ms")


def _axis_seconds(end: float) -> Callable[[float], str]:
    return (lambda value: f"{value:g}") if end >= 2 else (lambda value: f"{value:.3g}")


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 or not value else f"{value:g}"


def _percent(value: float) -> str:
    return f"{value * 100:.3g} %"
