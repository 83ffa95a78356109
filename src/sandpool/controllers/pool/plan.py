"""Decides what a pool does next: which members to delete and how many to create. Pure: no I/O, no clock, no logging.

Deletes, in this order: members that did not become ready in time, members beyond `replicas`, members that the update strategy replaces.
Creates as many as are missing, unless a hold, a pause or a limit delays them (`supply`). Everything that may still exist counts as
present, also a member that is about to be deleted: it is replaced when it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from sandpool.base.errors import SandpoolError
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.pace import Hold, Pause, Tokens, filled, held, next_hold, next_pause, next_token, spent
from sandpool.controllers.pool.roster import LONG_AGO, STALE_UNREADY, Member, Rank, Roster
from sandpool.controllers.pool.view import Orphan, PoolView
from sandpool.kube.errors import ApiError, InsufficientStorage, Refused, Unreachable
from sandpool.loop.outcome import raise_all
from sandpool.model.metadata import Uid
from sandpool.model.pool import UpdateStrategyType

STALE = (*STALE_UNREADY, Rank.STALE_READY)


class Why(StrEnum):
    """Why a member is deleted."""

    STUCK = "not ready for too long"
    SURPLUS = "too many"
    STALE = "made from an older template"
    BROKEN = "made from an older template, and something is wrong with it"


@dataclass(frozen=True, slots=True)
class Removal:
    """A member to delete."""

    member: Member
    why: Why

    def __str__(self) -> str:
        return f"delete {self.member.name}: {self.why}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to create and delete, and when to reconcile again."""

    removals: tuple[Removal, ...] = ()
    creates: int = 0
    adopt: tuple[Orphan, ...] = ()
    discard: tuple[Orphan, ...] = ()
    mark: tuple[Member, ...] = ()
    repaired: dict[Uid, datetime] = field(default_factory=dict)  # repaired members, which are left alone until then
    repair_again_at: datetime = LONG_AGO  # until when members that are repaired now are left alone
    hold: Hold | None = None
    pause: Pause | None = None
    tokens: Tokens | None = None
    more: bool = False  # the batch was full: reconcile again at once
    look_again_at: datetime | None = None  # because of this plan; see `look_again_at`

    def within(self, earlier: Plan) -> Plan:
        """Only the orphans that an earlier plan had seen, because the server was asked after that. The others have woken the pool."""
        adopt = tuple(orphan for orphan in self.adopt if orphan in earlier.adopt)
        discard = tuple(orphan for orphan in self.discard if orphan in earlier.discard)
        return replace(self, adopt=adopt, discard=discard)


def plan_pool(view: PoolView, options: Options, now: datetime) -> Plan:
    removals = _Removals(view, options.batch)
    replaceable = view.obstacle is None  # otherwise deleted members could not be replaced
    if replaceable:
        removals.add(view.roster.overdue(now), Why.STUCK)
    removals.surplus()
    if replaceable:
        removals.stale()
    coming = supply(view, options, now)
    orphans = view.orphans if view.template is not None else ()
    repaired = {uid: until for uid, until in view.repaired.items() if until > now}
    return Plan(
        removals=tuple(removals.removals()),
        creates=coming.count,
        adopt=tuple(orphan for orphan in orphans if not orphan.stale and orphan.uid not in repaired),
        discard=tuple(orphan for orphan in orphans if orphan.stale),
        mark=tuple(islice((one for one in view.roster.unmarked() if one.uid not in repaired), options.batch)),
        repaired=repaired,
        repair_again_at=now + timedelta(seconds=options.repair_pause),
        hold=coming.hold,
        pause=coming.pause,
        tokens=coming.tokens,
        more=coming.more or removals.more,
        look_again_at=_look_again(view, options, coming, now),
    )


def look_again_at(plan: Plan, roster: Roster, began: datetime) -> datetime | None:
    """When to reconcile again, computed after the plan was applied, because new members have deadlines, too. Deadlines that passed since `began`,
    while the plan was made and applied, have not been handled."""
    moments = (plan.look_again_at, roster.next_due(began))
    return min((moment for moment in moments if moment is not None), default=None)


