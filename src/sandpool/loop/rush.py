"""Whether anybody is waited for: what several queues share, so that second lanes rest while there is work in a first one.

One event loop serves all controllers, so a key of one queue takes its time from the keys of all others. A gate before the server
(kube/lanes.py) holds background writes back, but by then they have been decided, which is most of the work.
"""

from __future__ import annotations

from collections.abc import Callable


class Rush:
    """Counts the keys of first lanes that wait for a worker or are with one."""

    __slots__ = ("_calmed", "_urgent")

    def __init__(self) -> None:
        self._urgent = 0
        self._calmed: list[Callable[[], object]] = []

    @property
    def calm(self) -> bool:
        return not self._urgent

    def join(self, calmed: Callable[[], object]) -> None:
        """Tells whenever the last urgent key is done."""
        self._calmed.append(calmed)

    def began(self) -> None:
        self._urgent += 1

    def ended(self) -> None:
        self._urgent -= 1
        if not self._urgent:
            for calmed in self._calmed:
                calmed()
