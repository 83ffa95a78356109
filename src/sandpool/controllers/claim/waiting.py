"""What a claim that waits says about it: its place, and when its turn is expected. Pure, but for moments that are given out.

A wait is told once after a while and again from time to time. When very many wait, telling them all would take the server's time away from serving them, so
that only so many a second are told; `sandpool why` shows the place of each as of the last look at it.
"""

from __future__ import annotations

import math


def waiting_text(pool: str, place: int | None, expected: float | None, trouble: str = "") -> str:
    """`place`: how many are served before; None where there is no line. `trouble`: why members of the pool do not start."""
    if trouble:
        return f"{waiting_text(pool, place, None)}. {trouble}"
    text = f"Waiting for a sandbox of pool {pool} to become ready"
    if place is None:
        return text
    first = "first in line" if place == 0 else f"{place} claims are before it" if place > 1 else "1 claim is before it"
    if expected is None:
        return f"{text}: {first}; when its turn comes cannot be said yet"
    return f"{text}: {first}; its turn is expected in about {max(1, math.ceil(expected))} s"


class Slots:
    """Gives out moments, so many a second."""

    def __init__(self, rate: float) -> None:
        self._step = 1 / rate
        self._next = float("-inf")

    def take(self, now: float) -> float:
        """The next moment that nobody else has."""
        self._next = max(self._next + self._step, now)
        return self._next
