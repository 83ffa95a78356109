"""How long to wait before a retry: doubling, capped, optionally with jitter.

`doubled` is the rule. `Backoff` counts failures by key. `Streak` counts how often something happened recently.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def doubled(first: float, times: int, most: float) -> float:
    """Seconds to wait: `first`, doubled `times` times, at most `most`."""
    return min(most, first * 2.0 ** min(times, 64))


def _middle() -> float:
    return 0.5


class Backoff(Generic[K]):
    """Counts failures per key. A `jitter` of 0.5 spreads each delay over half to one and a half times its length, so that many clients of
    one server do not retry all at once. `random` returns numbers from 0 up to 1."""

    def __init__(
        self,
        first: float = 0.005,
        most: float = 1000.0,
        *,
        jitter: float = 0.0,
        random: Callable[[], float] = _middle,
    ) -> None:
        self._first = first
        self._most = most
        self._jitter = jitter
        self._random = random
        self._failures: dict[K, int] = {}

    def next(self, key: K) -> float:
        """Counts a failure; returns the seconds to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = doubled(self._first, failures, self._most)
        return delay * (1 + self._jitter * (2 * self._random() - 1))

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        self._failures.pop(key, None)


RESPITE = 30.0
"""Seconds after which something that did not happen again counts as over."""
LONGEST = 16.0


@dataclass(slots=True)
class Streak:
    """How often something happened recently, and how long to wait before it may happen again: at first not at all, then doubling.

    For actions that are right once but harmful in a loop, such as re-creating a deleted object or correcting another writer's status: without
    a delay, two writers that undo each other's work would never stop. Times are monotonic, in seconds.
    """

    at: float | None = None  # the last time; None: never
    times: int = 0  # how often it happened again within RESPITE

    def count(self, now: float) -> None:
        """Counts one occurrence."""
        recent = self.at is not None and now - self.at <= RESPITE
        self.at, self.times = now, self.times + 1 if recent else 0

    def delay(self, first: float) -> float:
        """Seconds to wait after the last occurrence: none after the first, `first` after the second, then doubling."""
        return doubled(first, self.times - 1, LONGEST) if self.times else 0.0

    def end(self) -> None:
        self.at, self.times = None, 0
