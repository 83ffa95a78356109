"""How many connections there may be: of one pod, and below the number of all pods together. Who finds none free is called back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Free = Callable[[], bool]
"""Told that a slot is free; answers whether it still wants one."""


class Slots:
    def __init__(self, limit: int, above: Slots | None = None) -> None:
        self._free = limit
        self._above = above
        self._waiting: deque[Free] = deque()

    def take(self) -> bool:
        if self._free == 0 or (self._above is not None and not self._above.take()):
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        self._free += 1
        if self._above is not None:
            self._above.give_back()
        while self._waiting and not self._waiting.popleft()():
            pass

    def wait(self, free: Free) -> None:
        """After a `take` that failed: calls back once when it is worth another one."""
        if self._free == 0 or self._above is None:
            self._waiting.append(free)
        else:
            self._above.wait(free)
