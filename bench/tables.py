"""Tables of what was measured, as Markdown: on one machine, and side by side on Kubernetes, where ratios are the result. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.contenders import TITLES
from bench.targets import Found, Value, of_runs, ratio
from sandpool.load.series import OURS, Series


def number(value: float | None) -> str:
    """Three significant digits; whole numbers from 100 on."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def with_range(value: Value | None, unit: str = "") -> str:
    """`27 ms (25 to 31)`: with the range, or the interval, if there is one."""
    if value is None:
        return "not measured"
    text = f"{number(value.number)} {unit}".strip()
    if value.low is None or value.high is None or value.runs == 1:
        return text
    return f"{text} ({number(value.low)} to {number(value.high)})"


def cell(runs: Sequence[Mapping[str, Any]], measure: str, *, range_too: bool = False) -> str:
    """The median of the runs; of conflicts the maximum, because a single run with conflicts matters."""
    value = of_runs(runs, measure)
    if value is None:
        return "–"
    if measure == "conflicts":
        return number(value.high)
    return with_range(value) if range_too else number(value.number)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Empty without rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, ""] if lines else []


KUBE_COLUMNS = {
    "p50_ms": "p50 ms",
    "p90_ms": "p90 ms",
    "p99_ms": "p99 ms",
    "claims_per_s": "claims/s",
    "warm_fraction": "warm",
    "writes_per_claim": "writes per claim",
    "reconciles_per_claim": "reconciles per claim",
    "conflicts": "most conflicts",
    "refilled_s": "pool full again, s",
}
RATIOS = {
    "p50_ms": "p50",
    "p90_ms": "p90",
    "p99_ms": "p99",
    "writes_per_claim": "writes per claim",
    "reconciles_per_claim": "reconciles per claim",
}


SHORT = ("p50_ms", "p99_ms", "writes_per_claim", "conflicts")


def in_short(found: Found) -> list[str]:
    """One burst, side by side: the numbers behind the ratios."""
    series = found.get("kube-burst")
    if series is None or not series.sides:
        return []
    rows = [
        (TITLES[side], str(len(runs)), *(cell(runs, name, range_too=name.endswith("_ms")) for name in SHORT))
        for side, runs in series.sides.items()
    ]
    return table((f"Kubernetes, {series.title}", "runs", *(KUBE_COLUMNS[name] for name in SHORT)), rows)


def sides(found: Found) -> list[str]:
    lines: list[str] = []
    for name in ("kube-burst", "kube-bursts"):
        if name in found:
            lines += [f"{found[name].title}:", "", *_compared(found[name])]
    return lines


def _compared(series: Series) -> list[str]:
    rows = []
    for side, runs in series.sides.items():
        ready = f"{sum(run['ready'] for run in runs):,} of {sum(run['claims'] for run in runs):,}"
        rows.append((TITLES[side], str(len(runs)), ready, *(cell(runs, measure) for measure in KUBE_COLUMNS)))
    return [*table(("", "runs", "Ready", *KUBE_COLUMNS.values()), rows), *_failures(series), *_ratios(series)]


def _failures(series: Series) -> list[str]:
    failed = series.extra.get("failed_runs", {})
    return [f"Runs that gave no result, {TITLES[side]}: {len(texts)}." for side, texts in failed.items()] + [""] * bool(
        failed
    )


def _ratios(series: Series) -> list[str]:
    """Ours over each other side, with intervals."""
    rows = []
    for side, runs in series.sides.items():
        ratios = [(name, ratio(runs, series.runs, name)) for name in RATIOS]
        if side != OURS:
            rows += [(RATIOS[name], TITLES[side], with_range(value)) for name, value in ratios if value is not None]
    return table(("measure", "ours relative to", "ratio (95 % interval)"), rows)


LOCAL_COLUMNS = {
    "p50_ms": "p50 ms",
    "p90_ms": "p90 ms",
    "p99_ms": "p99 ms",
    "max_ms": "max ms",
    "claims_per_s": "claims/s",
    "warm_fraction": "warm",
    "writes_per_claim": "writes per claim",
    "conflicts": "most conflicts",
}

OVERLOADS = (
    ("local-overload", "held_rate", ""),
    ("local-overload-real", "held_rate", ", real sandboxes"),
    ("kube-overload", "highest_rate", ", Kubernetes"),
)


def claims(found: Found) -> list[str]:
    head = ("what", "runs", "Ready", *LOCAL_COLUMNS.values())
    names = ("local-burst", "local-burst-real", "local-bursts", "local-crowd", "local-cold", "local-cold-real")
    rows = [_row(found[name]) for name in (*names, "local-first-output") if name in found]
    lines = table(head, rows)
    first = found.get("local-first-output")
    if first is not None:
        lines += [
            f"To the first output, {first.title}: p50 {cell(first.runs, 'first_output_p50_ms', range_too=True)} ms, "
            f"p99 {cell(first.runs, 'first_output_p99_ms', range_too=True)} ms ({_times(first)}).",
            "",
        ]
    return lines


