"""Objects whose status the API server lately refused to let us write. Pure: time is an argument.

What is refused is tried again at least once a minute (loop/controller.py), so a refusal that is not repeated for three is over: nobody has to
say so, also if the object is gone. At most so many are remembered.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from sandpool.model.metadata import Uid

LASTS = 180.0
"""Seconds after which a refusal that was not repeated is over."""
MOST = 4096


class Refusals:
    def __init__(self, most: int = MOST) -> None:
        self._last: OrderedDict[tuple[str, Uid], float] = OrderedDict()  # what was not refused for longest comes first
        self._most = most

    def add(self, resource: str, uid: Uid, now: float) -> bool:
        """One more refusal. Whether it is news, and not one that is known already."""
        self._forget(now)
        key = (resource, uid)
        known = key in self._last
        self._last[key] = now
        self._last.move_to_end(key)
        if len(self._last) > self._most:
            self._last.popitem(last=False)
        return not known

    def counts(self, now: float) -> Counter[str]:
        """How many objects of each resource."""
        self._forget(now)
        return Counter(resource for resource, _ in self._last)

    def _forget(self, now: float) -> None:
        while self._last and now - next(iter(self._last.values())) > LASTS:
            self._last.popitem(last=False)
