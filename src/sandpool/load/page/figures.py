"""The charts of the page, from records and counts to SVG text with scales. Pure; a chart without data is an empty string.

Colors are CSS classes, so that one style sheet makes them light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from sandpool.load import distribution as numbers
from sandpool.load.counts import is_aside
from sandpool.load.record import ClaimRecord
from sandpool.load.summary import held, waiting
from sandpool.load.table import ms


@dataclass(frozen=True, slots=True)
class Linear:
    """From 0 to a round number that holds `top`."""

    top: float
    step: float

    def place(self, value: float) -> float:
        """0 at the start of the axis, 1 at its end."""
        return min(1.0, max(0.0, value / self.top))

    @property
    def ticks(self) -> list[float]:
        return [number * self.step for number in range(round(self.top / self.step) + 1)]


@dataclass(frozen=True, slots=True)
class Logarithmic:
    low: float
    high: float

    def place(self, value: float) -> float:
        whole = math.log(self.high / self.low)
        return min(1.0, max(0.0, math.log(max(value, self.low) / self.low) / whole))

    @property
    def ticks(self) -> list[float]:
        """1, 2 and 5 of each power of ten; of wide ranges only the powers, of narrow ones evenly spaced round numbers."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1, 2, 5) if last - first <= 3 else (1,)
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        inside = [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]
        if len(inside) >= 3:
            return inside
        step = round_step((self.high - self.low) / 3)
        begin = math.ceil(self.low / step)
        return [number * step for number in range(begin, math.floor(self.high / step) + 1)]


def linear(top: float, ticks: int = 4) -> Linear:
    step = round_step(max(top, 1e-9) / ticks)
    return Linear(step * math.ceil(max(top, 1e-9) / step - 1e-9), step)


def round_step(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= value * 0.9999)


def logarithmic(low: float, high: float) -> Logarithmic:
    """With a little room on both sides."""
    low = max(low, 1e-6)
    return Logarithmic(low * 0.92, max(high, low * 1.05) * 1.08)


WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 34
Axis = Linear | Logarithmic
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    points: Sequence[Point]
    style: str  # a class of the style sheet
    stepped: bool = True
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at a value of the x axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    x: Axis
    y: Axis
    x_text: Callable[[float], str]
    y_text: Callable[[float], str]
    x_name: str

    def left(self, value: float) -> float:
        return LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)

    def height(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - TOP - BOTTOM)


def curves(frame: Frame, drawn: Sequence[Curve], marks: Sequence[Mark] = (), label: str = "") -> str:
    parts = [_open(label), *_axes(frame)]
    parts += [_mark(frame, mark, number) for number, mark in enumerate(marks)]
    parts += [_curve(frame, curve) for curve in drawn if curve.points]
    return "".join([*parts, "</svg>", _legend(drawn)])


def columns(frame: Frame, edges: Sequence[float], counts: Sequence[int], style: str, label: str = "") -> str:
    """A histogram: one column for each bin."""
    parts = [_open(label), *_axes(frame)]
    floor = HEIGHT - BOTTOM
    for begin, end, count in zip(edges, edges[1:], counts, strict=False):
        if count:
            left, right, top = frame.left(begin), frame.left(end), frame.height(count)
            said = escape(f"{frame.x_text(begin)} to {frame.x_text(end)}: {count}")
            parts.append(
                f'<rect class="{style} bar" x="{left + 0.5:.1f}" y="{top:.1f}" width="{max(1.0, right - left - 1):.1f}" '
                f'height="{max(1.0, floor - top):.1f}" rx="1.5"><title>{said}</title></rect>'
            )
    return "".join([*parts, "</svg>"])


def rows(values: Sequence[tuple[str, float, str, str]], label: str = "") -> str:
    """Horizontal bars: name, value, what is written beside it, class. Plain boxes, so that names keep their size on a phone."""
    top = max((value for _, value, _, _ in values), default=0) or 1
    lines = [
        f'<span>{escape(name)}</span><div><i class="{style}" style="width:{value / top * 100:.1f}%"></i></div><b>{escape(text)}</b>'
        for name, value, text, style in values
    ]
    return f'<div class="bars" role="img" aria-label="{escape(label)}">{"".join(lines)}</div>' if lines else ""


def _open(label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">'


def _axes(frame: Frame) -> list[str]:
    floor, parts = HEIGHT - BOTTOM, []
    for tick in frame.y.ticks:
        at = frame.height(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(frame.y_text(tick))}</text>'
        )
    taken = -100.0
    for tick in frame.x.ticks:
        at, text = frame.left(tick), frame.x_text(tick)
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{floor}" y2="{floor + 4}"/>')
        half = 3.2 * len(text)
        if at - half > taken + 6 and at + half < WIDTH:  # no text over another
            parts.append(f'<text class="tick" x="{at:.1f}" y="{floor + 16}" text-anchor="middle">{escape(text)}</text>')
            taken = at + half
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>')
    name = (
        f'<text class="axis-name" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{escape(frame.x_name)}</text>'
    )
    return [*parts, name]


def _curve(frame: Frame, curve: Curve) -> str:
    first = curve.points[0]
    path = [f"M{frame.left(first[0]):.1f} {frame.height(first[1]):.1f}"]
    for x, y in curve.points[1:]:
        left, top = frame.left(x), frame.height(y)
        path.append(f"H{left:.1f}V{top:.1f}" if curve.stepped else f"L{left:.1f} {top:.1f}")
    line = f'<path class="{curve.style} line" d="{"".join(path)}"><title>{escape(curve.name)}</title></path>'
    if not curve.filled:
        return line
    end, floor = frame.left(curve.points[-1][0]), HEIGHT - BOTTOM
    area = f"{''.join(path)}V{floor}H{frame.left(first[0]):.1f}Z"
    return f'<path class="{curve.style} area" d="{area}"/>{line}' if end else line


def _mark(frame: Frame, mark: Mark, number: int) -> str:
    at, floor = frame.left(mark.at), HEIGHT - BOTTOM
    near_end = at > WIDTH * 0.72
    anchor, shift = ("end", -4) if near_end else ("start", 4)
    height = floor - 8 - 15 * number  # one below the other: they may stand close together
    return (
        f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{floor}"/>'
        f'<text class="mark-text" x="{at + shift:.1f}" y="{height}" text-anchor="{anchor}">{escape(mark.text)}</text>'
    )


def _legend(drawn: Sequence[Curve]) -> str:
    if len(drawn) < 2:
        return ""
    keys = "".join(f'<span><i class="{curve.style}"></i>{escape(curve.name)}</span>' for curve in drawn if curve.points)
    return f'<p class="legend">{keys}</p>'


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
