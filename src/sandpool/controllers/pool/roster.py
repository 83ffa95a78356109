"""The members of one pool, kept in the order in which decisions need them. Every step costs the same in large pools.

The orders are sorted lists: finding a place takes a few comparisons, making room moves memory in one piece.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from sandpool.controllers.pool.member import FRESH_UNREADY, STALE_UNREADY, Member, Rank
from sandpool.model.metadata import Uid

Placed = tuple[datetime, Uid]
_READY = (Rank.STALE_READY, Rank.FRESH_READY)
_FRESH = (*FRESH_UNREADY, Rank.FRESH_READY)
_STALE = (*STALE_UNREADY, Rank.STALE_READY)
_LAST = Uid(chr(0x10FFFF))  # sorts behind every uid


class Roster:
    """`grace`: seconds that a member may be not Ready. Each generation that nobody survived doubles it for the next one, up to
    `longest`; the first member that becomes Ready ends that."""

    def __init__(self, grace: float, longest: float) -> None:
        self._grace = grace
        self._longest = max(grace, longest)
        self._members: dict[Uid, Member] = {}
        self._ranks: dict[Rank, list[Placed]] = {rank: [] for rank in Rank}  # by creation
        self._due: list[Placed] = []  # placed and not ready: when its patience ends
        self._unplaced_due: list[Placed] = []
        self._unmarked: dict[Uid, None] = {}
        self._failing: dict[Uid, None] = {}
        self._patience: dict[Uid, int] = {}  # the level that a member came in
        self.level = 0
        self.leaving = 0

    # What is there

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def get(self, uid: Uid) -> Member | None:
        return self._members.get(uid)

    def count(self, ranks: Iterable[Rank]) -> int:
        """How many members of these ranks stay."""
        found = 0
        for rank in ranks:
            found += len(self._ranks[rank])
        return found

    @property
    def staying(self) -> int:
        return len(self._members) - self.leaving

    @property
    def ready(self) -> int:
        return self.count(_READY)

    @property
    def fresh(self) -> int:
        return self.count(_FRESH)

    @property
    def stale(self) -> int:
        return self.count(_STALE)

    def of(self, ranks: Iterable[Rank]) -> Iterator[Member]:
        """The members of these ranks that stay, rank by rank, the youngest first."""
        for rank in ranks:
            for _, uid in reversed(self._ranks[rank]):
                yield self._members[uid]

    def overdue(self, now: datetime) -> Iterator[Member]:
        """Not ready for longer than their patience, though they have a node."""
        for due, uid in self._due:
            if due > now:
                return
            yield self._members[uid]

    def unplaced(self, now: datetime) -> Member | None:
        """One that has been looking for a node for too long."""
        first = self._unplaced_due[0] if self._unplaced_due else None
        return self._members[first[1]] if first is not None and first[0] <= now else None

    def next_due(self, now: datetime) -> datetime | None:
        """When the next member's patience ends."""
        found: list[datetime] = []
        for order in (self._due, self._unplaced_due):
            index = bisect_right(order, (now, _LAST))
            if index < len(order):
                found.append(order[index][0])
        return min(found, default=None)

    def warming(self, after: datetime) -> int:
        """Fresh members that were made after that moment and are not ready yet."""
        found = 0
        for rank in FRESH_UNREADY:
            order = self._ranks[rank]
            found += len(order) - bisect_right(order, (after, _LAST))
        return found

    def unmarked(self) -> Iterator[Member]:
        return (self._members[uid] for uid in self._unmarked)

    def failing(self) -> Iterator[Member]:
        """Something is wrong with them; longest known first."""
        return (self._members[uid] for uid in self._failing)

    # What changes it

    def put(self, member: Member) -> Member | None:
        """It is there, with these facts; the answer is what was known before."""
        old = self._members.get(member.uid)
        if old is not None:
            self._take_out(old)
            if member.ready and not old.ready:
                self.level = 0
        else:
            self._patience[member.uid] = self.level
        self._members[member.uid] = member
        self._put_in(member)
        return old

    def drop(self, uid: Uid) -> Member | None:
        member = self._members.get(uid)
        if member is not None:
            self._take_out(member)
            del self._members[uid], self._patience[uid]
        return member

    def strike(self, member: Member) -> None:
        """It never became ready and is given up. The first of a generation doubles the patience with the next."""
        if self._patience.get(member.uid) == self.level:
            self.level += 1

    def calm(self) -> None:
        """What new members are made from has changed: they start with the patience of the first."""
        self.level = 0

    def _put_in(self, member: Member) -> None:
        if member.leaving:
            self.leaving += 1
            return
        insort(self._ranks[member.rank], (member.created, member.uid))
        if not member.marked:
            self._unmarked[member.uid] = None
        if member.failing:
            self._failing[member.uid] = None
        if not member.ready:
            insort(self._order(member), self._deadline(member))

    def _take_out(self, member: Member) -> None:
        if member.leaving:
            self.leaving -= 1
            return
        _remove(self._ranks[member.rank], (member.created, member.uid))
        self._unmarked.pop(member.uid, None)
        self._failing.pop(member.uid, None)
        if not member.ready:
            _remove(self._order(member), self._deadline(member))

    def _order(self, member: Member) -> list[Placed]:
        return self._due if member.placed else self._unplaced_due

    def _deadline(self, member: Member) -> Placed:
        level = self._patience[member.uid] if member.placed else 0
        seconds = min(self._grace * 2.0 ** min(level, 32), self._longest)
        return member.since + timedelta(seconds=seconds), member.uid


def _remove(order: list[Placed], place: Placed) -> None:
    index = bisect_left(order, place)
    assert order[index] == place
    del order[index]
