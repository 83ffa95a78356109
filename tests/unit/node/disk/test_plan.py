"""Which pods are measured, frozen and evicted, without a disk."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sandpool.model.metadata import Uid
from sandpool.node.disk.plan import FAST, GIB, GRAIN, OFTEN, OLD, SOMETIMES, Plan, PodFacts, View, allowance, decide
from sandpool.node.disk.space import Level

RESERVE = GIB
POD = PodFacts(Uid("a"), slack=10 * GIB)
ROOM = View(Level.OK, 100 * GIB, RESERVE)
LOW = View(Level.PRESSURE, RESERVE - 1, RESERVE, pruned=True, worth=RESERVE // 64)


def plan(*pods: PodFacts, view: View = ROOM) -> Plan:
    return decide(replace(view, pods=pods))


def test_nobody_is_measured_before_a_limit_can_be_reached() -> None:
    assert plan(replace(POD, taken=10 * GIB - 1)) == Plan(wait=SOMETIMES)
    assert plan(replace(POD, taken=10 * GIB)) == Plan(freeze=("a",), measure=("a",), wait=OFTEN)  # type: ignore[arg-type]


def test_a_pod_without_a_limit_is_left_alone() -> None:
    assert plan(replace(POD, slack=None, taken=100 * GIB, age=1e6)) == Plan()


def test_a_pod_near_its_limit_is_not_measured_for_every_byte() -> None:
    near = replace(POD, slack=1)
    assert plan(replace(near, taken=GRAIN - 1)).measure == ()
    assert plan(replace(near, taken=GRAIN)).measure == ("a",)


def test_a_pod_is_frozen_while_it_is_measured() -> None:
    assert plan(replace(POD, measuring=True, frozen=True)) == Plan(wait=OFTEN)
    assert plan(replace(POD, frozen=True)) == Plan(thaw=("a",), wait=OFTEN)  # type: ignore[arg-type]


def test_a_pod_that_runs_again_is_measured_first() -> None:
    assert plan(replace(POD, unknown=True)).measure == ("a",)


def test_what_was_measured_long_ago_is_measured_again() -> None:
    assert plan(replace(POD, taken=1, age=OLD - 1)).measure == ()
    assert plan(replace(POD, taken=1, age=OLD)).measure == ("a",)
    assert plan(replace(POD, taken=1, age=OLD, cost=10.0)).measure == ()  # a large tree less often
    assert plan(replace(POD, taken=0, age=1e6)).measure == ()  # nothing can have changed


def test_a_fast_writer_is_looked_at_more_often() -> None:
    assert plan(POD, view=replace(ROOM, rate=FAST)).wait == OFTEN


def test_under_pressure_images_go_first_and_everybody_is_measured() -> None:
    said = plan(POD, replace(POD, uid=Uid("b"), slack=None), view=replace(LOW, pruned=False))
    assert said.prune
    assert said.measure == ("a", "b")
    assert said.evict is None


def test_under_pressure_the_furthest_above_its_request_goes_and_only_one_at_a_time() -> None:
    large = replace(POD, uid=Uid("large"), used=9 * GIB, request=9 * GIB, fresh=True)
    above = replace(POD, uid=Uid("above"), used=2 * GIB, request=0, fresh=True)
    small = replace(POD, uid=Uid("small"), used=1 * GIB, request=0, fresh=True)
    assert plan(large, above, small, view=LOW).evict == "above"
    assert plan(large, replace(above, leaving=True, going=True), small, view=LOW).evict is None
    assert plan(large, replace(above, leaving=True), small, view=LOW).evict == "small"  # that one does not go
    assert plan(large, small, view=replace(LOW, pruning=True)).evict is None
    assert plan(large, view=LOW).evict == "large"


def test_logs_of_pods_that_are_over_go_first() -> None:
    large = replace(POD, uid=Uid("large"), used=9 * GIB, fresh=True)
    logs = replace(POD, uid=Uid("logs"), slack=None, used=GIB // 10, over=True, fresh=True)
    assert plan(large, logs, view=LOW).evict == "logs"
    assert plan(large, replace(logs, leaving=True, going=True), view=LOW).evict is None
    assert plan(large, replace(logs, leaving=True), view=LOW).evict == "large"
    assert plan(large, replace(logs, used=RESERVE // 64 - 1), view=LOW).evict == "large"


def test_who_takes_next_to_nothing_is_not_evicted_for_others() -> None:
    assert plan(replace(POD, used=RESERVE // 64 - 1, fresh=True), view=LOW) == Plan(wait=OFTEN)


def test_heading_for_the_reserve_everybody_stops_until_it_is_decided_who_goes() -> None:
    racing = replace(LOW, free=RESERVE // 2, rate=float(GIB))
    pods = (replace(POD, measuring=True), replace(POD, uid=Uid("b"), fresh=True))
    assert plan(*pods, view=racing).freeze == ("a", "b")
    frozen = tuple(replace(pod, measuring=False, frozen=True, fresh=True) for pod in pods)
    assert plan(*frozen, view=racing).thaw == (
        "a",
        "b",
    )  # nobody is worth it: they meet the end of the disk by themselves


@given(st.lists(st.integers(0, 3 * GIB), max_size=40), st.integers(256 << 20, 100 * GIB))
def test_overshoot_is_bounded(steps: list[int], limit: int) -> None:
    """A single pod that takes any amounts between two looks is stopped and measured at the first look at which it may be past its
    limit, or a little later if it was nearly there before."""
    taken = 0
    for step in steps:
        taken += step
        said = plan(PodFacts(Uid("a"), limit, allowance(limit), taken))
        assert said.freeze == said.measure == (("a",) if taken >= max(limit, GRAIN) else ())
