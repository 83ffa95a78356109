from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sandpool.base.fairness import StrideScheduler

WEIGHTS = st.lists(st.integers(1, 9), min_size=2, max_size=5)


@given(WEIGHTS)
def test_who_always_waits_gets_turns_by_weight(weights: list[int]) -> None:
    turns = StrideScheduler(weights)
    counts: Counter[int] = Counter()
    for _ in range(20 * sum(weights)):
        party = turns.choose(range(len(weights)))
        turns.took(party)
        counts[party] += 1
    for party, weight in enumerate(weights):
        assert abs(counts[party] - 20 * weight) <= weight + 1


@given(WEIGHTS, st.data())
def test_nobody_who_waits_is_passed_over_for_long(weights: list[int], data: st.DataObject) -> None:
    """Whoever else comes and goes meanwhile: the others get about as many turns as their weights allow, until it has one."""
    turns = StrideScheduler(weights)
    everybody = range(len(weights))
    for _ in range(data.draw(st.integers(0, 20))):  # anything may have happened before
        turns.took(turns.choose(data.draw(st.sets(st.sampled_from(everybody), min_size=1))))
    waiter = data.draw(st.sampled_from(everybody))
    turns.joined(waiter)
    waiting = {waiter}
    passed_over = 0
    while True:
        for other in data.draw(st.sets(st.sampled_from(everybody))) - waiting:
            turns.joined(other)
            waiting.add(other)
        chosen = turns.choose(waiting)
        turns.took(chosen)
        if chosen == waiter:
            break
        passed_over += 1
        if data.draw(st.booleans()):
            waiting.discard(chosen)
        stride = 1 / weights[waiter]
        assert passed_over <= sum(weight * 2 * stride + 2 for weight in weights)


def test_idling_earns_no_credit() -> None:
    turns = StrideScheduler([1, 1])
    for _ in range(100):
        turns.took(0)
    turns.joined(1)
    order = []
    for _ in range(6):
        order.append(turns.choose((0, 1)))
        turns.took(order[-1])
    assert order[:2] in ([1, 0], [0, 1], [1, 1])
    assert order.count(0) >= 2


def test_of_equals_the_first_goes() -> None:
    assert StrideScheduler([1, 1, 1]).choose((2, 1)) == 2
