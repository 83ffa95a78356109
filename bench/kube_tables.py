"""Tables of what was measured on Kubernetes: the sides beside each other, and the ratios, which are the result. Pure."""

from __future__ import annotations

from bench.contenders import TITLES
from bench.series import OURS, Series
from bench.targets import Found, ratio
from bench.texts import cell, table, with_range

COLUMNS = {
    "p50_ms": "p50 ms",
    "p90_ms": "p90 ms",
    "p99_ms": "p99 ms",
    "claims_per_s": "claims/s",
    "warm_fraction": "warm",
    "writes_per_claim": "writes each",
    "reconciles_per_claim": "reconciles each",
    "conflicts": "conflicts, at most",
    "refilled_s": "pool full again, s",
}
RATIOS = {
    "p50_ms": "p50",
    "p90_ms": "p90",
    "p99_ms": "p99",
    "writes_per_claim": "writes for each claim",
    "reconciles_per_claim": "reconciles for each claim",
}


SHORT = ("p50_ms", "p99_ms", "writes_per_claim", "conflicts")


def in_short(found: Found) -> list[str]:
    """One burst, side by side: what the ratios are made from."""
    series = found.get("kube-burst")
    if series is None or not series.sides:
        return []
    rows = [
        (TITLES[side], str(len(runs)), *(cell(runs, name, range_too=name.endswith("_ms")) for name in SHORT))
        for side, runs in series.sides.items()
    ]
    return table((f"Kubernetes, {series.title}", "runs", *(COLUMNS[name] for name in SHORT)), rows)


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
        rows.append((TITLES[side], str(len(runs)), ready, *(cell(runs, measure) for measure in COLUMNS)))
    return [*table(("", "runs", "Ready", *COLUMNS.values()), rows), *_failures(series), *_ratios(series)]


def _failures(series: Series) -> list[str]:
    told = series.extra.get("failed_runs", {})
    return [f"Runs that gave no result, {TITLES[side]}: {len(texts)}." for side, texts in told.items()] + [""] * bool(
        told
    )


def _ratios(series: Series) -> list[str]:
    """Ours over each other side, with intervals."""
    rows = []
    for side, runs in series.sides.items():
        told = [(name, ratio(runs, series.runs, name)) for name in RATIOS]
        if side != OURS:
            rows += [(RATIOS[name], TITLES[side], with_range(value)) for name, value in told if value is not None]
    return table(("ours, of", "that of", "ratio (95 % interval)"), rows)
