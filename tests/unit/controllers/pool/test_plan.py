"""What a pool does next, case by case. Numbers in ids are those of the contract's catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.pace import Hold
from sandpool.controllers.pool.plan import Why, look_again_at, plan_pool
from sandpool.controllers.pool.view import Obstacle, Orphan
from sandpool.model.metadata import Revision, Uid
from sandpool.model.reasons import Reason
from unit.controllers.pool.views import NOW, a_member, a_view, later, names, planned, ready

POLICY = Obstacle(Reason.NETWORK_POLICY_PENDING, "no policy")
NO_TEMPLATE: dict[str, Any] = {"template": None, "obstacle": Obstacle(Reason.TEMPLATE_NOT_FOUND, "no template")}
GOOD = Orphan("p-good", Uid("good"), Revision(1), stale=False)
BAD = Orphan("p-bad", Uid("bad"), Revision(1), stale=True)

CASES: dict[str, tuple[dict[str, Any], tuple[list[str], int]]] = {
    "P-01 unset replicas": ({"replicas": None}, ([], 1)),
    "P-02 an empty pool": ({"replicas": 10}, ([], 10)),
    "P-03 some are missing": ({"members": [ready(1)]}, ([], 2)),
    "P-04 too many": ({"members": [ready(n) for n in range(5)]}, (["u4", "u3"], 0)),
    "P-05 as many as wanted": ({"members": [ready(n) for n in range(3)]}, ([], 0)),
    "P-06 none wanted": ({"members": [ready(1), a_member(2)], "replicas": 0}, (["u2", "u1"], 0)),
    "P-07 a good orphan counts": ({"orphans": (GOOD,)}, ([], 2)),
    "P-34 a bad orphan does not": ({"orphans": (BAD,)}, ([], 3)),
    "P-21 stuck, no successor yet": ({"members": [a_member(1, age=301)], "replicas": 1}, (["u1"], 0)),
    "P-23 inside its grace": ({"members": [a_member(1, age=299)], "replicas": 1}, ([], 0)),
    "P-24 recreate": ({"members": [ready(1, stale=True), ready(2)], "strategy": "Recreate", "replicas": 2}, (["u1"], 0)),
    "P-25 on replenish": ({"members": [ready(1, stale=True)], "replicas": 1}, ([], 0)),
    "the template was repaired": (
        {"members": [a_member(1, stale=True, failing=True), a_member(2, stale=True), a_member(3, failing=True)]},
        (["u1"], 0),
    ),
    "P-26 an empty strategy": ({"members": [ready(1, stale=True)], "replicas": 1, "strategy": ""}, ([], 0)),
    "P-44 recreate, nothing stale": ({"members": [ready(1)], "strategy": "Recreate", "replicas": 1}, ([], 0)),
    "P-58 one that leaves holds its place": ({"members": [ready(1, leaving=True)], "replicas": 1}, ([], 0)),
    "P-60 no node": ({"members": [a_member(1, age=9999, placed=False)], "replicas": 1}, ([], 0)),
    "P-63 stuck on a node": ({"members": [a_member(1, age=9999)], "replicas": 1}, (["u1"], 0)),
    "S4 ready until lately": ({"members": [a_member(1, age=9999, unready_for=10)], "replicas": 1}, ([], 0)),
    "S11 stale ones count until they are gone": (
        {"members": [ready(n, stale=True) for n in range(3)], "strategy": "Recreate"},
        (["u2", "u1", "u0"], 0),
    ),
    "answers that are missing count": ({"unsettled": 2}, ([], 1)),
    "no template, nothing new": ({"members": [ready(1)], **NO_TEMPLATE}, ([], 0)),
    "no template, trimmed nevertheless": ({"members": [ready(1)], "replicas": 0, **NO_TEMPLATE}, (["u1"], 0)),
    "no policy, nothing new": ({"obstacle": POLICY}, ([], 0)),
    "stuck, but nobody could take its place": ({"members": [a_member(1, age=9999)], "obstacle": POLICY}, ([], 0)),
    "stale, but nobody could take its place": (
        {"members": [ready(1, stale=True)], "obstacle": POLICY, "strategy": "Recreate"},
        ([], 0),
    ),
    "more leave than are wanted": ({"members": [ready(n, leaving=True) for n in range(5)]}, ([], 0)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_cases(case: str) -> None:
    given, expected = CASES[case]
    assert planned(a_view(**given)) == expected


def test_who_goes_first() -> None:
    members = [
        ready(1, age=10),
        ready(2, age=20),
        ready(3, age=30, stale=True),
        a_member(4, age=40),
        a_member(5, age=50, placed=False),
        a_member(6, age=60, stale=True),
        a_member(7, age=70, stale=True, placed=False),
        a_member(8, age=35),
    ]
    order, _ = planned(a_view(members, replicas=0))
    assert order == ["u7", "u6", "u5", "u8", "u4", "u3", "u1", "u2"]


def test_each_goes_once_for_the_first_reason() -> None:
    stuck = a_member(1, age=999, stale=True)
    plan = plan_pool(a_view([stuck, ready(2)], replicas=1, strategy="Recreate"), Options(), NOW)
    assert [(removal.member.uid, removal.why) for removal in plan.removals] == [("u1", Why.STUCK)]


def test_orphans_are_sorted_out() -> None:
    plan = plan_pool(a_view(orphans=(GOOD, BAD)), Options(), NOW)
    assert (plan.adopt, plan.discard) == ((GOOD,), (BAD,))
    blind = plan_pool(a_view(orphans=(GOOD, BAD), **NO_TEMPLATE), Options(), NOW)
    assert (blind.adopt, blind.discard) == ((), ())


def test_lost_labels_come_back() -> None:
    assert [m.uid for m in plan_pool(a_view([ready(1, marked=False), ready(2)]), Options(), NOW).mark] == ["u1"]


def test_a_batch_has_its_size() -> None:
    options = Options(batch=2)
    assert planned(a_view(replicas=5), options) == ([], 2)
    assert plan_pool(a_view(replicas=5), options, NOW).more
    many = a_view([ready(n) for n in range(5)], replicas=0)
    assert planned(many, options) == (["u4", "u3"], 0)
    assert plan_pool(many, options, NOW).more
    assert not plan_pool(a_view(replicas=2), options, NOW).more


def test_the_next_look_is_when_the_first_patience_ends() -> None:
    view = a_view([a_member(1, age=100), a_member(2, age=200), ready(3)])
    plan = plan_pool(view, Options(), NOW)
    assert look_again_at(plan, view.roster, NOW) == later(100)


def test_a_full_pool_needs_no_look() -> None:
    view = a_view([ready(n) for n in range(3)])
    assert look_again_at(plan_pool(view, Options(), NOW), view.roster, NOW) is None


def test_a_longer_grace_is_kept() -> None:
    options = Options(readiness_grace=1000.0)
    view = a_view([a_member(1, age=999)], replicas=1, options=options)
    assert planned(view, options) == ([], 0)
    plan = plan_pool(view, options, NOW)
    assert look_again_at(plan, view.roster, NOW) == later(1)


def test_a_hold_holds_creates_only() -> None:
    options = Options(replenish_delay=10.0)
    view = a_view([ready(1), a_member(2, age=999)], losses=1, hold=Hold(0), options=options)
    plan = plan_pool(view, options, NOW)
    assert (names(plan), plan.creates) == (["u2"], 0)
    assert plan.look_again_at == later(10)
    assert plan.tokens is None


def test_a_rate_limits_creates_only() -> None:
    options = Options(refill_rate=2.0)
    plan = plan_pool(a_view([a_member(2, age=999)], replicas=9), options, NOW)
    assert (names(plan), plan.creates) == (["u2"], 2)
    assert plan.look_again_at == later(0.5)
    assert plan.tokens is not None
    assert plan.tokens.left == 0


def test_no_token_is_spent_during_a_hold() -> None:
    options = Options(refill_rate=2.0, replenish_delay=10.0)
    plan = plan_pool(a_view([ready(1)], losses=1, hold=Hold(0)), options, NOW)
    assert plan.creates == 0
    assert plan.tokens is not None
    assert plan.tokens.left == 2.0
    assert plan.look_again_at == later(10)


def test_without_a_hold_replacements_come_in_the_same_pass() -> None:
    assert planned(a_view([ready(1)], losses=2, hold=Hold(0))) == ([], 2)


ROLLING: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    # replicas 10: surge 3, unavailable 2. What goes of the unready and of the ready, and what comes.
    "all stale and ready": ({"stale_ready": 10}, (0, 2, 3)),
    "as far as the surge goes": ({"stale_ready": 10, "fresh_unready": 3}, (0, 2, 0)),
    "new ones are ready": ({"stale_ready": 8, "fresh_ready": 3}, (0, 3, 2)),
    "new ones are not ready": ({"stale_ready": 8, "fresh_unready": 5}, (0, 0, 0)),
    "nearly done": ({"stale_ready": 1, "fresh_ready": 10}, (0, 1, 0)),
    "never more fresh ones than wanted": ({"stale_ready": 1, "fresh_ready": 9}, (0, 1, 1)),
    "old ones are not ready": ({"stale_unready": 10}, (2, 0, 3)),
    "some old ones are not ready": ({"stale_unready": 2, "stale_ready": 8}, (2, 0, 3)),
    "reserved ones are not available": ({"stale_ready": 10, "reserved": 2}, (0, 0, 3)),
    "leaving ones hold their place": ({"stale_ready": 8, "leaving": 5}, (0, 0, 0)),
    "missing answers are fresh ones": ({"stale_ready": 10, "unsettled": 2}, (0, 2, 1)),
    "scaled down meanwhile": ({"stale_ready": 20, "fresh_unready": 3}, (3, 12, 0)),
    "nothing stale": ({"fresh_ready": 9}, (0, 0, 1)),
    "nothing stale and too many": ({"fresh_ready": 12, "fresh_unready": 1}, (1, 2, 0)),
}


@pytest.mark.parametrize("case", ROLLING)
def test_rolling_updates(case: str) -> None:
    given, expected = ROLLING[case]
    kinds: dict[str, dict[str, Any]] = {
        "stale_ready": {"ready": True, "stale": True},
        "stale_unready": {"stale": True},
        "fresh_ready": {"ready": True},
        "fresh_unready": {},
        "leaving": {"leaving": True},
    }
    counted = {kind: given.get(kind, 0) for kind in kinds}
    members: list[Any] = []
    for kind, count in counted.items():
        members += [a_member(len(members) + n, **kinds[kind]) for n in range(count)]
    facts = {key: value for key, value in given.items() if key not in kinds}
    plan = plan_pool(a_view(members, 10, "RollingUpdate", **facts), Options(), NOW)
    gone = [removal.member for removal in plan.removals]
    assert (sum(not m.ready for m in gone), sum(m.ready for m in gone), plan.creates) == expected


@pytest.mark.parametrize(
    ("replicas", "rolling", "goes", "comes"),
    [
        (1, {}, 0, 1),  # surge rounds up, unavailable down
        (4, {}, 1, 1),
        (3, {}, 0, 1),
        (10, {"maxUnavailable": 0, "maxSurge": 0}, 1, 0),
        (10, {"maxUnavailable": "100%", "maxSurge": 0}, 10, 0),
        (10, {"maxUnavailable": 3, "maxSurge": "15%"}, 3, 2),
    ],
)
def test_bounds_are_those_of_deployments(replicas: int, rolling: dict[str, Any], goes: int, comes: int) -> None:
    members = [ready(n, stale=True) for n in range(replicas)]
    gone, made = planned(a_view(members, replicas, "RollingUpdate", rolling=rolling))
    assert (len(gone), made) == (goes, comes)


def test_a_rollout_looks_again_while_members_are_reserved() -> None:
    view = a_view([ready(1, stale=True)], 1, "Recreate", reserved=1)
    assert plan_pool(view, Options(), NOW).look_again_at == later(1)
    assert plan_pool(a_view([ready(1, stale=True)], 1, reserved=1), Options(), NOW).look_again_at is None


STREAM = Options(most_warming=4, young=10.0)


def test_so_many_warm_at_once_and_the_next_come_as_those_become_ready() -> None:
    plan = plan_pool(a_view(replicas=100), STREAM, NOW)
    assert (plan.creates, plan.more, plan.look_again_at) == (4, False, later(0.1))
    three = [a_member(number, age=1) for number in range(3)]
    assert plan_pool(a_view([*three, ready(9)], replicas=100), STREAM, NOW).creates == 1
    assert plan_pool(a_view(three, replicas=100, unsettled=1), STREAM, NOW).creates == 0
    full = plan_pool(a_view([ready(number) for number in range(100)], replicas=100), STREAM, NOW)
    assert (full.creates, full.look_again_at) == (0, None), "a full pool is not looked at again"


def test_members_that_do_not_start_do_not_keep_a_pool_from_its_size() -> None:
    stuck = [a_member(number, age=11) for number in range(50)]
    assert plan_pool(a_view(stuck, replicas=100), STREAM, NOW).creates == 4
    assert plan_pool(a_view(stuck, replicas=52), STREAM, NOW).creates == 2


def test_what_warms_and_a_rate_together_do_not_keep_anybody_busy() -> None:
    """A token is there at once, and nobody may use it."""
    warming = [a_member(number, age=1) for number in range(4)]
    plan = plan_pool(a_view(warming, replicas=100), Options(most_warming=4, refill_rate=2.0), NOW)
    assert (plan.creates, plan.look_again_at) == (0, later(0.1))
