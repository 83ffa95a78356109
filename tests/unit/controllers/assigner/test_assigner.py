from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Cold, Counts, Decision, Member, Pool, Take, Wait, Why
from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import UpdateStrategyType

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=10)
POOL = Uid("pool")


def a_pool(uid: str = POOL, namespace: str = "a", **more: object) -> Pool:
    return Pool(Uid(uid), Key(namespace, "python"), **more)  # type: ignore[arg-type]


def a_member(name: str, node: str = "", *, ready: bool = True, pool: str = POOL, **more: object) -> Member:
    return Member(Uid(name), Key("a", name), Uid(pool), node, ready, **more)  # type: ignore[arg-type]


def a_claim(name: str, namespace: str = "a") -> Claimant:
    return Claimant(Uid(name), Key(namespace, name))


def an_assigner(*members: Member, **terms: object) -> Assigner:
    assigner = Assigner()
    assigner.put_pool(a_pool(**terms))  # type: ignore[arg-type]
    for member in members:
        assert assigner.put_member(member) == ()
    return assigner


def ask(assigner: Assigner, name: str, now: datetime = NOW) -> Decision:
    return assigner.acquire(a_claim(name), POOL, now, LATER)


def taken(decision: Decision) -> str:
    assert isinstance(decision, Take), decision
    return decision.member.uid


def test_oldest_ready_member_first() -> None:
    assigner = an_assigner(*(a_member(name) for name in "abc"))
    assert [taken(ask(assigner, claim)) for claim in ("1", "2", "3")] == ["a", "b", "c"]
    assert ask(assigner, "4") == Cold(Why.NONE_WARMING)


def test_ready_before_older_unready() -> None:
    assigner = an_assigner(a_member("old", ready=False), a_member("new"))
    assert taken(ask(assigner, "1")) == "new"
    assert ask(assigner, "2") == Wait(LATER)


def test_node_with_most_left_comes_first_and_order_stays() -> None:
    members = [a_member("a", "n1"), a_member("b", "n2"), a_member("c", "n2"), a_member("d", "n2"), a_member("e", "n1")]
    assigner = an_assigner(a_member("homeless"), *members)
    assert [taken(ask(assigner, str(i))) for i in range(6)] == ["b", "a", "c", "e", "d", "homeless"]


def test_asking_again_gets_the_same() -> None:
    assigner = an_assigner(a_member("a"), a_member("b"))
    assert assigner.held_by(Uid("1")) is None
    assert taken(ask(assigner, "1")) == taken(ask(assigner, "1")) == "a"
    assert assigner.held_by(Uid("1")) == a_member("a")
    assert assigner.counts(POOL) == Counts(ready=1, reserved=1)


def test_waiters_are_served_in_order_and_woken_once() -> None:
    assigner = an_assigner(a_member("a", ready=False), a_member("b", ready=False))
    assert ask(assigner, "1") == ask(assigner, "2") == Wait(LATER)
    assert ask(assigner, "3") == Cold(Why.NONE_WARMING), "two are warming and two wait"
    assert assigner.put_member(a_member("b")) == (a_claim("1"),)
    assert assigner.put_member(a_member("b", "n1")) == ()
    assert taken(ask(assigner, "1")) == "b"
    assert assigner.put_member(a_member("a")) == (a_claim("2"),)
    assert taken(ask(assigner, "2")) == "a"


def test_a_wait_ends_at_its_deadline() -> None:
    assigner = an_assigner(a_member("a", ready=False))
    assert ask(assigner, "1") == Wait(LATER)
    assert ask(assigner, "1", LATER) == Cold(Why.TOO_LATE)
    assert assigner.counts(POOL).waiting == 1, "it keeps its place"
    assert assigner.put_member(a_member("a")) == (a_claim("1"),), "also while it starts cold"
    assert taken(ask(assigner, "1", LATER)) == "a", "what is ready is better than a cold start, however late"


def test_when_nothing_moves_the_oldest_try_first_whoever_asks() -> None:
    assigner = an_assigner(*(a_member(name, ready=False) for name in "abcdefghij"))
    assert all(ask(assigner, str(number)) == Wait(LATER) for number in range(10))
    found = ask(assigner, "9", LATER)
    assert isinstance(found, Wait), "as many as is bearable are older"
    assert [one.uid for one in found.woken] == [str(number) for number in range(8)]
    assert ask(assigner, "0", LATER) == Cold(Why.TOO_LATE)


def test_fewer_warming_wakes_the_youngest_to_start_cold() -> None:
    assigner = an_assigner(*(a_member(name, ready=False) for name in "abc"))
    for claim in ("1", "2", "3"):
        assert ask(assigner, claim) == Wait(LATER)
    assert assigner.drop_member(Uid("a")) == (a_claim("3"),)
    assert ask(assigner, "2") == Wait(LATER)
    assert ask(assigner, "3") == Cold(Why.NONE_WARMING)


