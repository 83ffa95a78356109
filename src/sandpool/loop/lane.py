"""Keys that wait for a worker: first in, first out for each party, and parties in turn.

A party is whoever should not wait for the others' keys, such as a namespace: a thousand keys of one hold up another's by one key. Every operation costs
O(1), however many keys and parties there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Lane(Generic[K]):
    """`since`: all keys, and since when each has waited, in the order in which they came; to be read only."""

    __slots__ = ("_party", "_turns", "since")

    def __init__(self, party: Callable[[K], str]) -> None:
        self._party = party
        self.since: OrderedDict[K, float] = OrderedDict()
        # Parties with keys, in the order of their turns.
        self._turns: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()

    @property
    def oldest(self) -> float:
        """Since when the key that came first has waited; there is one."""
        return next(iter(self.since.values()))

    def put(self, key: K, since: float) -> None:
        """A key that is not here yet."""
        self.since[key] = since
        party = self._party(key)
        keys = self._turns.get(party)
        if keys is None:
            self._turns[party] = keys = OrderedDict()
        keys[key] = None

    def pop(self) -> tuple[K, float]:
        """The next key, and since when it has waited; there is one. Its party's next turn comes after everybody else's."""
        party, keys = next(iter(self._turns.items()))
        key, _ = keys.popitem(last=False)
        if not keys:
            del self._turns[party]
        elif len(self._turns) > 1:
            self._turns.move_to_end(party)
        return key, self.since.pop(key)

    def lead(self, key: K) -> None:
        """The key, which is here, is the next of its party."""
        self._turns[self._party(key)].move_to_end(key, last=False)

    def remove(self, key: K) -> float:
        """Takes a key out that is here, and says since when it has waited."""
        party = self._party(key)
        keys = self._turns[party]
        del keys[key]
        if not keys:
            del self._turns[party]
        return self.since.pop(key)
