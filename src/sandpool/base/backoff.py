"""How long to wait after the n-th failure of a key: doubling, capped, optionally spread by jitter."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def _middle() -> float:
    return 0.5


class Backoff(Generic[K]):
    """Counts failures per key. `jitter` 0.5 spreads each delay over half to one and a half times its length, where
    `random` gives numbers from 0 up to 1; many clients of one server then do not come back all at once."""

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
        """Counts one more failure; the answer is how long to wait because of it."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._most, self._first * 2.0 ** min(failures, 64))
        return delay * (1 + self._jitter * (2 * self._random() - 1))

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        self._failures.pop(key, None)
