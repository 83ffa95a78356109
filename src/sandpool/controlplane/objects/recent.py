"""The newest things that were worked out, to be worked out once: bounded by number and by the bytes that they were made of.

Bytes count because whoever keeps something made of an object keeps megabytes, if that is how large the object is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    def __init__(self, most: int, size: int) -> None:
        self._most = most
        self._size = size
        self._entries: dict[K, V] = {}
        self._sizes: dict[K, int] = {}
        self._kept = 0  # bytes
        self.get: Callable[[K], V | None] = self._entries.get

    def keep(self, key: K, value: V, size: int) -> V:
        """Keeps a value made of so many bytes; the oldest ones make room. The newest is always kept."""
        self._kept += size - self._sizes.get(key, 0)
        self._entries[key] = value
        self._sizes[key] = size
        while len(self._entries) > 1 and (len(self._entries) > self._most or self._kept > self._size):
            self._forget(max(1, len(self._entries) // 4))
        return value

    def _forget(self, count: int) -> None:
        """The oldest, many at once: taking one at a time from the front of a dict walks over all that went before."""
        for old in list(self._entries)[:count]:
            del self._entries[old]
            self._kept -= self._sizes.pop(old)
