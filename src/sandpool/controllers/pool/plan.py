"""What a pool does next. Pure: no I/O, no clock, no logging.

Who goes: members that never became ready, then what is too many, then what the strategy replaces. Who comes: as many as are
missing, where everything that may still exist counts, also what is about to go: its successor comes when it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from sandpool.controllers.pool.member import LONG_AGO, STALE_UNREADY, Member, Rank
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.pace import Hold, Pause, Tokens
from sandpool.controllers.pool.roster import Roster
from sandpool.controllers.pool.supply import Supply, supply
from sandpool.controllers.pool.view import Orphan, PoolView
from sandpool.model.metadata import Uid
from sandpool.model.pool import UpdateStrategyType

STALE = (*STALE_UNREADY, Rank.STALE_READY)


class Why(StrEnum):
    STUCK = "not ready for too long"
    SURPLUS = "too many"
    STALE = "made from an older template"
    BROKEN = "made from an older template, and something is wrong with it"


@dataclass(frozen=True, slots=True)
class Removal:
    member: Member
    why: Why

    def __str__(self) -> str:
        return f"delete {self.member.name}: {self.why}"


@dataclass(frozen=True, slots=True)
class Plan:
    removals: tuple[Removal, ...] = ()
    creates: int = 0
    adopt: tuple[Orphan, ...] = ()
    discard: tuple[Orphan, ...] = ()
    mark: tuple[Member, ...] = ()
    mended: dict[Uid, datetime] = field(default_factory=dict)  # what is left alone until then, having been put right
    mend_again_at: datetime = LONG_AGO  # until when what is put right now is left alone
    hold: Hold | None = None
    pause: Pause | None = None
    tokens: Tokens | None = None
    more: bool = False  # a batch was not enough: again at once
    look_again_at: datetime | None = None  # because of this plan; see `look_again_at`

    def within(self, earlier: Plan) -> Plan:
        """Of orphans only those that an earlier plan had seen: the server was asked after they were seen. The others have woken us."""
        adopt = tuple(orphan for orphan in self.adopt if orphan in earlier.adopt)
        discard = tuple(orphan for orphan in self.discard if orphan in earlier.discard)
        return replace(self, adopt=adopt, discard=discard)


def plan_pool(view: PoolView, options: Options, now: datetime) -> Plan:
    doomed = _Doomed(view, options.batch)
    replaceable = view.obstacle is None  # otherwise nobody could take the place of those that go
    if replaceable:
        doomed.add(view.roster.overdue(now), Why.STUCK)
    doomed.surplus()
    if replaceable:
        doomed.stale()
    coming = supply(view, options, now)
    orphans = view.orphans if view.template is not None else ()
    mended = {uid: until for uid, until in view.mended.items() if until > now}
    return Plan(
        removals=tuple(doomed.removals()),
        creates=coming.count,
        adopt=tuple(orphan for orphan in orphans if not orphan.stale and orphan.uid not in mended),
        discard=tuple(orphan for orphan in orphans if orphan.stale),
        mark=tuple(islice((one for one in view.roster.unmarked() if one.uid not in mended), options.batch)),
        mended=mended,
        mend_again_at=now + timedelta(seconds=options.mend_pause),
        hold=coming.hold,
        pause=coming.pause,
        tokens=coming.tokens,
        more=coming.more or doomed.more,
        look_again_at=_look_again(view, options, coming, now),
    )


def look_again_at(plan: Plan, roster: Roster, began: datetime) -> datetime | None:
    """When to look again, asked when the plan has been carried out: new members have their patience, too. A patience that
    ended since `began`, while the plan was made and carried out, ended unseen."""
    moments = (plan.look_again_at, roster.next_due(began))
    return min((moment for moment in moments if moment is not None), default=None)


class _Doomed:
    """The members that are to go, each once, with the first reason that was found. Once it is full nothing more is looked
    for: the next pass will find it."""

    def __init__(self, view: PoolView, most: int) -> None:
        self._view = view
        self._most = most
        self._why: dict[Uid, Removal] = {}
        self._ranks: dict[Rank, int] = dict.fromkeys(Rank, 0)

    @property
    def more(self) -> bool:
        return len(self._why) > self._most

    def removals(self) -> Iterable[Removal]:
        return islice(self._why.values(), self._most)

    def add(self, members: Iterable[Member], why: Why, most: int | None = None) -> None:
        room = self._most + 1 - len(self._why)
        others = (one for one in members if one.uid not in self._why)
        for member in islice(others, room if most is None else min(room, most)):
            self._why[member.uid] = Removal(member, why)
            self._ranks[member.rank] += 1

    def left(self, *ranks: Rank) -> int:
        """How many members of these ranks would stay."""
        return self._view.roster.count(ranks) - sum(self._ranks[rank] for rank in ranks)

    def surplus(self) -> None:
        """While a rollout goes on, what it may have beyond replicas is not too many."""
        view = self._view
        limit = view.replicas + (view.bounds.surge if view.roster.stale else 0)
        excess = view.roster.staying - len(self._why) - limit
        if excess > 0:
            self.add(view.roster.of(Rank), Why.SURPLUS, excess)

    def stale(self) -> None:
        view, roster = self._view, self._view.roster
        if view.strategy is UpdateStrategyType.RECREATE:
            self.add(roster.of(STALE), Why.STALE)
        elif view.strategy is UpdateStrategyType.ROLLING_UPDATE:
            unready, ready = self._spare()
            self.add(roster.of(STALE_UNREADY), Why.STALE, unready)
            self.add(roster.of((Rank.STALE_READY,)), Why.STALE, ready)
        else:  # whoever mends a template should not have to wait until the patience with its broken members ends
            failing = islice(roster.failing(), self._most)
            self.add((one for one in failing if one.stale), Why.BROKEN)

    def _spare(self) -> tuple[int, int]:
        """How many stale members a rolling update can do without: of those that are not ready, and of those that are. What
        claims are about to take is not available any more. Unready ones may yet become ready: they count for the floor
        as far as nothing else does, as in Deployments."""
        view = self._view
        available = self.left(Rank.STALE_READY, Rank.FRESH_READY) - view.reserved
        slack = available - (view.replicas - view.bounds.unavailable)
        unready, ready = self.left(*STALE_UNREADY), self.left(Rank.STALE_READY)
        return max(0, min(unready, slack + unready)), max(0, min(ready, slack))


def _look_again(view: PoolView, options: Options, coming: Supply, now: datetime) -> datetime | None:
    moments = [] if coming.again_at is None else [coming.again_at]
    moments += [until for until in view.mended.values() if until > now]
    if view.reserved and view.roster.stale and view.strategy is not UpdateStrategyType.ON_REPLENISH:
        # Nobody tells when a claim gives a member back.
        moments.append(now + timedelta(seconds=options.moment))
    return min(moments, default=None)
