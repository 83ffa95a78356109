"""Connection slots, addresses, lookups and rates, without sockets."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from sandpool.base.rate_limit import TokenBucket
from sandpool.node.network.addresses import AddressPool
from sandpool.node.network.egress.outside import Lookups, LookupSlots
from sandpool.node.network.relay import Throttle
from sandpool.node.network.slots import AllSlots, Slots
from support.clocks.manual_clock import ManualClock


def test_a_pod_has_its_own_places_and_all_have_theirs() -> None:
    every = Slots(3)
    one, two = Slots(2, every), Slots(2, every)
    assert [one.take(), one.take(), one.take()] == [True, True, False]
    assert [two.take(), two.take()] == [True, False]
    one.give_back()
    assert two.take()


def test_who_waits_is_called_once_and_who_is_gone_passes_it_on() -> None:
    every = Slots(1)
    one, two = Slots(5, every), Slots(5, every)
    assert one.take()
    assert not two.take()
    called: list[str] = []
    two.wait(lambda: called.append("gone") is not None)
    two.wait(lambda: called.append("there") is None)
    two.wait(lambda: called.append("later") is None)
    one.give_back()
    assert called == ["gone", "there"]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60))
def test_places_are_never_more_than_there_are(moves: list[tuple[int, bool]]) -> None:
    every = Slots(4)
    pods, held = [Slots(2, every) for _ in range(3)], [0, 0, 0]
    for pod, taking in moves:
        if taking:
            free = held[pod] < 2 and sum(held) < 4
            assert pods[pod].take() is free
            held[pod] += free
        elif held[pod]:
            pods[pod].give_back()
            held[pod] -= 1


async def test_a_throttle_gives_its_burst_and_then_its_rate() -> None:
    clock = ManualClock()
    bucket = Throttle(clock, rate=10, burst=20)
    await bucket.take(20)
    waiting = [asyncio.ensure_future(bucket.take(10)) for _ in range(2)]
    await asyncio.sleep(0)
    clock.advance(0.9)
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [False, False]
    for done in ([True, False], [True, True]):
        clock.advance(1.0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert [task.done() for task in waiting] == done


def test_trying_never_waits() -> None:
    bucket = TokenBucket(1, 2)
    assert [bucket.take(0) for _ in range(3)] == [True, True, False]
    assert [bucket.take(1) for _ in range(2)] == [True, False]


def test_what_is_spent_beyond_the_burst_is_waited_for() -> None:
    bucket = TokenBucket(10, 20)
    assert bucket.spend(0, 20) == 0
    assert abs(bucket.spend(0, 10) - 1) < 1e-6
    assert abs(bucket.spend(1, 5) - 0.5) < 1e-6


def test_the_longest_unused_address_is_given_next() -> None:
    addresses = AddressPool("127.64.0.0/29")
    first = [addresses.take() for _ in range(3)]
    addresses.give_back(first[0])
    assert addresses.take() not in first
    assert addresses.take(first[0]) == first[0]
    assert addresses.take("10.0.0.1") not in first


def test_a_tenant_leaves_places_to_others() -> None:
    every = AllSlots(90)
    greedy = [Slots(50, every.of("greedy")) for _ in range(4)]
    took = sum(pod.take() for pod in greedy for _ in range(50))
    assert took == 80
    modest = Slots(50, every.of("modest"))
    assert [modest.take() for _ in range(3)] == [True] * 3


def test_a_place_is_told_to_whom_may_have_it_one_tenant_after_the_other() -> None:
    every = AllSlots(9)
    greedy, modest = every.of("greedy"), every.of("modest")
    assert sum(greedy.take() for _ in range(9)) == 8
    assert [modest.take(), modest.take()] == [True, False]
    called: list[str] = []
    for name, slots in (("greedy", greedy), ("modest", modest)):
        for _ in range(2):
            slots.wait(lambda name=name: called.append(name) is None)  # type: ignore[misc]
    greedy.give_back()
    assert called == []  # the last is for whoever has none
    for expected in (["greedy"], ["greedy", "modest"], ["greedy", "modest", "greedy"]):
        greedy.give_back()
        assert called == expected


async def test_names_that_never_answer_leave_places_for_those_of_others() -> None:
    """The threads that look them up cannot be stopped, whatever becomes of who asked."""
    never = asyncio.Event()

    async def resolve(name: str) -> list[IPv4Address]:
        if name.startswith("never"):
            await never.wait()
        return [IPv4Address("192.0.2.1")]

    places = LookupSlots(resolve, 16)
    greedy = [Lookups(places, 4, 60, "greedy") for _ in range(20)]
    waiting = [asyncio.ensure_future(pod.ask("never.example")) for pod in greedy for _ in range(4)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(60):
            for _ in range(20):
                assert await Lookups(places, 4, 60, "modest").ask("a.example") == [IPv4Address("192.0.2.1")]
            for task in waiting[::2]:
                task.cancel()
            never.set()
            assert await asyncio.gather(*waiting[1::2]) == [[IPv4Address("192.0.2.1")]] * 40
    finally:
        for pod in greedy:
            await pod.close()
        await places.close()