def test_room_that_comes_back_belongs_to_who_waited() -> None:
    assigner = an_assigner(a_member("a", ready=False))
    assert ask(assigner, "1") == Wait(LATER)
    assert assigner.drop_member(Uid("a")) == (a_claim("1"),)
    assigner.put_member(a_member("b", ready=False))
    assert ask(assigner, "2") == Wait(LATER), "the first may have begun to start cold"
    assert ask(assigner, "1") == Wait(LATER, (a_claim("2"),))
    assert ask(assigner, "2") == Cold(Why.NONE_WARMING)


def test_the_oldest_of_several_outside_comes_back_first() -> None:
    assigner = an_assigner(a_member("a", ready=False), a_member("b", ready=False))
    for claim in ("1", "2"):
        assert ask(assigner, claim) == Wait(LATER)
    assigner.put_pool(a_pool(strategy=UpdateStrategyType.RECREATE, template_known=False))
    assigner.drop_member(Uid("a"))
    assert assigner.put_pool(a_pool()) == ()
    assert ask(assigner, "2") == Wait(LATER)
    assert ask(assigner, "1") == Wait(LATER, (a_claim("2"),))
    assert ask(assigner, "2") == Cold(Why.NONE_WARMING)


@pytest.mark.parametrize(
    "spoiled",
    [
        a_member("a", leaving=True),
        a_member("a", "drained"),
        replace(a_member("a"), key=Key("b", "a")),
        a_member("a", pool="an earlier pool of the name"),
    ],
)
def test_never_offered(spoiled: Member) -> None:
    assigner = an_assigner()
    assigner.drain("drained", True)
    assigner.put_member(spoiled)
    assert ask(assigner, "1") == Cold(Why.NONE_WARMING)


def test_a_drained_node_is_used_again() -> None:
    assigner = an_assigner(a_member("a", "n1"), a_member("b", "n1", ready=False))
    assert assigner.drain("n1", True) == ()
    assert ask(assigner, "1") == Cold(Why.NONE_WARMING)
    assigner.drain("n1", False)
    assert taken(ask(assigner, "1")) == "a"
    assert ask(assigner, "2") == Wait(LATER)
    assert assigner.drain("n1", True) == (a_claim("2"),)
    assert ask(assigner, "1") == Cold(Why.NONE_WARMING), "a reservation on it is given up, too"


@pytest.mark.parametrize(
    ("strategy", "template", "expected"),
    [
        (UpdateStrategyType.ON_REPLENISH, True, ["stale", "fresh"]),
        (UpdateStrategyType.ON_REPLENISH, False, ["stale", "fresh"]),
        (UpdateStrategyType.RECREATE, True, ["fresh"]),
        (UpdateStrategyType.RECREATE, False, []),
        (UpdateStrategyType.ROLLING_UPDATE, True, ["fresh", "stale"]),
        (UpdateStrategyType.ROLLING_UPDATE, False, []),
    ],
)
def test_strategies(strategy: UpdateStrategyType, template: bool, expected: list[str]) -> None:
    assigner = an_assigner(a_member("stale", stale=True), a_member("fresh"), strategy=strategy, template_known=template)
    decisions = [ask(assigner, claim) for claim in ("1", "2")]
    assert [decision.member.uid for decision in decisions if isinstance(decision, Take)] == expected


def test_a_reservation_that_became_stale_is_exchanged() -> None:
    assigner = an_assigner(a_member("a"), a_member("b"), strategy=UpdateStrategyType.RECREATE)
    assert taken(ask(assigner, "1")) == "a"
    assert assigner.put_member(a_member("a", stale=True)) == ()
    assert taken(ask(assigner, "1")) == "b"
    assert assigner.holder(Uid("a")) is None


def test_whether_a_reservation_may_still_be_used() -> None:
    assigner = an_assigner(a_member("a", "n"), a_member("b", "n", ready=False))
    assert not assigner.offered(Uid("1")), "nothing is reserved"
    ask(assigner, "1")
    assert assigner.offered(Uid("1"))
    ask(assigner, "2")
    assert not assigner.offered(Uid("2")), "it waits"
    assigner.drain("n", True)
    assert not assigner.offered(Uid("1"))
    assigner.drain("n", False)
    assert assigner.offered(Uid("1"))
    assert [member.uid for member in assigner.members()] == ["a", "b"]


