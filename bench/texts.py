"""Numbers and tables as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.targets import Value, of_runs


def number(value: float | None) -> str:
    """Three digits that count; whole from 100 on."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def with_range(value: Value | None, unit: str = "") -> str:
    """`27 ms (25 to 31)`: the range, or the interval, where there is one."""
    if value is None:
        return "not measured"
    text = f"{number(value.number)} {unit}".strip()
    if value.low is None or value.high is None or value.runs == 1:
        return text
    return f"{text} ({number(value.low)} to {number(value.high)})"


def cell(runs: Sequence[Mapping[str, Any]], measure: str, *, range_too: bool = False) -> str:
    """The median of the runs; of conflicts the most, because one run that had them is one too many."""
    value = of_runs(runs, measure)
    if value is None:
        return "–"
    if measure == "conflicts":
        return number(value.high)
    return with_range(value) if range_too else number(value.number)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Nothing where there is no row."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, ""] if lines else []
