"""A cache of recently computed values, bounded by their number and by the bytes of memory that they hold.

Bytes matter, because a cached value may keep a whole decoded object in memory, which takes many times its stored size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


_ENTRY = 120  # bytes of one decoded member of an object or a list, or of an empty object or list


def decoded_size(value: bytes) -> int:
    """Estimates the memory of a JSON text plus what is decoded from it, without decoding it. Rather too high than too low: commas and brackets
    inside strings count like separators."""
    wide = 1 if value.isascii() else 4  # bytes per character: Python uses the width of the widest
    return (1 + wide) * len(value) + _ENTRY * (value.count(b",") + value.count(b"{") + value.count(b"["))


class Recent(Generic[K, V]):
    """A cache that drops its oldest entries when there are too many, or when they hold too many bytes."""

    def __init__(self, most: int, size: int) -> None:
        self._most = most
        self._size = size
        self._entries: dict[K, V] = {}
        self._sizes: dict[K, int] = {}
        self._kept = 0  # bytes
        self.get: Callable[[K], V | None] = self._entries.get

    def keep(self, key: K, value: V, size: int) -> V:
        """Adds a value that holds `size` bytes and drops the oldest entries if necessary. The newest is always kept."""
        self._kept += size - self._sizes.get(key, 0)
        self._entries[key] = value
        self._sizes[key] = size
        while len(self._entries) > 1 and (len(self._entries) > self._most or self._kept > self._size):
            self._forget(max(1, len(self._entries) // 4))
        return value

    def _forget(self, count: int) -> None:
        """Drops the oldest entries, many at once: removing one at a time from the front of a dict walks over all removed slots."""
        for old in list(self._entries)[:count]:
            del self._entries[old]
            self._kept -= self._sizes.pop(old)
