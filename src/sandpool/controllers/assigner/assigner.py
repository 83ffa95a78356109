"""The assigner: which claim gets which warm member. Memory only; the API's own locks decide, this avoids the collisions.

Fed by cache events in any order (`put_member`, `drop_member`, `put_pool`, `drop_pool`, `drain`), asked by claims (`line_up` when one is
first heard of, `acquire`, then `commit` or `release`; `forget` when a claim ends). Pools are known by uid: another pool of the same name is another pool.
Invariants: a member is reserved for at most one claim; while anybody waits, no member that could be offered is free; what becomes ready goes to
the oldest that waits, also to one that has begun to start cold. Each call costs the same for each member or claim that it concerns; none scans a pool.
Who should ask again is a return value. `acquire` never names the claim that asks.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

from sandpool.controllers.assigner.books import Books, Request
from sandpool.controllers.assigner.facts import (
    Claimant,
    Cold,
    Decision,
    Member,
    Pool,
    Standing,
    Take,
    Wait,
    Why,
    Woken,
)
from sandpool.controllers.assigner.house import House, Seat
from sandpool.controllers.assigner.line import Place, State
from sandpool.model.metadata import Uid

AGAIN, AGAIN_AT_MOST, ASKERS = 10.0, 60.0, 100
"""Seconds after which a claim that waits asks again though nobody called it, and longer for those behind so many others."""


class Assigner(Books):
    """`clock` tells seconds that only grow; it measures how fast members become ready, from when `measuring` is set. `prompt`: pools make
    new members as soon as others are taken, and nobody slows them down."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0, *, prompt: bool = True) -> None:
        super().__init__(clock)
        self._prompt = prompt
        self.measuring = False
        self.hungry: Callable[[], object] = lambda: None  # called when somebody waits and nobody did before
        self._numbers = count(1)

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
            house, seat = self._house(member.pool), Seat(member)
            self._seats[member.uid] = seat
            house.members[member.uid] = None
            if self.measuring and not member.ready:
                seat.began = house.tempo.begin(self._clock())
            self._on_node.setdefault(member.node, {})[member.uid] = None
        elif seat.member.node != member.node:
            self._houses[seat.member.pool].lift(seat)
            self._leave_node(seat.member)
            self._on_node.setdefault(member.node, {})[member.uid] = None
        if member.ready and not seat.member.ready:
            self._houses[member.pool].tempo.ended(self._clock(), seat.began)
            seat.began = None
        seat.member = member
        self._lay(seat)
        return woken + self._serve(member.pool)

    def drop_member(self, uid: Uid, taker: Uid | None = None) -> Woken:
        """It is gone, or no longer its pool's: `taker` is the claim that controls it now, if one does. The claim that had
        reserved it is back in line and woken, unless it is the taker: then this is the commit."""
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
            request = self._requests.pop(holder.uid)
            if holder.uid != taker:
                woken = (holder,)
                self._join(holder, pool, request.place)
        return woken + (self._serve(pool) if holder is None else _others(self._serve(pool), holder.uid))

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

    def line_up(self, claimant: Claimant, pool: Uid, *, begun: bool = False) -> Woken | None:
        """A claim that was just heard of joins the line, or gets what is ready: whoever asks first, the oldest is served first. Who should
        ask now, which it may be itself. `begun`: it has begun to start cold. None: the pool has no line for it."""
        house = self._open(pool, claimant)
        if house is None or claimant.uid in self._requests:
            return None
        self._join(claimant, pool, begun=begun)
        return self._serve(pool)

    def acquire(
        self, claimant: Claimant, pool: Uid, now: datetime, deadline: datetime, *, begun: bool = False
    ) -> Decision:
        """The best that the pool has for this claim. Asked again it answers the same, unless the world has changed: a
        reservation that went bad is exchanged, a claim that asks another pool than before gives up what it had. `begun`: a
        sandbox of the claim's own is starting."""
        claim, place = claimant.uid, None
        woken: Woken = ()
        request = self._requests.get(claim)
        if request is not None and request.pool != pool:
            woken, request = self.forget(claim), None
        house = self._open(pool, claimant)
        if house is None:
            return Cold(Why.NO_POOL, woken + self.forget(claim))
        if request is not None and request.member is not None:
            seat = self._seats[request.member]
            if self._judge(seat) in (Standing.READY, Standing.LAST_CHOICE):
                return Take(seat.member, woken)
            woken, place, request = woken + self.release(claim), request.place, None
        if request is None:
            if (best := house.best()) is not None:  # then nobody is in line
                return Take(self._reserve(claimant, self._seats[best], place), woken)
            self._join(claimant, pool, place, begun=begun)
        elif begun or house.line.state(claim) is State.STANDS_BY or house.covered(claim, self._clock()):
            # In the last case: what it was told to begin, and has not begun, is not needed any more.
            house.line.put(claim, State.BEGUN if begun else State.WAITS, house.tempo.begin(self._clock()))
        woken += self._serve(pool)
        return self._advice(claimant, house, now, deadline, _others(woken, claim))

    def take_ready(self, claimant: Claimant, pool: Uid) -> Member | None:
        """For a claim that nobody has heard of yet: a member that is ready now, reserved as by `acquire`, or nothing at all. While
        older ones wait, none is free."""
        house = self._open(pool, claimant)
        best = None if house is None else house.best()
        return None if best is None else self._reserve(claimant, self._seats[best])

    def stand_by(self, claimant: Claimant, pool: Uid) -> Woken:
        """The claim cannot start cold either: it stays in line, or joins it, and is woken when a member has become ready for it."""
        claim, house = claimant.uid, self._houses.get(pool)
        request = self._requests.get(claim)
        if house is None or house.facts is None or (request is not None and (request.member or request.pool != pool)):
            return ()
        if request is None:
            self._join(claimant, pool)
        house.line.put(claim, State.STANDS_BY, house.tempo.begin(self._clock()))
        return self._serve(pool)

    def started(self, claim: Uid) -> Woken:
        """The claim has its own sandbox, which is ready: what the pool had for it is for others."""
        request = self._requests.get(claim)
        if request is not None and request.member is None:
            house = self._houses[request.pool]
            if (began := house.line.began(claim)) is not None:
                house.tempo.ended(self._clock(), began if self.measuring else None)
        return self.forget(claim)

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

    # How it is done

    def _open(self, pool: Uid, claimant: Claimant) -> House | None:
        """The pool, if it is there to stay and the claim may have of it."""
        house = self._houses.get(pool)
        facts = house.facts if house is not None else None
        if facts is None or facts.leaving or facts.key.namespace != claimant.key.namespace:
            return None
        return house

    def _join(self, claimant: Claimant, pool: Uid, place: Place | None = None, *, begun: bool = False) -> None:
        """Call `_serve` afterwards."""
        house, now, place = self._houses[pool], self._clock(), place or (claimant.age, next(self._numbers))
        self._requests[claimant.uid] = Request(pool, place)
        house.line.join(claimant, place, now)
        if begun:
            house.line.put(claimant.uid, State.BEGUN, house.tempo.begin(now))

    def _advice(self, claimant: Claimant, house: House, now: datetime, deadline: datetime, woken: Woken) -> Decision:
        """For a claim that was in line a moment ago: what has come of it."""
        claim, at = claimant.uid, self._clock()
        if (member := self._requests[claim].member) is not None:
            return Take(self._seats[member].member, woken)
        if house.line.state(claim) is State.BEGUN:
            return Cold(house.why_cold(claim, at), woken)
        if now >= deadline and not house.tempo.moving(at):
            begun = house.begin_late(at)
            woken += _others(tuple(begun), claim)
            if claimant in begun:
                return Cold(Why.TOO_LATE, woken)
        later = min(AGAIN_AT_MOST, AGAIN * (1 + (house.line.place(claim) or 0) // ASKERS))
        return Wait(deadline if deadline > now else now + timedelta(seconds=later), woken)

    def _reserve(self, claimant: Claimant, seat: Seat, place: Place | None = None) -> Member:
        house = self._houses[seat.member.pool]
        house.lift(seat)
        house.reserved += 1
        seat.holder = claimant
        place = place or (claimant.age, next(self._numbers))
        self._requests[claimant.uid] = Request(seat.member.pool, place, seat.member.uid)
        return seat.member

    def _serve(self, pool: Uid) -> Woken:
        """Restores the invariants of one pool after a change: free members go to the oldest who wait, and whoever is better off
        with a sandbox of its own begins one."""
        house = self._houses[pool]
        line, woken = house.line, list[Claimant]()
        if len(line):
            while (claimant := line.first()) is not None and (best := house.best()) is not None:
                place = line.place_of(claimant.uid)
                line.leave(claimant.uid)
                self._reserve(claimant, self._seats[best], place)
                woken.append(claimant)
            now = self._clock()
            while (claimant := house.begin(now)) is not None:
                woken.append(claimant)
        if len(line) or pool in self._hungry:
            self._feel(pool, house)
        if house.empty:
            del self._houses[pool]
        return tuple(woken)

    def _feel(self, pool: Uid, house: House) -> None:
        if house.hungry == (pool in self._hungry):
            return
        if pool in self._hungry:
            del self._hungry[pool]
            return
        self._hungry[pool] = None
        if len(self._hungry) == 1:
            self.hungry()

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
            house = self._houses[pool] = House(prompt=self._prompt)
        return house

    def _leave_node(self, member: Member) -> None:
        here = self._on_node[member.node]
        del here[member.uid]
        if not here:
            del self._on_node[member.node]


def _others(woken: Woken, claim: Uid) -> Woken:
    return tuple(claimant for claimant in woken if claimant.uid != claim)