def test_pool_unknown_leaving_gone_or_foreign() -> None:
    assigner = Assigner()
    assigner.put_member(a_member("a"))
    assert ask(assigner, "1") == Cold(Why.NO_POOL), "not seen yet"
    assigner.put_pool(a_pool())
    assert assigner.acquire(a_claim("x", "b"), POOL, NOW, LATER) == Cold(Why.NO_POOL)
    assert taken(ask(assigner, "1")) == "a"
    assigner.put_pool(a_pool(leaving=True))
    assert ask(assigner, "1") == Cold(Why.NO_POOL)
    assigner.put_pool(a_pool())
    assigner.drop_pool(POOL)
    assert ask(assigner, "1") == Cold(Why.NO_POOL)


def test_waiters_of_a_pool_that_goes_are_woken() -> None:
    assigner = an_assigner(a_member("a", ready=False))
    ask(assigner, "1")
    assert assigner.drop_pool(POOL) == (a_claim("1"),)
    assert ask(assigner, "1") == Cold(Why.NO_POOL)


def test_asking_another_pool_gives_up_the_first() -> None:
    assigner = an_assigner(a_member("a"), a_member("b", ready=False))
    assigner.put_pool(a_pool("other"))
    assigner.put_member(a_member("c", pool="other"))
    assert taken(ask(assigner, "1")) == "a"
    assert ask(assigner, "2") == Wait(LATER)
    moved = assigner.acquire(a_claim("1"), Uid("other"), NOW, LATER)
    assert moved == Take(a_member("c", pool="other"), (a_claim("2"),))
    assert taken(ask(assigner, "2")) == "a"


def test_commit_and_the_notification_of_the_own_write_come_in_any_order() -> None:
    for first in ("commit", "cache"):
        assigner = an_assigner(a_member("a"))
        ask(assigner, "1")
        if first == "commit":
            assigner.commit(Uid("1"))
        assert assigner.drop_member(Uid("a"), taker=Uid("1")) == (), "its own transfer wakes nobody"
        assigner.commit(Uid("1"))
        assert assigner.counts(POOL) == Counts()


def test_a_member_taken_by_somebody_else_wakes_who_had_it_reserved() -> None:
    assigner = an_assigner(a_member("a"))
    ask(assigner, "1")
    assert assigner.drop_member(Uid("a"), taker=Uid("of another process")) == (a_claim("1"),)
    assert ask(assigner, "1") == Cold(Why.NONE_WARMING)


def test_release_hands_on_and_lost_ones_are_not_offered_again() -> None:
    assigner = an_assigner(a_member("a"), a_member("b", ready=False))
    ask(assigner, "1")
    ask(assigner, "2")
    assert assigner.release(Uid("1")) == (a_claim("2"),)
    assert taken(ask(assigner, "2")) == "a"
    assert assigner.release(Uid("2"), lost=True) == ()
    assert ask(assigner, "2") == Wait(LATER)
    assert assigner.put_member(a_member("a")) == (a_claim("2"),), "the cache tells of it again"


def test_a_pool_may_delete_only_what_nobody_holds() -> None:
    assigner = an_assigner(a_member("a"), a_member("b"))
    ask(assigner, "1")
    assert assigner.withdraw(Uid("a")) is None
    assert assigner.withdraw(Uid("b")) == ()
    assert ask(assigner, "2") == Cold(Why.NONE_WARMING)
    assigner.restore(Uid("b"))
    assert taken(ask(assigner, "2")) == "b"


def test_withdrawing_a_warming_member_wakes_who_has_no_room() -> None:
    assigner = an_assigner(a_member("a", ready=False))
    ask(assigner, "1")
    assert assigner.withdraw(Uid("a")) == (a_claim("1"),)


def test_two_members_three_claims() -> None:
    assigner = an_assigner(a_member("a"), a_member("b"))
    decisions = [ask(assigner, claim) for claim in ("1", "2", "3")]
    assert sorted(taken(decision) for decision in decisions[:2]) == ["a", "b"]
    assert decisions[2] == Cold(Why.NONE_WARMING)


def test_one_from_the_middle_goes() -> None:
    assigner = an_assigner(*(a_member(name) for name in "abc"))
    assert assigner.drop_member(Uid("b")) == ()
    assert [taken(ask(assigner, claim)) for claim in ("1", "2")] == ["a", "c"]
    assert ask(assigner, "3") == Cold(Why.NONE_WARMING)


def test_told_three_times_it_is_there_once() -> None:
    assigner = an_assigner(*[a_member("a")] * 3)
    assert assigner.counts(POOL) == Counts(ready=1)
    assert taken(ask(assigner, "1")) == "a"
    assert ask(assigner, "2") == Cold(Why.NONE_WARMING)


