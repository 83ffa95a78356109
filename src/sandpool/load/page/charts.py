"""Pictures as SVG text. Colours are classes, so that one style sheet makes them light or dark. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from sandpool.load.page.scales import Linear, Logarithmic

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