class _Removals:
    """The members to delete, each once, with the first reason found. When the batch is full, the rest is left for the next reconcile."""

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
        """Members beyond `replicas`; during a rollout, beyond `replicas` and the surge."""
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
        else:  # whoever fixes a template should not have to wait for the grace period of its broken members
            failing = islice(roster.failing(), self._most)
            self.add((one for one in failing if one.stale), Why.BROKEN)

    def _spare(self) -> tuple[int, int]:
        """How many stale members a rolling update may delete now: unready ones, and ready ones. Reserved members do not count as available. As in
        Deployments, unready members may be deleted first as long as enough members stay available."""
        view = self._view
        available = self.left(Rank.STALE_READY, Rank.FRESH_READY) - view.reserved
        slack = available - (view.replicas - view.bounds.unavailable)
        unready, ready = self.left(*STALE_UNREADY), self.left(Rank.STALE_READY)
        return max(0, min(unready, slack + unready)), max(0, min(ready, slack))


def _look_again(view: PoolView, options: Options, coming: Supply, now: datetime) -> datetime | None:
    moments = [] if coming.again_at is None else [coming.again_at]
    moments += [until for until in view.repaired.values() if until > now]
    if view.reserved and view.roster.stale and view.strategy is not UpdateStrategyType.ON_REPLENISH:
        # No event says when a claim releases a member.
        moments.append(now + timedelta(seconds=options.moment))
    return min(moments, default=None)


@dataclass(slots=True)
class Outcome:
    """What came of a plan."""

    errors: list[SandpoolError] = field(default_factory=list)
    reserved: int = 0  # members that were to be deleted and are reserved by a claim
    again: bool = False  # something changed meanwhile: reconcile again at once
    refused: bool = False  # the server rejects such members

    def raise_all(self) -> None:
        raise_all(self.errors)


def uncertain(error: SandpoolError) -> bool:
    """Whether the request may have been processed although it failed."""
    if isinstance(error, ApiError):
        return error.code >= 500 and not isinstance(error, InsufficientStorage)
    return isinstance(error, Unreachable) and not isinstance(error, Refused)


_SOON = timedelta(seconds=0.1)
"""Until the next reconcile while as many members are warming as allowed: each one that becomes ready makes room for another."""


@dataclass(frozen=True, slots=True)
class Supply:
    """How many members to create, and when to look again."""

    count: int
    more: bool  # the batch was full
    hold: Hold
    pause: Pause
    tokens: Tokens | None
    again_at: datetime | None  # when more may be created without any event


def supply(view: PoolView, options: Options, now: datetime) -> Supply:
    hold = _hold(view, options, now)
    pause = next_pause(view.pause, view.lost_unready, options.moment, now)
    rate = options.refill_rate
    tokens = filled(view.tokens, rate, now) if rate > 0 else None
    wanted = missing(view) if view.obstacle is None else 0
    granted = 0 if held(hold, now) or held(pause, now) else wanted
    if tokens is not None:
        granted = min(granted, int(tokens.left))
    room = _room(view, options, now)
    crowded, granted = granted > room, min(granted, room)
    count = min(granted, options.batch)
    tokens = spent(tokens, count) if tokens is not None else None
    short = wanted > count
    again_at = _again_at(hold, pause, tokens, rate, now) if short else None
    if crowded:
        again_at = max(again_at or now, now + _SOON)
    return Supply(count, count < granted, hold, pause, tokens, again_at)


def missing(view: PoolView) -> int:
    """How many members are missing. Everything that may exist counts as present. A rolling update creates no more fresh members than `replicas`."""
    room = view.replicas + view.bounds.surge - view.population
    if view.strategy is not UpdateStrategyType.ROLLING_UPDATE:
        return max(0, room)
    fresh = view.population - len(view.roster) + view.roster.fresh
    return max(0, min(room, view.replicas - fresh))


def _room(view: PoolView, options: Options, now: datetime) -> int:
    """How many more members may be warming."""
    if not options.most_warming:
        return view.replicas + view.bounds.surge
    young = view.roster.warming(now - timedelta(seconds=options.young)) + view.unsettled
    return max(0, options.most_warming - young)


def _hold(view: PoolView, options: Options, now: datetime) -> Hold:
    full = view.roster.staying >= view.replicas
    return next_hold(
        view.hold, view.losses, full=full, delay=options.replenish_delay, longest=options.longest_hold, now=now
    )


def _again_at(hold: Hold, pause: Pause, tokens: Tokens | None, rate: float, now: datetime) -> datetime | None:
    waits = [one.until for one in (hold, pause) if one.until is not None and held(one, now)]
    if waits:
        return max(waits)
    return None if tokens is None else next_token(tokens, rate)
