"""Who is next when several wait: turns in proportion to weights (stride scheduling). Counts only; nothing here waits.

Whoever waits gets its share of the turns, whatever the others want; nobody's share is kept free while it does not wait, and
having waited for nothing earns no credit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Turns:
    """Parties are numbered from 0; each has a weight above 0."""

    __slots__ = ("_next", "_now", "_strides")

    def __init__(self, weights: Sequence[float]) -> None:
        self._strides = [1.0 / weight for weight in weights]
        self._next = [0.0] * len(weights)  # the virtual time of each one's next turn
        self._now = 0.0

    def joined(self, party: int) -> None:
        """It begins to wait: its next turn is not in the past."""
        if self._next[party] < self._now:
            self._next[party] = self._now

    def choose(self, waiting: Iterable[int]) -> int:
        """Whose turn it is, of those that wait; of equals the one that is named first."""
        return min(waiting, key=self._next.__getitem__)

    def took(self, party: int) -> None:
        self._now = max(self._now, self._next[party])
        self._next[party] = self._now + self._strides[party]
