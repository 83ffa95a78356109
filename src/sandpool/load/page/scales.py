"""Axes: from values to places in a picture, and where their ticks are. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


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
