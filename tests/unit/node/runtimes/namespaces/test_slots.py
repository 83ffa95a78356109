"""Which sandbox gets which ids."""

from __future__ import annotations

from sandpool.node.runtimes.namespaces.forked.owners import EACH, FIRST
from sandpool.node.runtimes.namespaces.runtime_host import RANGES, IdRanges


def test_no_two_sandboxes_have_the_same_ids() -> None:
    some = IdRanges("x")
    taken = [some.take(f"tenant-{number % 7}") for number in range(RANGES)]
    assert len(set(taken)) == RANGES
    assert all(base is not None and (base - FIRST) % EACH == 0 and FIRST <= base <= 0x7FFF_0000 for base in taken)
    assert some.take("one-more") is None
    assert taken[5] is not None
    some.give_back(taken[5])
    assert some.take("one-more") == taken[5]
    assert IdRanges("one").take("") != IdRanges("two").take("")


def test_a_tenant_gets_its_own_again_and_nobody_elses() -> None:
    some = IdRanges("x")
    first, second = some.take("one"), some.take("one")
    assert first is not None
    assert second is not None
    some.give_back(second)
    some.give_back(first)
    other = some.take("other")
    assert other not in (first, second)
    assert [some.take("one"), some.take("one")] == [second, first]  # longest unused first
    assert some.take("one") not in (first, second, other)


def test_one_that_is_given_back_twice_is_given_once() -> None:
    some = IdRanges("x")
    base = some.take("one")
    assert base is not None
    some.give_back(base)
    some.give_back(base)
    assert some.take("one") == base
    assert some.take("one") != base


def test_when_all_were_used_the_longest_unused_goes_first() -> None:
    some = IdRanges("x")
    taken = [some.take("one") for _ in range(RANGES)]
    for base in (taken[8], taken[3]):
        assert base is not None
        some.give_back(base)
    assert [some.take("other"), some.take("other"), some.take("other")] == [taken[8], taken[3], None]
