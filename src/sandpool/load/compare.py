"""Compares two sides with several runs each: ratios of medians with bootstrap confidence intervals.

A run is a file that `-o json` or `--raw` wrote. Runs under different conditions can be compared; the differences are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import msgspec

from sandpool.load.errors import LoadError
from sandpool.load.record import RunHeader, read_lines

DRAWS = 10_000
CONFIDENCE = 0.95
FEWEST = 3
"""Runs on each side below which an interval says nothing: with two runs a bootstrap sees at most three medians."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """B over A. Without an interval (`low` is None) there were too few runs."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> str:
        if self.low is None or self.high is None:
            return "too few runs"
        if self.high < 1:
            return "lower"
        if self.low > 1:
            return "higher"
        return "no conclusion"


def ratio_of_medians(a: Sequence[float], b: Sequence[float], random: Random, draws: int = DRAWS) -> Ratio | None:
    """Median of `b` over median of `a`, one number for each run. None if `a` is 0 or a side is empty."""
    if not a or not b or median(a) == 0:
        return None
    value = median(b) / median(a)
    if len(a) < FEWEST or len(b) < FEWEST:
        return Ratio(value)
    drawn = sorted(_draws(a, b, random, draws))
    if not drawn:
        return Ratio(value)
    tail = (1 - CONFIDENCE) / 2
    return Ratio(value, _quantile(drawn, tail), _quantile(drawn, 1 - tail))


def _draws(a: Sequence[float], b: Sequence[float], random: Random, draws: int) -> list[float]:
    found = []
    for _ in range(draws):
        below = median(random.choices(a, k=len(a)))
        if below:
            found.append(median(random.choices(b, k=len(b))) / below)
    return found


def _quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, max(0, round(part * (len(ordered) - 1))))]


MEASURES = (
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "max_ms",
    "claims_per_s",
    "first_output_p50_ms",
    "files_p50_ms",
    "writes_per_claim",
    "reconciles_per_claim",
    "warm_fraction",
    "conflicts",
    "server_cpu_s",
    "server_peak_bytes",
    "highest_rate",
)
_CONDITIONS = ("machine", "cores", "kernel", "python", "backend", "durable", "server_version", "cluster")
_LARGEST = 256 << 20


def read_run(path: Path) -> dict[str, Any]:
    """The numbers of one run."""
    if path.stat().st_size > _LARGEST:
        raise LoadError(f"{path} is larger than {_LARGEST >> 20} MiB; compare the JSON results instead")
    with path.open("rb") as file:
        head = file.readline(1 << 20)
    if b'"kind":"run"' in head:
        first = next(iter(read_lines(path)))
        assert isinstance(first, RunHeader)
        return first.result
    try:
        found = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise LoadError(f"{path}: {error}; name a file that `sandpool load -o json` or --raw wrote") from error
    if not isinstance(found, dict) or "claims" not in found or "p50_ms" not in found:
        raise LoadError(f"{path} is not a result of `sandpool load`; name a file that -o json or --raw wrote")
    return found


def read_side(path: Path) -> list[dict[str, Any]]:
    """One run, or all runs in a directory."""
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix in (".json", ".jsonl"))
        if not files:
            raise LoadError(f"{path} has no .json or .jsonl files; put the results of the runs there")
        return [read_run(each) for each in files]
    return [read_run(path)]


def compare(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    random = Random(seed)  # noqa: S311 - to repeat a comparison, not to keep a secret
    measures = {}
    for name in MEASURES:
        left, right = _numbers(a, name), _numbers(b, name)
        if left and right:
            measures[name] = _measure(left, right, ratio_of_medians(left, right, random))
    return {
        "runs": {"a": len(a), "b": len(b)},
        "confidence": CONFIDENCE,
        "seed": seed,
        "measures": measures,
        "differences": _differences(a, b),
    }


def _measure(left: list[float], right: list[float], ratio: Ratio | None) -> dict[str, Any]:
    found: dict[str, Any] = {"a": median(left), "b": median(right), "ratio": None, "low": None, "high": None}
    if ratio is None:
        same = median(left) == median(right)
        return {**found, "verdict": "equal" if same else "no ratio: A is 0"}
    bounds = [None if bound is None else round(bound, 4) for bound in (ratio.low, ratio.high)]
    verdict = "equal" if ratio.low == ratio.high == 1 else ratio.verdict
    return {**found, "ratio": round(ratio.value, 4), "low": bounds[0], "high": bounds[1], "verdict": verdict}


def _numbers(runs: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(run[name]) for run in runs if isinstance(run.get(name), int | float)]


def _differences(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Conditions and loads that are not the same on both sides."""
    found = {}
    for part, names in (
        ("conditions", _CONDITIONS),
        ("load", ("shape", "claims", "rate", "pool_size", "dwell_s", "files_bytes", "connections")),
    ):
        for name in names:
            left = sorted({str((run.get(part) or {}).get(name)) for run in a})
            right = sorted({str((run.get(part) or {}).get(name)) for run in b})
            if left != right:
                found[name] = {"a": left, "b": right}
    return found


def comparison_table(found: Mapping[str, Any]) -> str:
    runs = found["runs"]
    lines = [
        f"{runs['a']} runs of A, {runs['b']} of B; ratios are B over A, with {found['confidence']:.0%} intervals",
        "",
    ]
    lines.append(f"{'':<22}{'A':>14}{'B':>14}{'ratio':>9}  {'interval':<18}B is")
    for name, row in found["measures"].items():
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        interval = "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"
        lines.append(f"{name:<22}{row['a']:>14,.6g}{row['b']:>14,.6g}{ratio:>9}  {interval:<18}{row['verdict']}")
    if min(runs.values()) < FEWEST:
        lines += [
            "",
            f"An interval needs {FEWEST} runs or more on each side: name directories with the results of several runs.",
        ]
    for name, sides in found["differences"].items():
        lines.append(f"not the same: {name}: {', '.join(sides['a'])} against {', '.join(sides['b'])}")
    return "\n".join(lines)
