"""The assigner against a model that scans everything, and so is too simple to be wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sandpool.controllers.assigner.assigner import AGAIN, Assigner
from sandpool.controllers.assigner.facts import Claimant, Cold, Member, Pool, Standing, Take, Wait, Why, Woken, standing
from sandpool.controllers.assigner.wait_queue import State
from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import UpdateStrategyType

START = datetime(2026, 1, 1, tzinfo=UTC)
POOLS = [Uid("p1"), Uid("p2")]
MEMBERS = [Uid(f"m{i}") for i in range(6)]
CLAIMS = [Uid(f"c{i}") for i in range(6)]
NODES = ["", "n1", "n2", "n3"]
MAIN = POOLS[0]  # where most of it happens
SOME_POOL = st.sampled_from([MAIN] * 5 + POOLS[1:])
STRATEGIES = st.sampled_from(UpdateStrategyType)
RARELY = st.sampled_from([False] * 7 + [True])
OFFERED = (Standing.READY, Standing.LAST_CHOICE)


def a_claim(uid: Uid) -> Claimant:
    return Claimant(uid, Key("a", uid), (uid,))


class AssignerMachine(RuleBasedStateMachine):
    @initialize(
        ready=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6),
        strategy=STRATEGIES,
        nodes=st.permutations(NODES * 2),
    )
    def start(self, ready: list[tuple[bool, bool]], strategy: UpdateStrategyType, nodes: list[str]) -> None:
        self.assigner = Assigner()
        self.now = START
        self.members: dict[Uid, Member] = {}
        self.pools: dict[Uid, Pool] = {}
        self.draining: set[str] = set()
        self.withdrawn: set[Uid] = set()
        self.held: dict[Uid, Uid] = {}  # claim to member
        self.too_late: set[Uid] = set()  # of the last that asked
        self.queue: dict[
            Uid, tuple[Uid, State]
        ] = {}  # claim to pool and state; the oldest is the one of the lowest number
        self.put_pool(MAIN, strategy, False, True)
        for uid, (is_ready, is_stale), node in zip(MEMBERS, ready, nodes, strict=False):
            self.put_member(uid, MAIN, node, is_ready, is_stale, False, "a")

    # The model

    def standing(self, uid: Uid) -> Standing:
        member = self.members[uid]
        if uid in self.withdrawn:
            return Standing.WITHHELD
        return standing(member, self.pools.get(member.pool), member.node in self.draining)

    def free(self, pool: Uid, *wanted: Standing) -> list[Uid]:
        held = set(self.held.values())
        return [u for u, m in self.members.items() if m.pool == pool and u not in held and self.standing(u) in wanted]

    def waiting(self, pool: Uid, *states: State) -> list[Uid]:
        return sorted(claim for claim, (its, state) in self.queue.items() if its == pool and state in (states or State))

    def settle(self, *woken: Claimant, told: Uid | None = None, late: bool = False) -> None:
        """What a change leads to: the assigner names the claims, the model checks that they are the right ones. `told`: the claim that
        is told otherwise, by the answer to what it asked. `late`: it has waited for too long, in a pool in which nothing becomes ready."""
        names = [claimant.uid for claimant in woken]
        assert len(names) == len(set(names))
        expected: set[Uid] = set()
        for pool in sorted({its for its, _ in self.queue.values()}):
            for claim in self.waiting(pool)[: len(self.free(pool, *OFFERED))]:
                member = self.member_of(claim)
                self.check_choice(member, self.free(pool, *OFFERED))
                self.held[claim] = member
                del self.queue[claim]
                expected.add(claim)
            expected |= set(self.begin(pool))
        if told is not None and late and told in self.queue and self.queue[told][1] is State.WAITS:
            for claim in self.waiting(self.queue[told][0], State.WAITS):  # fewer than are bearable
                self.queue[claim] = (self.queue[told][0], State.BEGUN)
                expected.add(claim)
            self.too_late.add(told)
        assert set(names) == expected - {told}

    def begin(self, pool: Uid) -> list[Uid]:
        """Who has no member coming begins to start cold, the oldest of them first."""
        begun: list[Any] = []
        facts = self.pools.get(pool)
        while True:
            others = len(self.waiting(pool, State.STANDS_BY))
            covered = max(0, len(self.free(pool, Standing.WARMING)) - others)
            idle = self.waiting(pool, State.WAITS)
            if len(idle) <= covered:
                return begun
            assert facts is None or facts.replicas < 10, "else not all of them would"
            self.queue[idle[covered]] = (pool, State.BEGUN)
            begun.append(idle[covered])

    def member_of(self, claim: Uid) -> Uid:
        found = [member.uid for holder, member in self.assigner.reservations() if holder.uid == claim]
        assert len(found) == 1, f"{claim} should have been served"
        return found[0]

    def check_choice(self, chosen: Uid, free: list[Uid]) -> None:
        assert chosen in free
        first = [uid for uid in free if self.standing(uid) is Standing.READY] or free
        assert chosen in first
        named = [self.members[uid].node for uid in first if self.members[uid].node]
        node = self.members[chosen].node
        if named:
            assert node, "members without a node come last"
            # Several may be served at once; the model takes them one by one, and so does the assigner.
            assert named.count(node) == max(map(named.count, named))

    def lose(self, uid: Uid) -> list[Uid]:
        """A member goes; the claims that had it."""
        self.members.pop(uid, None)
        self.withdrawn.discard(uid)
        losers = [claim for claim, member in self.held.items() if member == uid]
        for claim in losers:
            del self.held[claim]
        return losers

    def settle_loss(self, woken: Woken, losers: list[Uid], pool: Uid) -> None:
        """Whoever lost what was reserved for it is back in line."""
        names = [claimant.uid for claimant in woken]
        assert set(losers) <= set(names)
        for claim in losers:
            self.queue[claim] = (pool, State.WAITS)
        self.settle(*(claimant for claimant in woken if claimant.uid not in losers), told=losers[0] if losers else None)

    # The world

    @rule(
        uid=st.sampled_from(MEMBERS),
        pool=SOME_POOL,
        node=st.sampled_from(NODES),
        ready=st.booleans(),
        stale=st.booleans(),
        leaving=RARELY,
        namespace=st.sampled_from(["a"] * 7 + ["b"]),
    )
    def put_member(
        self, uid: Uid, pool: Uid, node: str, ready: bool, stale: bool, leaving: bool, namespace: str
    ) -> None:
        old = self.members.get(uid)
        member = Member(uid, Key(namespace, uid), pool, node, ready, stale, leaving)
        losers = self.lose(uid) if old is not None and old.pool != pool else []
        self.members[uid] = member
        self.settle_loss(self.assigner.put_member(member), losers, pool if old is None else old.pool)

    @rule(uid=st.sampled_from(MEMBERS), ready=st.booleans())
    def becomes_ready(self, uid: Uid, ready: bool) -> None:
        if uid in self.members:
            self.members[uid] = replace(self.members[uid], ready=ready)
            self.settle(*self.assigner.put_member(self.members[uid]))

    @rule(uid=st.sampled_from(MEMBERS), taker=st.none() | st.sampled_from(CLAIMS))
    def drop_member(self, uid: Uid, taker: Uid | None) -> None:
        pool = self.members[uid].pool if uid in self.members else MAIN
        losers = [claim for claim in self.lose(uid) if claim != taker]
        self.settle_loss(self.assigner.drop_member(uid, taker), losers, pool)

    @rule(
        uid=SOME_POOL,
        strategy=STRATEGIES,
        leaving=RARELY,
        known=RARELY.map(lambda rarely: not rarely),
    )
    def put_pool(self, uid: Uid, strategy: UpdateStrategyType, leaving: bool, known: bool) -> None:
        self.pools[uid] = Pool(uid, Key("a", uid), strategy, leaving, known)
        self.settle(*self.assigner.put_pool(self.pools[uid]))

    @rule(uid=SOME_POOL, really=RARELY)
    def drop_pool(self, uid: Uid, really: bool) -> None:
        if not really:
            return
        self.pools.pop(uid, None)
        self.settle(*self.assigner.drop_pool(uid))

    @rule(node=st.sampled_from(NODES[1:]), draining=st.booleans())
    def drain(self, node: str, draining: bool) -> None:
        (self.draining.add if draining else self.draining.discard)(node)
        self.settle(*self.assigner.drain(node, draining))

    @rule(uid=st.sampled_from(MEMBERS))
    def withdraw(self, uid: Uid) -> None:
        woken = self.assigner.withdraw(uid)
        assert (woken is None) == (uid in self.held.values())
        if woken is not None:
            if uid in self.members:
                self.withdrawn.add(uid)
            self.settle(*woken)

    @rule(uid=st.sampled_from(MEMBERS))
    def restore(self, uid: Uid) -> None:
        self.withdrawn.discard(uid)
        self.settle(*self.assigner.restore(uid))

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # The claims

    @rule(pool=SOME_POOL)
    def burst(self, pool: Uid) -> None:
        for claim in CLAIMS:
            self.acquire(claim, pool, 100.0)

    @rule(claim=st.sampled_from(CLAIMS), pool=SOME_POOL, begun=RARELY)
    def line_up(self, claim: Uid, pool: Uid, begun: bool) -> None:
        known = claim in self.held or claim in self.queue
        woken = self.assigner.line_up(a_claim(claim), pool, begun=begun)
        facts = self.pools.get(pool)
        if known or facts is None or facts.leaving:
            assert woken is None
            return
        assert woken is not None
        self.queue[claim] = (pool, State.BEGUN if begun else State.WAITS)
        self.settle(*woken)

    @rule(claim=st.sampled_from(CLAIMS), pool=SOME_POOL, patience=st.sampled_from([0.0, 2.0, 100.0]), begun=RARELY)
    def acquire(self, claim: Uid, pool: Uid, patience: float, begun: bool = False) -> None:
        before = {self.queue[claim][0]} if claim in self.queue else set()
        if claim in self.held:
            before.add(self.members[self.held[claim]].pool)
        if before and before != {pool}:
            self.give_up(claim)
        facts = self.pools.get(pool)
        deadline = self.now + timedelta(seconds=patience)
        decision = self.assigner.acquire(a_claim(claim), pool, self.now, deadline, begun=begun)
        assert claim not in [claimant.uid for claimant in decision.woken]
        if facts is None or facts.leaving:
            assert decision == Cold(Why.NO_POOL, decision.woken)
            self.give_up(claim)
            self.settle(*decision.woken)
            return
        if claim in self.held and self.standing(self.held[claim]) in OFFERED:
            assert isinstance(decision, Take)
            assert decision.member == self.members[self.held[claim]]
            self.settle(*decision.woken)
            return
        self.held.pop(claim, None)
        self.queue[claim] = (pool, State.BEGUN if begun or self.keeps_on(claim, pool) else State.WAITS)
        self.too_late = set()
        self.settle(*decision.woken, told=claim, late=patience == 0 and not self.moving(pool))
        if claim in self.held:
            assert isinstance(decision, Take), "what is ready is taken at once"
            assert decision.member.uid == self.held[claim]
        elif self.queue[claim][1] is State.BEGUN:
            assert isinstance(decision, Cold)
            early = (Why.NO_MEMBERS, Why.NONE_WARMING, Why.SOONER)
            assert decision.why in ((Why.TOO_LATE,) if claim in self.too_late else early)
        else:
            assert isinstance(decision, Wait)
            assert decision.until == (deadline if patience else self.now + timedelta(seconds=AGAIN))

    def keeps_on(self, claim: Uid, pool: Uid) -> bool:
        """Whether it was told to begin, and there is still no member coming for it."""
        if self.queue.get(claim) != (pool, State.BEGUN):
            return False
        older = [one for one in self.waiting(pool, State.WAITS) if one < claim]
        return len(older) >= len(self.free(pool, Standing.WARMING)) - len(self.waiting(pool, State.STANDS_BY))

    def moving(self, pool: Uid) -> bool:
        """The clock that measures stands still here: a member that ever became ready did so just now."""
        pool_state = self.assigner.pool_states.get(pool)
        return pool_state is not None and pool_state.start_rate.last is not None

    def give_up(self, claim: Uid) -> None:
        self.held.pop(claim, None)
        self.queue.pop(claim, None)

    @rule(claim=st.sampled_from(CLAIMS), pool=SOME_POOL)
    def stand_by(self, claim: Uid, pool: Uid) -> None:
        elsewhere = claim in self.held or self.queue.get(claim, (pool, None))[0] != pool
        woken = self.assigner.stand_by(a_claim(claim), pool)
        if elsewhere or pool not in self.pools:
            assert woken == ()
            return
        self.queue[claim] = (pool, State.STANDS_BY)
        self.settle(*woken)

    @rule(claim=st.sampled_from(CLAIMS))
    def started(self, claim: Uid) -> None:
        self.give_up(claim)
        self.settle(*self.assigner.started(claim))

    @rule(claim=st.sampled_from(CLAIMS))
    def commit(self, claim: Uid) -> None:
        self.assigner.commit(claim)
        if claim in self.held:
            self.lose(self.held[claim])
        self.settle()

    @rule(claim=st.sampled_from(CLAIMS), lost=st.booleans())
    def release(self, claim: Uid, lost: bool) -> None:
        member = self.held.pop(claim, None)
        if member is not None and lost:
            self.lose(member)
        self.settle(*self.assigner.release(claim, lost=lost))

    @rule(claim=st.sampled_from(CLAIMS))
    def forget(self, claim: Uid) -> None:
        self.give_up(claim)
        self.settle(*self.assigner.forget(claim))

    @precondition(lambda self: self.members or self.pools)
    @rule(order=st.randoms(use_true_random=False))
    def lose_the_memory(self, order: object) -> None:
        """A new assigner, told the same in any order, has the same to offer."""
        other = Assigner()
        news = [*self.members.values(), *self.pools.values(), *self.draining]
        order.shuffle(news)  # type: ignore[attr-defined]
        for item in news:
            match item:
                case Member():
                    assert other.put_member(item) == ()
                case Pool():
                    assert other.put_pool(item) == ()
                case _:
                    assert other.drain(item, True) == ()  # type: ignore[arg-type]
        withdrawn, self.withdrawn = self.withdrawn, set()  # deletes under way are not told
        for pool in POOLS:
            mine = [self.standing(uid) for uid, member in self.members.items() if member.pool == pool]
            counts = other.counts(pool)
            assert counts.ready == sum(one in OFFERED for one in mine)
            assert counts.warming == mine.count(Standing.WARMING)
        self.withdrawn = withdrawn

    # Always

    @invariant()
    def the_same_is_reserved_and_each_once(self) -> None:
        reserved = {claimant.uid: member.uid for claimant, member in self.assigner.reservations()}
        assert reserved == self.held
        assert len(set(reserved.values())) == len(reserved)
        for uid in MEMBERS:
            holder = self.assigner.holder(uid)
            assert (holder.uid if holder else None) == next((c for c, m in self.held.items() if m == uid), None)

    @invariant()
    def the_counts_agree(self) -> None:
        for pool in POOLS:
            counts = self.assigner.counts(pool)
            assert counts.ready == len(self.free(pool, *OFFERED))
            assert counts.warming == len(self.free(pool, Standing.WARMING))
            assert counts.waiting == len(self.waiting(pool))
            assert counts.reserved == sum(self.members[uid].pool == pool for uid in self.held.values())
            assert not (counts.ready and counts.waiting), "nobody waits beside a member that is free"
            for place, claim in enumerate(self.waiting(pool)):
                turn = self.assigner.turn(claim)
                assert turn is not None
                assert turn[0] == place, "the oldest first, whoever asked first"
        wanted = [pool for pool, facts in self.pools.items() if not facts.leaving and facts.template_known]
        assert self.assigner.pressed == any(self.waiting(pool) for pool in wanted)

    def teardown(self) -> None:
        if not hasattr(self, "assigner"):
            return
        for claim in CLAIMS:
            self.assigner.forget(claim)
        for uid in MEMBERS:
            self.assigner.drop_member(uid)
        for pool in POOLS:
            self.assigner.drop_pool(pool)
        for node in NODES:
            self.assigner.drain(node, False)
        assert self.assigner.empty, "something is kept of what is gone"


AssignerMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAssigner = AssignerMachine.TestCase


@pytest.mark.long
def test_assigner_deep() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        AssignerMachine, settings=settings(max_examples=1500, stateful_step_count=80, deadline=None)
    )
