"""The assigner: which claim gets which warm member. Memory only: the API's own locks decide, the assigner avoids collisions.

Cache events feed it in any order (`put_member`, `drop_member`, `put_pool`, `drop_pool`, `drain`). Claims ask it: `line_up` when one is
first observed, `acquire`, then `commit` or `release`; `forget` when a claim ends. Pools are known by uid: another pool of the same name is another pool.
Invariants: a member is reserved for at most one claim; while a claim waits, no member that could be offered is free; a member that becomes ready goes to
the oldest waiting claim, also to one that has begun a cold start. The cost of a call depends on the members and claims that it concerns; none scans a pool.
Claims that should ask again are a return value. `acquire` never returns the claim that asks.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

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
from sandpool.controllers.assigner.pool_state import MemberState, PoolState
from sandpool.controllers.assigner.state import AssignerState, Request
from sandpool.controllers.assigner.wait_queue import Place, State
from sandpool.model.metadata import Uid

AGAIN, AGAIN_AT_MOST, ASKERS = 10.0, 60.0, 100
"""Seconds after which a waiting claim asks again without being woken: AGAIN, plus as much for every ASKERS claims before it, up to AGAIN_AT_MOST."""


class Assigner(AssignerState):
    """`clock` is monotonic, in seconds; once `measuring` is set, it measures how fast members become ready. `prompt`: pools make
    new members as soon as others are taken, without a delay or a rate limit."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0, *, prompt: bool = True) -> None:
        super().__init__(clock)
        self._prompt = prompt
        self.measuring = False
        self.on_pressed: Callable[[], object] = lambda: None  # called when the first claim begins to wait
        self._numbers = count(1)

    # Cache events

    def put_member(self, member: Member) -> Woken:
        """The member exists, with these facts."""
        member_state = self._member_states.get(member.uid)
        if member_state is not None and member_state.member == member:
            return ()
        woken: Woken = ()
        if member_state is not None and member_state.member.pool != member.pool:
            woken, member_state = self.drop_member(member.uid), None
        if member_state is None:
            pool_state, member_state = self._pool_state(member.pool), MemberState(member)
            self._member_states[member.uid] = member_state
            pool_state.members[member.uid] = None
            if self.measuring and not member.ready:
                member_state.began = pool_state.start_rate.begin(self._clock())
            self._on_node.setdefault(member.node, {})[member.uid] = None
        elif member_state.member.node != member.node:
            self.pool_states[member_state.member.pool].uncount(member_state)
            self._leave_node(member_state.member)
            self._on_node.setdefault(member.node, {})[member.uid] = None
        if member.ready and not member_state.member.ready:
            self.pool_states[member.pool].start_rate.ended(self._clock(), member_state.began)
            member_state.began = None
        member_state.member = member
        self._recount(member_state)
        return woken + self._serve(member.pool)

    def drop_member(self, uid: Uid, taker: Uid | None = None) -> Woken:
        """The member is gone, or left its pool: `taker` is the claim that controls it now, if one does. The claim that had
        reserved it returns to the queue and is woken, unless it is the taker: then this is the commit."""
        member_state = self._member_states.pop(uid, None)
        if member_state is None:
            return ()
        pool, holder = member_state.member.pool, member_state.holder
        pool_state = self.pool_states[pool]
        pool_state.uncount(member_state)
        del pool_state.members[uid]
        self._leave_node(member_state.member)
        woken: Woken = ()
        if holder is not None:
            pool_state.reserved -= 1
            request = self.requests.pop(holder.uid)
            if holder.uid != taker:
                woken = (holder,)
                self._join(holder, pool, request.place)
        return woken + (self._serve(pool) if holder is None else _others(self._serve(pool), holder.uid))

    def put_pool(self, pool: Pool) -> Woken:
        """The pool exists. If its facts changed, each of its members is judged again."""
        pool_state = self._pool_state(pool.uid)
        return () if pool_state.facts == pool else self._judge_pool(pool.uid, pool_state, pool)

    def drop_pool(self, uid: Uid) -> Woken:
        pool_state = self.pool_states.get(uid)
        return () if pool_state is None else self._judge_pool(uid, pool_state, None)

    def drain(self, node: str, draining: bool) -> Woken:
        """The node is being drained (or no longer): members on a draining node are not offered."""
        if draining == (node in self._draining):
            return ()
        (self._draining.add if draining else self._draining.discard)(node)
        pools: dict[Uid, None] = {}
        for uid in self._on_node.get(node, ()):
            member_state = self._member_states[uid]
            self._recount(member_state)
            pools[member_state.member.pool] = None
        return tuple(claimant for pool in pools for claimant in self._serve(pool))

    # Calls of the claim controller

    def line_up(self, claimant: Claimant, pool: Uid, *, begun: bool = False) -> Woken | None:
        """A claim that was just observed joins the queue, or gets a ready member: the oldest is served first, in whatever order claims ask. Returns the
        claims that should ask now, which may include it. `begun`: it has begun a cold start. None: it cannot wait for this pool."""
        pool_state = self._open(pool, claimant)
        if pool_state is None or claimant.uid in self.requests:
            return None
        self._join(claimant, pool, begun=begun)
        return self._serve(pool)

    def acquire(
        self, claimant: Claimant, pool: Uid, now: datetime, deadline: datetime, *, begun: bool = False
    ) -> Decision:
        """The best that the pool has for this claim. Asked again, it gives the same answer unless something changed: a
        reservation that may no longer be used is replaced, and a claim that asks another pool gives up what it had. `begun`: a
        sandbox of the claim's own is starting."""
        claim, place = claimant.uid, None
        woken: Woken = ()
        request = self.requests.get(claim)
        if request is not None and request.pool != pool:
            woken, request = self.forget(claim), None
        pool_state = self._open(pool, claimant)
        if pool_state is None:
            return Cold(Why.NO_POOL, woken + self.forget(claim))
        if request is not None and request.member is not None:
            member_state = self._member_states[request.member]
            if self._judge(member_state) in (Standing.READY, Standing.LAST_CHOICE):
                return Take(member_state.member, woken)
            woken, place, request = woken + self.release(claim), request.place, None
        if request is None:
            if (best := pool_state.best()) is not None:  # then the queue is empty
                return Take(self._reserve(claimant, self._member_states[best], place), woken)
            self._join(claimant, pool, place, begun=begun)
        elif begun or pool_state.queue.state(claim) is State.STANDS_BY or pool_state.covered(claim, self._clock()):
            # In the last case: the cold start that it was advised to begin, and has not begun, is not needed any more.
            pool_state.queue.put(
                claim, State.BEGUN if begun else State.WAITS, pool_state.start_rate.begin(self._clock())
            )
        woken += self._serve(pool)
        return self._advice(claimant, pool_state, now, deadline, _others(woken, claim))

    def take_ready(self, claimant: Claimant, pool: Uid) -> Member | None:
        """For a claim that is not stored yet: a member that is ready now, reserved as by `acquire`, or None. While
        older claims wait, no member is free."""
        pool_state = self._open(pool, claimant)
        best = None if pool_state is None else pool_state.best()
        return None if best is None else self._reserve(claimant, self._member_states[best])

    def stand_by(self, claimant: Claimant, pool: Uid) -> Woken:
        """The claim cannot start cold either: it stays in the queue, or joins it, and is woken when a member is ready for it."""
        claim, pool_state = claimant.uid, self.pool_states.get(pool)
        request = self.requests.get(claim)
        if (
            pool_state is None
            or pool_state.facts is None
            or (request is not None and (request.member or request.pool != pool))
        ):
            return ()
        if request is None:
            self._join(claimant, pool)
        pool_state.queue.put(claim, State.STANDS_BY, pool_state.start_rate.begin(self._clock()))
        return self._serve(pool)

    def started(self, claim: Uid) -> Woken:
        """The claim's own sandbox is ready: it needs nothing from the pool any more."""
        request = self.requests.get(claim)
        if request is not None and request.member is None:
            pool_state = self.pool_states[request.pool]
            if (began := pool_state.queue.began(claim)) is not None:
                pool_state.start_rate.ended(self._clock(), began if self.measuring else None)
        return self.forget(claim)

    def commit(self, claim: Uid) -> None:
        """The reserved member now belongs to the claim and has left the pool."""
        request = self.requests.get(claim)
        if request is not None and request.member is not None:
            self.drop_member(request.member, taker=claim)

    def release(self, claim: Uid, *, lost: bool = False) -> Woken:
        """The claim gives up its reservation. `lost`: the member turned out to be gone or taken, so it is
        not offered again before its next event."""
        request = self.requests.get(claim)
        if request is None or request.member is None:
            return ()
        if lost:
            return self.drop_member(request.member, taker=claim)
        member_state = self._member_states[request.member]
        member_state.holder = None
        del self.requests[claim]
        self.pool_states[request.pool].reserved -= 1
        self._recount(member_state)
        return self._serve(request.pool)

    def forget(self, claim: Uid) -> Woken:
        """The claim has ended, or has a sandbox: its reservation and its place in the queue are dropped."""
        request = self.requests.get(claim)
        if request is None:
            return ()
        if request.member is not None:
            return self.release(claim)
        del self.requests[claim]
        self.pool_states[request.pool].queue.leave(claim)
        return self._serve(request.pool)

    # Calls of the pool controller

    def withdraw(self, member: Uid) -> Woken | None:
        """The pool is about to delete the member: it is not offered until `restore`. None: a claim has reserved it, do not delete it."""
        member_state = self._member_states.get(member)
        if member_state is None:
            return ()
        if member_state.holder is not None:
            return None
        member_state.withdrawn = True
        self._recount(member_state)
        return self._serve(member_state.member.pool)

    def restore(self, member: Uid) -> Woken:
        """The delete did not happen."""
        member_state = self._member_states.get(member)
        if member_state is None:
            return ()
        member_state.withdrawn = False
        self._recount(member_state)
        return self._serve(member_state.member.pool)

    # Internals

    def _open(self, pool: Uid, claimant: Claimant) -> PoolState | None:
        """The pool, if it exists, is not being deleted and is in the claim's namespace."""
        pool_state = self.pool_states.get(pool)
        facts = pool_state.facts if pool_state is not None else None
        if facts is None or facts.leaving or facts.key.namespace != claimant.key.namespace:
            return None
        return pool_state

    def _join(self, claimant: Claimant, pool: Uid, place: Place | None = None, *, begun: bool = False) -> None:
        """Call `_serve` afterwards."""
        pool_state, now, place = self.pool_states[pool], self._clock(), place or (claimant.age, next(self._numbers))
        self.requests[claimant.uid] = Request(pool, place)
        pool_state.queue.join(claimant, place, now)
        if begun:
            pool_state.queue.put(claimant.uid, State.BEGUN, pool_state.start_rate.begin(now))

    def _advice(
        self, claimant: Claimant, pool_state: PoolState, now: datetime, deadline: datetime, woken: Woken
    ) -> Decision:
        """The answer for a claim that was just in the queue."""
        claim, at = claimant.uid, self._clock()
        if (member := self.requests[claim].member) is not None:
            return Take(self._member_states[member].member, woken)
        if pool_state.queue.state(claim) is State.BEGUN:
            return Cold(pool_state.why_cold(claim, at), woken)
        if now >= deadline and not pool_state.start_rate.moving(at):
            begun = pool_state.begin_late(at)
            woken += _others(tuple(begun), claim)
            if claimant in begun:
                return Cold(Why.TOO_LATE, woken)
        later = min(AGAIN_AT_MOST, AGAIN * (1 + (pool_state.queue.place(claim) or 0) // ASKERS))
        return Wait(deadline if deadline > now else now + timedelta(seconds=later), woken)

    def _reserve(self, claimant: Claimant, member_state: MemberState, place: Place | None = None) -> Member:
        pool_state = self.pool_states[member_state.member.pool]
        pool_state.uncount(member_state)
        pool_state.reserved += 1
        member_state.holder = claimant
        place = place or (claimant.age, next(self._numbers))
        self.requests[claimant.uid] = Request(member_state.member.pool, place, member_state.member.uid)
        return member_state.member

    def _serve(self, pool: Uid) -> Woken:
        """Restores the invariants of one pool after a change: free members go to the oldest waiting claims, and a claim that is better off
        with a sandbox of its own begins one."""
        pool_state = self.pool_states[pool]
        queue, woken = pool_state.queue, list[Claimant]()
        if len(queue):
            while (claimant := queue.first()) is not None and (best := pool_state.best()) is not None:
                place = queue.place_of(claimant.uid)
                queue.leave(claimant.uid)
                self._reserve(claimant, self._member_states[best], place)
                woken.append(claimant)
            now = self._clock()
            while (claimant := pool_state.begin(now)) is not None:
                woken.append(claimant)
        if len(queue) or pool in self._awaited:
            self._update_awaited(pool, pool_state)
        if pool_state.empty:
            del self.pool_states[pool]
        return tuple(woken)

    def _update_awaited(self, pool: Uid, pool_state: PoolState) -> None:
        if pool_state.awaited == (pool in self._awaited):
            return
        if pool in self._awaited:
            del self._awaited[pool]
            return
        self._awaited[pool] = None
        if len(self._awaited) == 1:
            self.on_pressed()

    def _judge_pool(self, uid: Uid, pool_state: PoolState, facts: Pool | None) -> Woken:
        pool_state.facts = facts
        for member in pool_state.members:
            self._recount(self._member_states[member])
        return self._serve(uid)

    def _recount(self, member_state: MemberState) -> None:
        """Counts a member by its present standing. A reserved member is not counted."""
        if member_state.holder is None:
            self.pool_states[member_state.member.pool].count_as(member_state, self._judge(member_state))

    def _pool_state(self, pool: Uid) -> PoolState:
        pool_state = self.pool_states.get(pool)
        if pool_state is None:
            pool_state = self.pool_states[pool] = PoolState(prompt=self._prompt)
        return pool_state

    def _leave_node(self, member: Member) -> None:
        here = self._on_node[member.node]
        del here[member.uid]
        if not here:
            del self._on_node[member.node]


def _others(woken: Woken, claim: Uid) -> Woken:
    return tuple(claimant for claimant in woken if claimant.uid != claim)
