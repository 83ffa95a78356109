"""The assigner: which claim gets which warm member. Memory only; the API's own locks decide, this avoids the collisions.

Fed by cache events in any order (`put_member`, `drop_member`, `put_pool`, `drop_pool`, `drain`), asked by claims (`acquire`, then
`commit` or `release`; `forget` when a claim ends). Pools are known by uid: another pool of the same name is another pool.
Invariants: a member is reserved for at most one claim; while anybody waits, no member that could be offered is free; not more
wait inside the line than members are warming. Each call is O(1) for each member or claim that it concerns; none scans a pool.
Time is an argument, and who should ask again is a return value. A claim is never woken by its own call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sandpool.controllers.assigner.facts import (
    Claimant,
    Cold,
    Counts,
    Decision,
    Member,
    Pool,
    Standing,
    Take,
    Wait,
    Why,
    Woken,
    standing,
)
from sandpool.controllers.assigner.house import House, Seat
from sandpool.model.metadata import Uid


@dataclass(slots=True)
class _Request:
    """A claim that stands in line or, with a member, holds a reservation."""

    pool: Uid
    member: Uid | None = None


class Assigner:
    def __init__(self) -> None:
        self._seats: dict[Uid, Seat] = {}
        self._houses: dict[Uid, House] = {}
        self._requests: dict[Uid, _Request] = {}
        self._on_node: dict[str, dict[Uid, None]] = {}
        self._draining: set[str] = set()

    # What the caches say

    def put_member(self, member: Member) -> Woken:
        """It is there, with these facts."""
        seat = self._seats.get(member.uid)
        if seat is not None and seat.member == member:
            return ()
        woken: Woken = ()
        if seat is not None and seat.member.pool != member.pool:
            woken, seat = self.drop_member(member.uid), None
        if seat is None:
            seat = self._seats[member.uid] = Seat(member)
            self._house(member.pool).members[member.uid] = None
            self._on_node.setdefault(member.node, {})[member.uid] = None
        elif seat.member.node != member.node:
            self._houses[seat.member.pool].lift(seat)
            self._leave_node(seat.member)
            self._on_node.setdefault(member.node, {})[member.uid] = None
        seat.member = member
        self._lay(seat)
        return woken + self._serve(member.pool)

    def drop_member(self, uid: Uid, taker: Uid | None = None) -> Woken:
        """It is gone, or no longer its pool's: `taker` is the claim that controls it now, if one does. The claim that had
        reserved it is woken, unless it is the taker: then this is the commit."""
        seat = self._seats.pop(uid, None)
        if seat is None:
            return ()
        pool, holder = seat.member.pool, seat.holder
        house = self._houses[pool]
        house.lift(seat)
        del house.members[uid]
        self._leave_node(seat.member)
        woken: Woken = ()
        if holder is not None:
            house.reserved -= 1
            del self._requests[holder.uid]
            woken = () if holder.uid == taker else (holder,)
        return woken + self._serve(pool)

    def put_pool(self, pool: Pool) -> Woken:
        """It is there. A change of facts looks at each of its members again."""
        house = self._house(pool.uid)
        return () if house.facts == pool else self._judge_pool(pool.uid, house, pool)

    def drop_pool(self, uid: Uid) -> Woken:
        house = self._houses.get(uid)
        return () if house is None else self._judge_pool(uid, house, None)

    def drain(self, node: str, draining: bool) -> Woken:
        """The node is to be emptied (or no longer): nothing on it is offered."""
        if draining == (node in self._draining):
            return ()
        (self._draining.add if draining else self._draining.discard)(node)
        pools: dict[Uid, None] = {}
        for uid in self._on_node.get(node, ()):
            seat = self._seats[uid]
            self._lay(seat)
            pools[seat.member.pool] = None
        return tuple(claimant for pool in pools for claimant in self._serve(pool))

    # What claims ask

    def acquire(self, claimant: Claimant, pool: Uid, now: datetime, deadline: datetime) -> Decision:
        """The best that the pool has for this claim. Asked again it answers the same, unless the world has changed: a
        reservation that went bad is exchanged, a claim that asks another pool than before gives up what it had."""
        request = self._requests.get(claimant.uid)
        woken: Woken = ()
        if request is not None and request.pool != pool:
            woken, request = self.forget(claimant.uid), None
        house = self._houses.get(pool)
        facts = house.facts if house is not None else None
        if house is None or facts is None or facts.leaving or facts.key.namespace != claimant.key.namespace:
            return Cold(Why.NO_POOL, woken + self.forget(claimant.uid))
        served = request is not None and request.member is not None
        if request is not None and request.member is not None:
            seat = self._seats[request.member]
            if self._judge(seat) in (Standing.READY, Standing.LAST_CHOICE):
                return Take(seat.member, woken)
            woken += self.release(claimant.uid)
        if (best := house.best()) is not None:  # then nobody is in line, and the claim neither
            return Take(self._reserve(claimant, self._seats[best]), woken)
        return self._queue(claimant, pool, house, now, deadline, served, woken)

    def take_ready(self, claimant: Claimant, pool: Uid) -> Member | None:
        """For a claim that nobody has heard of yet: a member that is ready now, reserved as by `acquire`, or nothing at all."""
        house = self._houses.get(pool)
        facts = house.facts if house is not None else None
        if house is None or facts is None or facts.leaving or facts.key.namespace != claimant.key.namespace:
            return None
        best = house.best()
        return None if best is None else self._reserve(claimant, self._seats[best])

    def stand_by(self, claimant: Claimant, pool: Uid) -> Woken:
        """The claim cannot start cold either: it joins the line, though perhaps nothing is warming, and is woken when a member
        has become ready for it."""
        house = self._houses.get(pool)
        if house is None or house.facts is None or claimant.uid in self._requests:
            return ()
        house.line.join(claimant)
        request = self._requests[claimant.uid] = _Request(pool)
        woken = _others(self._serve(pool), claimant.uid)
        now = self._requests.get(claimant.uid, request)
        return woken if now.member is None else (*woken, claimant)

    def commit(self, claim: Uid) -> None:
        """The claim's member is its own now, and no member any more."""
        request = self._requests.get(claim)
        if request is not None and request.member is not None:
            self.drop_member(request.member, taker=claim)

    def release(self, claim: Uid, *, lost: bool = False) -> Woken:
        """The claim does without the member reserved for it. `lost`: it was found to be gone or somebody else's, so it is
        not offered again before the cache tells of it again."""
        request = self._requests.get(claim)
        if request is None or request.member is None:
            return ()
        if lost:
            return self.drop_member(request.member, taker=claim)
        seat = self._seats[request.member]
        seat.holder = None
        del self._requests[claim]
        self._houses[request.pool].reserved -= 1
        self._lay(seat)
        return self._serve(request.pool)

    def forget(self, claim: Uid) -> Woken:
        """The claim has ended, or has a sandbox: nothing is kept for it."""
        request = self._requests.get(claim)
        if request is None:
            return ()
        if request.member is not None:
            return self.release(claim)
        del self._requests[claim]
        self._houses[request.pool].line.leave(claim)
        return self._serve(request.pool)

    # What the pool controller asks

    def withdraw(self, member: Uid) -> Woken | None:
        """Its pool is about to delete it: it is offered no more, until `restore`. None: a claim holds it, leave it alone."""
        seat = self._seats.get(member)
        if seat is None:
            return ()
        if seat.holder is not None:
            return None
        seat.withdrawn = True
        self._lay(seat)
        return self._serve(seat.member.pool)

    def restore(self, member: Uid) -> Woken:
        """The delete did not happen."""
        seat = self._seats.get(member)
        if seat is None:
            return ()
        seat.withdrawn = False
        self._lay(seat)
        return self._serve(seat.member.pool)

    def holder(self, member: Uid) -> Claimant | None:
        seat = self._seats.get(member)
        return seat.holder if seat is not None else None

    def held_by(self, claim: Uid) -> Member | None:
        """What is reserved for the claim. One whose last transfer was left open looks at it before it asks again."""
        request = self._requests.get(claim)
        return self._seats[request.member].member if request is not None and request.member is not None else None

    def offered(self, claim: Uid) -> bool:
        """Whether what is reserved for the claim may still be handed out: the world may have changed since it was acquired."""
        request = self._requests.get(claim)
        if request is None or request.member is None:
            return False
        return self._judge(self._seats[request.member]) in (Standing.READY, Standing.LAST_CHOICE)

    def reservations(self) -> Iterator[tuple[Claimant, Member]]:
        """For the audit, which may be slow."""
        for request in self._requests.values():
            if request.member is not None:
                seat = self._seats[request.member]
                assert seat.holder is not None
                yield seat.holder, seat.member

    def member(self, uid: Uid) -> Member | None:
        seat = self._seats.get(uid)
        return seat.member if seat is not None else None

    def members(self) -> Iterator[Member]:
        """For the audit, too."""
        for seat in self._seats.values():
            yield seat.member

    def counts(self, pool: Uid) -> Counts:
        house = self._houses.get(pool)
        return Counts() if house is None else house.counts()

    # How it is done

    def _queue(
        self,
        claimant: Claimant,
        pool: Uid,
        house: House,
        now: datetime,
        deadline: datetime,
        served: bool,
        woken: Woken,
    ) -> Decision:
        """Nothing is ready: stay in line, join it, or start cold."""
        claim = claimant.uid
        waiting = claim in house.line
        if now >= deadline:
            return Cold(Why.TOO_LATE, woken + self.forget(claim))
        if not waiting and (served or len(house.line) < house.warming):
            house.line.join(claimant, first=served)
            self._requests[claim] = _Request(pool)
            woken += self._serve(pool)
        if house.line.inside(claim):
            return Wait(deadline, _others(woken, claim))
        return Cold(Why.NONE_WARMING, _others(woken + self.forget(claim), claim))

    def _reserve(self, claimant: Claimant, seat: Seat) -> Member:
        house = self._houses[seat.member.pool]
        house.lift(seat)
        house.reserved += 1
        seat.holder = claimant
        self._requests[claimant.uid] = _Request(seat.member.pool, seat.member.uid)
        return seat.member

    def _serve(self, pool: Uid) -> Woken:
        """Restores the invariants of one pool after a change: free members go to the oldest who wait, the line fits."""
        house = self._houses[pool]
        woken: list[Claimant] = []
        while len(house.line) and (best := house.best()) is not None:
            claimant = house.line.pop()
            assert claimant is not None
            self._reserve(claimant, self._seats[best])
            woken.append(claimant)
        woken += house.line.fit(house.warming)
        if house.empty:
            del self._houses[pool]
        return tuple(woken)

    def _judge(self, seat: Seat) -> Standing:
        if seat.withdrawn:
            return Standing.WITHHELD
        member = seat.member
        return standing(member, self._houses[member.pool].facts, member.node in self._draining)

    def _judge_pool(self, uid: Uid, house: House, facts: Pool | None) -> Woken:
        house.facts = facts
        for member in house.members:
            self._lay(self._seats[member])
        return self._serve(uid)

    def _lay(self, seat: Seat) -> None:
        """Counts a member where it belongs now. One that is held stays off."""
        if seat.holder is None:
            self._houses[seat.member.pool].lay(seat, self._judge(seat))

    def _house(self, pool: Uid) -> House:
        house = self._houses.get(pool)
        if house is None:
            house = self._houses[pool] = House()
        return house

    def _leave_node(self, member: Member) -> None:
        here = self._on_node[member.node]
        del here[member.uid]
        if not here:
            del self._on_node[member.node]


def _others(woken: Woken, claim: Uid) -> Woken:
    return tuple(claimant for claimant in woken if claimant.uid != claim)