def _row(series: Series) -> tuple[str, ...]:
    runs = series.runs
    ready = f"{sum(run['ready'] for run in runs):,} of {sum(run['claims'] for run in runs):,}"
    cells = (cell(runs, measure, range_too=measure in ("p50_ms", "p99_ms")) for measure in LOCAL_COLUMNS)
    return (series.title, str(len(runs)), ready, *cells)


def rate(found: Found) -> list[str]:
    series = found.get("local-rate")
    if series is None:
        return []
    rows = [
        (
            number(run["held_rate"]),
            *(number(run[name]) for name in ("p50_ms", "p99_ms", "max_ms", "warm_fraction")),
            number(run["ramp"]["highest_rate"]),
            ", ".join(_minute(each) for each in run["minutes"]),
            run["minute_limited_by"],
        )
        for run in series.runs
    ]
    head = (
        "held, claims/s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "warm",
        "preceding ramp, claims/s",
        "minutes tried, p99",
        "limited by",
    )
    return table(head, rows)


def _minute(tried: Mapping[str, Any]) -> str:
    p99 = "none Ready" if tried["p99_ms"] is None else f"{number(tried['p99_ms'])} ms"
    failed = f", {tried['failed']:,} failed" if tried["failed"] else ""
    return f"{number(tried['rate'])}/s: {p99}{failed}"


def overload(found: Found) -> list[str]:
    rows = [
        (
            f"{number(each['rate'])}, {each['times']:g} times {number(run[held])}{kind}",
            number(each["sustained_per_s"]),
            number(each["of_capacity"]),
            number(each["warm_fraction"]),
            *(number(each[name]) for name in ("ready", "failed_admitted", "throttled", "turned_away")),
            _inverted(each),
            number(each["p99_ms"]),
        )
        for name, held, kind in OVERLOADS
        if name in found
        for run in found[name].runs
        for each in run["past"]
    ]
    head = (
        *("offered, claims/s", "served, claims/s", "relative to the rate held", "warm", "Ready", "admitted and failed"),
        *("429 responses", "turned away", "served before an older one", "p99 ms"),
    )
    return table(head, rows)


def _inverted(past: Mapping[str, Any]) -> str:
    count = past["inversions"]
    return number(count) if not count else f"{number(count)}, by at most {number(past['inversion_max_ms'])} ms"


def pools(found: Found) -> list[str]:
    sizes = sorted(
        (int(name.rpartition("-")[2]), each) for name, each in found.items() if name.startswith("local-pool-")
    )
    rows = []
    for size, series in sizes:
        against = ratio(sizes[0][1].runs, series.runs, "p50_ms")
        peak = of_runs(series.runs, "server_peak_bytes")
        memory = "–" if peak is None else number(peak.number / (1 << 20))
        spread = [cell(series.runs, name, range_too=True) for name in ("p50_ms", "p99_ms")]
        runs = str(len(series.runs))
        rows.append((f"{size:,}", runs, *spread, with_range(against), cell(series.runs, "server_cpu_s"), memory))
    head = ("members", "runs", "p50 ms", "p99 ms", "p50, relative to the smallest", "server CPU s", "server peak, MiB")
    return [*table(head, rows), *_memory(found)]


def _memory(found: Found) -> list[str]:
    series = found.get("local-memory")
    if series is None:
        return []
    cells = [cell(series.runs, name, range_too=True) for name in ("bytes_per_member", "restarted_bytes_per_member")]
    return [
        f"Memory of the controllers alone (`sandpool controller` in its own process), per member: {cells[0]} bytes in the one "
        f"that filled the pool, {cells[1]} bytes in one that was started afterwards ({_times(series)}).",
        "",
    ]


def moves(found: Found) -> list[str]:
    rows = [
        (found[name].title, str(len(found[name].runs)), cell(found[name].runs, "took_s", range_too=True))
        for name in ("local-refill", "local-refill-real")
        if name in found
    ]
    lines = table(("what", "runs", "seconds"), rows)
    series = found.get("local-rollout")
    if series is None:
        return lines
    before = [run["before"] for run in series.runs]
    compared = [
        (name, *(cell(runs, measure, range_too=True) for measure in ("p50_ms", "p99_ms", "max_ms")), _failed(runs))
        for name, runs in (("before the rollout", before), ("during the rollout", series.runs))
    ]
    took = cell(series.runs, "rollout_s", range_too=True)
    head = (f"{series.title} ({took} s; {_times(series)})", "p50 ms", "p99 ms", "max ms", "failed")
    return [*lines, *table(head, compared)]


def _times(series: Series) -> str:
    count = len(series.runs)
    return "one run" if count == 1 else f"{count} runs"


def _failed(runs: Sequence[Mapping[str, Any]]) -> str:
    return number(sum(run["failed"] for run in runs))
