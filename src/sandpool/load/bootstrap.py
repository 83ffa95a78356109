"""How sure a ratio is: bootstrap confidence intervals from repeated runs. Pure; the draws come from a seeded Random.

Runs are drawn with replacement on both sides, because runs differ from each other more than the claims within one do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

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
    """Median of `b` over median of `a`, one number for each run. None where `a` is 0 or a side is empty."""
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
