"""What no plan may ever do, whatever the pool looks like."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.pace import Hold
from sandpool.controllers.pool.plan import Plan, Why, plan_pool
from sandpool.controllers.pool.roster import Member
from sandpool.controllers.pool.view import Obstacle, PoolView
from sandpool.model.pool import UpdateStrategyType
from sandpool.model.reasons import Reason
from unit.controllers.pool.views import NOW, TEMPLATE, a_member, a_view

facts = st.fixed_dictionaries(
    {
        "age": st.floats(0, 1000),
        "ready": st.booleans(),
        "stale": st.booleans(),
        "placed": st.booleans(),
        "leaving": st.booleans(),
    }
)
sizes = st.one_of(st.integers(0, 4), st.sampled_from(["0%", "25%", "100%"]))


@st.composite
def views(draw: st.DrawFn) -> PoolView:
    members = [a_member(number, **one) for number, one in enumerate(draw(st.lists(facts, max_size=14)))]
    known = draw(st.booleans())
    obstacle = None if known else Obstacle(Reason.TEMPLATE_NOT_FOUND, "none")
    ready = sum(member.ready and not member.leaving for member in members)
    return a_view(
        members,
        draw(st.integers(0, 8)),
        draw(st.sampled_from(list(UpdateStrategyType))).value,
        rolling={"maxUnavailable": draw(sizes), "maxSurge": draw(sizes)},
        template=TEMPLATE if known else None,
        obstacle=obstacle,
        unsettled=draw(st.integers(0, 3)),
        reserved=draw(st.integers(0, ready)),
        losses=draw(st.integers(0, 2)),
        hold=draw(st.sampled_from([None, Hold(0), Hold(1)])),
    )


options = st.builds(
    Options,
    batch=st.integers(1, 6),
    replenish_delay=st.sampled_from([0.0, 5.0]),
    refill_rate=st.sampled_from([0.0, 0.5, 3.0]),
)


def staying(view: PoolView) -> list[Member]:
    return [member for member in view.roster if not member.leaving]


@settings(max_examples=400)
@given(views(), options)
def test_every_plan_is_safe(view: PoolView, chosen: Options) -> None:
    plan = plan_pool(view, chosen, NOW)
    never_more_than_wanted_and_the_surge(view, plan)
    only_what_stays_goes_each_once(view, plan)
    a_rollout_keeps_enough_available(view, plan)
    a_trim_leaves_as_many_as_wanted(view, plan)
    if view.strategy is UpdateStrategyType.ON_REPLENISH:
        assert all(removal.why is not Why.STALE for removal in plan.removals)


def never_more_than_wanted_and_the_surge(view: PoolView, plan: Plan) -> None:
    assert plan.creates >= 0
    if plan.creates:
        assert view.population + plan.creates <= view.replicas + view.bounds.surge
        assert view.obstacle is None


def only_what_stays_goes_each_once(view: PoolView, plan: Plan) -> None:
    removed = [removal.member for removal in plan.removals]
    assert len({member.uid for member in removed}) == len(removed)
    assert all(member in staying(view) for member in removed)


def a_rollout_keeps_enough_available(view: PoolView, plan: Plan) -> None:
    if view.strategy is not UpdateStrategyType.ROLLING_UPDATE:
        return
    rolled = sum(removal.member.ready for removal in plan.removals if removal.why is Why.STALE)
    gone = sum(removal.member.ready for removal in plan.removals)
    available = sum(member.ready for member in staying(view)) - view.reserved
    assert not rolled or available - gone >= view.replicas - view.bounds.unavailable


def a_trim_leaves_as_many_as_wanted(view: PoolView, plan: Plan) -> None:
    trimmed = [removal for removal in plan.removals if removal.why is Why.SURPLUS]
    stuck = [removal for removal in plan.removals if removal.why is Why.STUCK]
    assert not trimmed or len(staying(view)) - len(trimmed) - len(stuck) >= view.replicas
    if any(removal.member.ready for removal in trimmed):
        left = {member.uid for member in staying(view)} - {removal.member.uid for removal in plan.removals}
        assert not any(member.uid in left and not member.ready for member in staying(view))


@settings(max_examples=150)
@given(views())
def test_it_comes_to_rest(view: PoolView) -> None:
    """Carried out again and again, with every member becoming ready, a pool ends with what is wanted and then rests."""
    chosen, number = Options(), 1000
    view = replace(view, unsettled=0, reserved=0, template=TEMPLATE, obstacle=None, hold=None, losses=0)
    for _ in range(60):
        plan = plan_pool(view, chosen, NOW)
        if _idle(plan) and view.roster.ready == len(view.roster):
            break
        number = _carry_out(view, plan, number)
    else:
        raise AssertionError("it does not come to rest")
    assert view.roster.staying == view.replicas
    rolled = view.strategy is not UpdateStrategyType.ON_REPLENISH
    assert not rolled or not view.roster.stale


def _idle(plan: Plan) -> bool:
    return not plan.removals and not plan.creates


def _carry_out(view: PoolView, plan: Plan, number: int) -> int:
    roster = view.roster
    for member in [one for one in roster if one.leaving]:
        roster.drop(member.uid)
    for removal in plan.removals:
        roster.put(structs.replace(removal.member, leaving=True))
    for member in [one for one in roster if not one.ready and not one.leaving]:
        roster.put(structs.replace(member, ready=True))
    for _ in range(plan.creates):
        number += 1
        roster.put(a_member(number, age=0))
    return number