def test_a_member_that_gets_its_node_late_counts_there() -> None:
    assigner = an_assigner(a_member("a", "n1"), a_member("b"), a_member("c", "n2"))
    assigner.put_member(a_member("b", "n2"))
    assert taken(ask(assigner, "1")) == "c", "n2 has two now, and c was there first"


def test_namespaces_and_pools_do_not_meet() -> None:
    assigner = an_assigner(a_member("a"))
    assigner.put_pool(a_pool("same name elsewhere", namespace="b"))
    assert assigner.acquire(a_claim("1", "b"), Uid("same name elsewhere"), NOW, LATER) == Cold(Why.NONE_WARMING)
    assert assigner.acquire(a_claim("1", "b"), POOL, NOW, LATER) == Cold(Why.NO_POOL)
    assert assigner.acquire(a_claim("1"), Uid("python"), NOW, LATER) == Cold(Why.NO_POOL), "a name is no uid"


def test_nothing_is_kept_of_a_pool_that_is_gone() -> None:
    assigner = an_assigner(a_member("a"), a_member("b", ready=False))
    ask(assigner, "1")
    ask(assigner, "2")
    assigner.drop_pool(POOL)
    for claim in ("1", "2"):
        assert ask(assigner, claim) == Cold(Why.NO_POOL)
    for member in ("a", "b"):
        assigner.drop_member(Uid(member))
    assert assigner.empty


def test_whoever_stands_by_is_woken_by_the_first_member_that_becomes_ready() -> None:
    assigner = an_assigner(a_member("a", ready=False))
    assert ask(assigner, "1", LATER) == Cold(Why.TOO_LATE)
    assert assigner.stand_by(a_claim("1"), POOL) == ()
    assert assigner.put_member(a_member("a")) == (a_claim("1"),)
    assert taken(ask(assigner, "1", LATER)) == "a"


def test_whoever_stands_by_where_nothing_is_warming_waits_for_what_comes() -> None:
    assigner = an_assigner()
    assert assigner.stand_by(a_claim("1"), POOL) == ()
    assert assigner.stand_by(a_claim("2"), POOL) == ()
    assert assigner.put_member(a_member("a", ready=False)) == ()
    assert ask(assigner, "3") == Cold(Why.NONE_WARMING), "who came first is served first"
    assert assigner.put_member(a_member("a")) == (a_claim("1"),)
    assert assigner.put_member(a_member("b")) == (a_claim("2"),)


def test_whoever_stands_by_when_a_member_has_become_ready_meanwhile_is_told() -> None:
    assigner = an_assigner(a_member("a"))
    assert assigner.stand_by(a_claim("1"), POOL) == (a_claim("1"),)
    assert assigner.held_by(Uid("1")) == a_member("a")


def test_nobody_stands_by_twice_or_where_there_is_no_pool() -> None:
    assigner = an_assigner(a_member("a"))
    assert taken(ask(assigner, "1")) == "a"
    assert assigner.stand_by(a_claim("1"), POOL) == ()
    assert assigner.stand_by(a_claim("2"), Uid("other")) == ()
    assert assigner.counts(POOL) == Counts(reserved=1)


def test_a_member_may_be_heard_of_when_its_pool_is_not_known_any_more() -> None:
    """The answer to its creation may come after the pool's end, or before the pool's own news: a starting one is timed all the same."""
    assigner = Assigner()
    assigner.measuring = True
    assert assigner.put_member(a_member("w", ready=False)) == ()
    assert assigner.counts(POOL) == Counts(), "nothing is offered of a pool that nobody knows"
    assigner.put_pool(a_pool())
    assert assigner.counts(POOL) == Counts(warming=1)
    assigner.drop_pool(POOL)
    assigner.drop_member(Uid("w"))
    assert assigner.empty


def test_no_cold_start_overtakes_members_that_a_pool_has_yet_to_make() -> None:
    """The pool was filled fast, so that many starts at once seem bearable; now whoever makes members is behind."""
    now = 0.0
    assigner = Assigner(lambda: now)
    assigner.measuring = True
    assigner.put_pool(a_pool(replicas=40))
    for number in range(40):
        assigner.put_member(a_member(f"m{number}", ready=False))
    now = 1.0
    for number in range(40):
        now += 0.005
        assigner.put_member(a_member(f"m{number}"))
    now += 5.0
    for number in range(40):
        taken(ask(assigner, f"c{number}"))
        assigner.commit(Uid(f"c{number}"))
    assert all(isinstance(ask(assigner, f"c{number}"), Wait) for number in range(40, 100))
    woken = [assigner.put_member(a_member(f"m{number}", ready=False)) for number in range(40, 80)]
    assert not any(woken[:-1])
    assert woken[-1][0] == a_claim("c80"), "all are begun, and the first for whom none of them is may try"
