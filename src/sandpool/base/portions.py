"""How much of what a client sends is taken apart at once: little, until it is known to come in large pieces. Pure.

A protocol lets its sender cut a stream as finely as it likes: frames, or chunks, of one byte. Taking those apart costs by their number, not
by their bytes. So what came is looked at in portions, and each is weighed (base/turns.py) by what it may cost.
"""

from __future__ import annotations

from typing import Final

from sandpool.base.turns import BYTES

LEAST: Final = 4 * 1024
MOST: Final = BYTES
FINE: Final = 256
"""Bytes for each piece below which they count as many."""
EACH: Final = 512
"""Bytes that every look counts beside its own."""


CARRIED: Final = 1 << 20
"""Bytes that are only carried from one side to the other before others have a turn, however much there still is."""
SMALLEST: Final = 64 * 1024
"""Bytes that a piece counts for that is smaller: it takes as long."""


class Carried:
    """What one connection has carried since its last turn. Who has one piece to carry asks nobody; of many who go on only some do at once."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent = CARRIED - 2 * SMALLEST

    def due(self, size: int) -> bool:
        """Counts a piece; whether others have their turn now."""
        self._spent += max(size, SMALLEST)
        if self._spent < CARRIED:
            return False
        self._spent = 0
        return True


class Portions:
    __slots__ = ("_found", "_given", "_size")

    def __init__(self) -> None:
        self._size = LEAST
        self._given = 0  # bytes of the last portion
        self._found = 0  # pieces in it

    def found(self, pieces: int) -> None:
        """In the portion in hand; protocols above each other may both tell."""
        self._found += pieces

    def cut(self, available: int) -> int:
        """How many of so many bytes to look at now."""
        if self._found * FINE > self._given:
            self._size = LEAST
        elif self._given == self._size:
            self._size = min(MOST, 2 * self._size)
        self._found = 0
        self._given = min(available, self._size)
        return self._given

    @property
    def weight(self) -> int:
        """Of the portion in hand, as bytes that are quickly worked through."""
        return (EACH + self._given) * (MOST // self._size)
