"""Queues that are served in turn, one item from each, so that the longest does not hold up the others."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Rotation(Generic[T]):
    """First in, first out for each key; round robin between keys."""

    __slots__ = ("_queues", "_size")

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}  # in the order of their turns
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def keys(self) -> set[str]:
        return set(self._queues)

    def waiting(self, key: str) -> int:
        return len(self._queues.get(key, ()))

    def push(self, key: str, item: T) -> None:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append(item)
        self._size += 1

    def next_key(self) -> str:
        """Whose turn it is; there is somebody."""
        return next(iter(self._queues))

    def pass_over(self) -> None:
        """Its turn comes after everybody else's; what waits for it keeps its order."""
        key = self.next_key()
        self._queues[key] = self._queues.pop(key)

    def pop(self) -> tuple[str, T]:
        """The next item, and its key, whose next turn comes after everybody else's. KeyError if nothing waits."""
        if not self._size:
            raise KeyError("nothing waits")
        key = self.next_key()
        queue = self._queues.pop(key)
        item = queue.popleft()
        if queue:
            self._queues[key] = queue
        self._size -= 1
        return key, item

    def remove(self, key: str, item: T) -> None:
        """Takes an item out of the middle, if it still waits: whoever gives up may have been passed over already."""
        queue = self._queues.get(key)
        if queue is None or item not in queue:
            return
        queue.remove(item)
        self._size -= 1
        if not queue:
            del self._queues[key]
