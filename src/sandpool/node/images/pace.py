"""How what holds a place gets on, and whether it is too slow to keep it while others wait. Pure but for the clock it is given.

Nobody is too slow as long as nobody waits. Then whoever got nothing for a while gives way, and so does whoever has less than is due by now.
What is due grows with the square of the time, so a registry cannot keep a place for long by sending just enough: for an image of
20 GiB that is less than two hours, at ever higher speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

T = TypeVar("T")

LOOK: Final = 5.0
"""Seconds between two looks, while somebody waits."""
GRACE: Final = 20.0
"""Seconds in which a place is nobody else's: to look a name up, to log in, to ask for a manifest."""
SILENCE: Final = 20.0
GROWTH: Final = 512
"""Bytes a second that are due on the average, for each second since the place was taken."""


class Place:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = self._at = now()
        self._size = 0
        self._working = 0  # layers of the same pull may be at work at once
        self._entered = 0.0

    def got(self, size: int) -> None:
        """So many bytes came from outside."""
        self._size += size
        self._at = self._now()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """What takes time here is this machine's doing and is not counted."""
        if not self._working:
            self._entered = self._now()
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1
            if not self._working:
                self._at = self._now()
                self._began += self._at - self._entered

    def progress(self) -> float:
        """How much there is of what is due; below 1 is too slow."""
        now = self._now()
        elapsed = now - self._began
        if self._working or elapsed < GRACE:
            return float("inf")
        if now - self._at >= SILENCE:
            return 0.0
        return self._size / (GROWTH * elapsed * elapsed)


def slowest(places: Mapping[T, Place]) -> T | None:
    """Of those that are too slow, the one that has the least of what is due."""
    found = min(places, key=lambda each: places[each].progress(), default=None)
    return found if found is not None and places[found].progress() < 1 else None
