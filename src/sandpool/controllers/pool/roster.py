"""The members of one pool: each reduced to what the pool decides on, all of them sorted as decisions need them. Pure.

The orders are sorted lists: a position is found by binary search, and an insert moves memory in one piece. An update costs the same in a large
pool.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache

import msgspec

from sandpool.base.backoff import doubled
from sandpool.model import labels
from sandpool.model.conditions import Condition, Truth, find
from sandpool.model.labels import LaunchType
from sandpool.model.metadata import NO_REVISION, Revision, Uid
from sandpool.model.names import name_hash
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox

LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
UNSCHEDULABLE = "Unschedulable"


class Rank(IntEnum):
    """The order in which members are deleted: unready before ready, stale before fresh."""

    STALE_UNPLACED = 0
    STALE_UNREADY = 1
    FRESH_UNPLACED = 2
    FRESH_UNREADY = 3
    STALE_READY = 4
    FRESH_READY = 5


STALE_UNREADY = (Rank.STALE_UNPLACED, Rank.STALE_UNREADY)
FRESH_UNREADY = (Rank.FRESH_UNPLACED, Rank.FRESH_UNREADY)


class Member(msgspec.Struct, frozen=True, gc=False):
    """One member. `since`: since when it could have become Ready and has not. `placed`: not reported as unschedulable.

    The struct is not tracked by the garbage collector: a pool has thousands, and every event of a member makes a new one."""

    uid: Uid
    name: str
    revision: Revision = NO_REVISION
    created: datetime = LONG_AGO
    since: datetime = LONG_AGO
    ready: bool = False
    placed: bool = True
    stale: bool = False  # not what the pool's template would make today
    leaving: bool = False
    marked: bool = True  # has the labels of an unclaimed member
    message: str = ""  # why it is not Ready, from the sandbox's conditions
    failing: bool = False  # something is wrong with it: it is not merely slow

    @property
    def rank(self) -> Rank:
        if self.ready:
            return Rank.STALE_READY if self.stale else Rank.FRESH_READY
        if not self.placed:
            return Rank.STALE_UNPLACED if self.stale else Rank.FRESH_UNPLACED
        return Rank.STALE_UNREADY if self.stale else Rank.FRESH_UNREADY


def read_member(sandbox: Sandbox, pool: str, *, stale: bool) -> Member:
    """The sandbox as a member of the pool of that name, which controls it."""
    meta, conditions = sandbox.metadata, sandbox.status.conditions
    ready, scheduled = find(conditions, Type.READY), find(conditions, Type.POD_SCHEDULED)
    created = meta.creation_timestamp or LONG_AGO
    since, placed, message = created, True, "it has not reported yet"
    failing = False
    if ready is not None:
        since = max(since, ready.last_transition_time or created)
        message = ready.message or ready.reason
        if not ready.true:
            held_up = _held_up(conditions)
            failing, message = bool(held_up) or ready.reason == Reason.RECONCILER_ERROR, held_up or message
    if scheduled is not None:
        placed = not (scheduled.status == Truth.FALSE and scheduled.reason == UNSCHEDULABLE)
        if scheduled.true:  # without a node it could not start
            since = max(since, scheduled.last_transition_time or created)
        if not placed:
            message = scheduled.message or scheduled.reason
    return Member(
        uid=meta.uid,
        name=meta.name,
        revision=meta.revision,
        created=created,
        since=since,
        ready=ready is not None and ready.true,
        placed=placed,
        stale=stale,
        leaving=meta.leaving,
        marked=not missing_marks(sandbox, pool),
        message=message,
        failing=failing,
    )


def _held_up(conditions: tuple[Condition, ...]) -> str:
    """Why its pod does not start; empty if nothing is known to be wrong."""
    healthy = find(conditions, Type.HEALTHY)
    return healthy.message if healthy is not None and healthy.reason == Reason.POD_NOT_STARTING else ""


def missing_marks(sandbox: Sandbox, pool: str) -> dict[str, str]:
    """Labels that a member of the pool lacks: without them it cannot be claimed."""
    present = sandbox.metadata.labels
    wanted = {labels.LAUNCH_TYPE: LaunchType.WARM.value, labels.WARM_POOL: _mark(pool)}
    made_from = sandbox.metadata.annotations.get(labels.TEMPLATE_REF)
    if made_from and labels.TEMPLATE_REF_HASH not in present:
        wanted[labels.TEMPLATE_REF_HASH] = name_hash(made_from)
    return {key: value for key, value in wanted.items() if present.get(key) != value}


@lru_cache(maxsize=1024)
def _mark(pool: str) -> str:
    """Cached: it is needed for every event of every member."""
    return name_hash(pool)


Placed = tuple[datetime, Uid]
_READY = (Rank.STALE_READY, Rank.FRESH_READY)
_FRESH = (*FRESH_UNREADY, Rank.FRESH_READY)
_STALE = (*STALE_UNREADY, Rank.STALE_READY)
_LAST = Uid(chr(0x10FFFF))  # sorts behind every uid


class Roster:
    """The members of one pool. `grace`: seconds that a member may be not Ready. Each generation in which none became Ready doubles it for the next, up
    to `longest`; the first member that becomes Ready resets it."""

    def __init__(self, grace: float, longest: float) -> None:
        self._grace = grace
        self._longest = max(grace, longest)
        self._members: dict[Uid, Member] = {}
        self._ranks: dict[Rank, list[Placed]] = {rank: [] for rank in Rank}  # by creation
        self._due: list[Placed] = []  # scheduled members that are not ready: when their grace ends
        self._unplaced_due: list[Placed] = []
        self._unmarked: dict[Uid, None] = {}
        self._failing: dict[Uid, None] = {}
        self._patience: dict[Uid, int] = {}  # the level at which a member was added
        self.level = 0
        self.leaving = 0

    # Reading

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def get(self, uid: Uid) -> Member | None:
        return self._members.get(uid)

    def count(self, ranks: Iterable[Rank]) -> int:
        """How many members of these ranks there are; leaving ones do not count."""
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
        """The members of these ranks without leaving ones, rank by rank, youngest first."""
        for rank in ranks:
            for _, uid in reversed(self._ranks[rank]):
                yield self._members[uid]

    def overdue(self, now: datetime) -> Iterator[Member]:
        """Scheduled members whose grace has ended without becoming ready."""
        for due, uid in self._due:
            if due > now:
                return
            yield self._members[uid]

    def unplaced(self, now: datetime) -> Member | None:
        """A member that has been unschedulable for longer than its grace."""
        first = self._unplaced_due[0] if self._unplaced_due else None
        return self._members[first[1]] if first is not None and first[0] <= now else None

    def next_due(self, now: datetime) -> datetime | None:
        """When the next member's grace ends."""
        found: list[datetime] = []
        for order in (self._due, self._unplaced_due):
            index = bisect_right(order, (now, _LAST))
            if index < len(order):
                found.append(order[index][0])
        return min(found, default=None)

    def warming(self, after: datetime) -> int:
        """Fresh members that were created after that moment and are not ready yet."""
        found = 0
        for rank in FRESH_UNREADY:
            order = self._ranks[rank]
            found += len(order) - bisect_right(order, (after, _LAST))
        return found

    def unmarked(self) -> Iterator[Member]:
        return (self._members[uid] for uid in self._unmarked)

    def failing(self) -> Iterator[Member]:
        """Members that something is wrong with, longest known first."""
        return (self._members[uid] for uid in self._failing)

    # Changing

    def put(self, member: Member) -> Member | None:
        """Adds or updates a member; returns its previous state."""
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

    def give_up(self, member: Member) -> None:
        """The member never became ready and is replaced. The first of a generation doubles the grace of the next."""
        if self._patience.get(member.uid) == self.level:
            self.level += 1

    def reset_patience(self) -> None:
        """The template changed: new members start with the initial grace."""
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
        seconds = doubled(self._grace, level, self._longest)
        return member.since + timedelta(seconds=seconds), member.uid


def _remove(order: list[Placed], place: Placed) -> None:
    index = bisect_left(order, place)
    assert order[index] == place
    del order[index]
