"""Keys that wait for a worker: first in, first out within a flow, and flows take turns.

A flow is a group of keys that should not wait for the keys of others, such as those of a namespace: a thousand keys of one namespace delay another's by
one key. Every operation costs O(1), however many keys and flows there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class FairQueue(Generic[K]):
    """Waiting keys of all flows. `since`: all keys in order of arrival, with the time since when each has waited; read-only."""

    __slots__ = ("_flow", "_turns", "since")

    def __init__(self, flow: Callable[[K], str]) -> None:
        self._flow = flow
        self.since: OrderedDict[K, float] = OrderedDict()
        # Flows with keys, in the order of their turns.
        self._turns: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()

    @property
    def oldest(self) -> float:
        """Since when the oldest key has waited. Not to be called when empty."""
        return next(iter(self.since.values()))

    def put(self, key: K, since: float) -> None:
        """Adds a key that is not in the queue."""
        self.since[key] = since
        flow = self._flow(key)
        keys = self._turns.get(flow)
        if keys is None:
            self._turns[flow] = keys = OrderedDict()
        keys[key] = None

    def pop(self) -> tuple[K, float]:
        """Removes the next key; returns it and since when it has waited. Its flow goes to the end of the turns. Not to be called when empty."""
        return self._pop(next(iter(self._turns)))

    def pop_from(self, may: Callable[[str], bool]) -> tuple[K, float] | None:
        """As `pop`, of the flows for which `may` is true; None if none of them has a key. The other flows keep their turns."""
        flow = next(filter(may, self._turns), None)
        return None if flow is None else self._pop(flow)

    def flow(self, key: K) -> str:
        return self._flow(key)

    def _pop(self, flow: str) -> tuple[K, float]:
        keys = self._turns[flow]
        key, _ = keys.popitem(last=False)
        if not keys:
            del self._turns[flow]
        elif len(self._turns) > 1:
            self._turns.move_to_end(flow)
        return key, self.since.pop(key)

    def lead(self, key: K) -> None:
        """Moves a waiting key to the front of its flow."""
        self._turns[self._flow(key)].move_to_end(key, last=False)

    def remove(self, key: K) -> float:
        """Removes a waiting key; returns since when it has waited."""
        flow = self._flow(key)
        keys = self._turns[flow]
        del keys[key]
        if not keys:
            del self._turns[flow]
        return self.since.pop(key)
