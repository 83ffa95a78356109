"""Ready members by node. The next one comes from the node that has most left, oldest first; each operation is O(1).

Nodes stand in levels by how many members they have here. One step moves a node one level up or down, so the highest level
in use is known without looking for it. Members without a node are used last.
An OrderedDict finds its first key at once; a plain dict would walk over everything that was removed from its front.
"""

from __future__ import annotations

from collections import OrderedDict

from sandpool.model.metadata import Uid

NOWHERE = ""

Ordered = OrderedDict[Uid, None]


class Shelf:
    def __init__(self) -> None:
        self._nodes: dict[str, Ordered] = {}  # never an empty one
        self._levels: dict[int, OrderedDict[str, None]] = {}  # named nodes by the number of their members
        self._highest = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, uid: Uid, node: str) -> None:
        members = self._nodes.get(node)
        if members is None:
            members = self._nodes[node] = OrderedDict()
        members[uid] = None
        self._size += 1
        self._move(node, len(members) - 1, len(members))

    def remove(self, uid: Uid, node: str) -> None:
        members = self._nodes[node]
        del members[uid]
        if not members:
            del self._nodes[node]
        self._size -= 1
        self._move(node, len(members) + 1, len(members))

    def first(self) -> Uid | None:
        """The member to use next; it stays."""
        if not self._size:
            return None
        node = next(iter(self._levels[self._highest])) if self._highest else NOWHERE
        return next(iter(self._nodes[node]))

    def _move(self, node: str, old: int, new: int) -> None:
        if node == NOWHERE:
            return
        if old:
            level = self._levels[old]
            del level[node]
            if not level:
                del self._levels[old]
        if new:
            self._levels.setdefault(new, OrderedDict())[node] = None
        # The node itself is one step away from where it was, so a highest level that is now empty has it just below.
        if new > self._highest or (old == self._highest and old not in self._levels):
            self._highest = new
