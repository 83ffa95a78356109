"""Statistics of samples: percentiles, histograms, levels over time. Pure, and each has a known answer in a test.

A percentile is the nearest rank: a value that was really measured, never one between two.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """Of sorted samples: the smallest that at least `percent` of them do not exceed. None if there are none."""
    if not ordered:
        return None
    rank = math.ceil(round(percent * len(ordered) / 100, 9))  # rounded: 99.9 % of 1,000 is 999, not 999.0000001
    return ordered[min(len(ordered), max(1, rank)) - 1]


def log_edges(low: float, high: float, bins: int) -> list[float]:
    """Edges of `bins` bins of the same ratio that hold everything from `low` to `high`, both above 0."""
    if high <= low:
        high = low * 1.1
    step = (high / low) ** (1 / bins)
    return [low * step**number for number in range(bins)] + [high]


def histogram(samples: Iterable[float], edges: Sequence[float]) -> list[int]:
    """How many samples are in each bin. Samples outside of the range count in the first or the last one."""
    counts = [0] * (len(edges) - 1)
    for sample in samples:
        counts[min(len(counts) - 1, max(0, bisect_right(edges, sample) - 1))] += 1
    return counts


def blocks(counts: Sequence[int]) -> str:
    """A histogram in one line of text. A bin with anything in it is never blank."""
    top = max(counts, default=0)
    return "".join(BLOCKS[min(7, (count * 8 - 1) // top)] if count else " " for count in counts)


def ecdf(ordered: Sequence[float], points: int) -> list[tuple[float, float]]:
    """The distribution as steps (value, part that does not exceed it), thinned to about `points`, tail kept whole."""
    size = len(ordered)
    if not size:
        return []
    stride = max(1, size // points)
    kept = sorted({*range(stride - 1, size, stride), *range(max(0, size - 20), size)})
    return [(ordered[index], (index + 1) / size) for index in kept]


def levels(steps: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """A level over time from changes (moment, up or down); changes at one moment count together."""
    found: list[tuple[float, int]] = []
    level = 0
    for moment, change in sorted(steps):
        level += change
        if found and found[-1][0] == moment:
            found[-1] = (moment, level)
        else:
            found.append((moment, level))
    return found


def peak(level: Iterable[tuple[float, int]]) -> int:
    return max((value for _, value in level), default=0)


def thinned(points: Sequence[tuple[float, int]], most: int) -> list[tuple[float, int]]:
    """At most about `most` points of a level; of each stretch the lowest, the highest and the last, so no peak is lost."""
    if len(points) <= most:
        return list(points)
    stride = math.ceil(len(points) * 3 / most)
    kept: list[tuple[float, int]] = []
    for start in range(0, len(points), stride):
        part = points[start : start + stride]
        low = min(range(len(part)), key=lambda index: part[index][1])
        high = max(range(len(part)), key=lambda index: part[index][1])
        kept += [part[index] for index in sorted({low, high, len(part) - 1})]
    return kept


def rate(moments: Sequence[float]) -> float | None:
    """Events a second between the first and the last moment; None if it is undefined."""
    if len(moments) < 2:
        return None
    span = max(moments) - min(moments)
    return (len(moments) - 1) / span if span > 0 else None
