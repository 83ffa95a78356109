from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.priority import Priority
from sandpool.loop.queue import Queue
from support.clocks.manual_clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def a_queue() -> tuple[Queue[str], ManualClock]:
    clock = ManualClock()
    return Queue(clock), clock


def taken(queue: Queue[str]) -> str | None:
    item = queue.take_nowait()
    return item.key if item else None


def test_added_twice_is_taken_once() -> None:
    queue, _ = a_queue()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 1
    assert taken(queue) == "a"
    assert taken(queue) is None


def test_added_while_processed_comes_once_more_after_done() -> None:
    queue, _ = a_queue()
    queue.add("a")
    assert taken(queue) == "a"
    queue.add("a")
    queue.add("a")
    assert taken(queue) is None
    queue.done("a")
    assert taken(queue) == "a"
    queue.done("a")
    assert taken(queue) is None


def test_urgent_keys_go_first_and_a_raised_key_moves_up() -> None:
    queue, _ = a_queue()
    queue.add("slow", Priority.BACKGROUND)
    queue.add("raised", Priority.BACKGROUND)
    queue.add("fast", Priority.URGENT)
    queue.add("raised", Priority.URGENT)
    assert [taken(queue) for _ in range(4)] == ["fast", "raised", "slow", None]


def test_those_that_lead_come_in_the_order_that_is_said() -> None:
    queue, _ = a_queue()
    for key in "abcd":
        queue.add(key)
    queue.add("later", Priority.BACKGROUND)
    queue.lead(["d", "later", "unknown", "b"])
    assert [taken(queue) for _ in range(6)] == ["d", "b", "a", "c", "later", None]


def test_flows_take_turns_in_each_priority() -> None:
    queue: Queue[str] = Queue(ManualClock(), flow=lambda key: key[0])
    for key in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add(key)
    for key in ("d1", "d2", "e1"):
        queue.add(key, Priority.BACKGROUND)
    queue.add("e1")  # moves up
    assert [taken(queue) for _ in range(4)] == ["a1", "b1", "c1", "e1"]
    queue.add("f1")
    assert [taken(queue) for _ in range(6)] == ["a2", "b2", "f1", "a3", "d1", "d2"]
    assert taken(queue) is None
    assert len(queue) == 0


def test_background_keys_get_every_other_turn_once_they_waited_long() -> None:
    queue, clock = a_queue()
    for n in range(4):
        queue.add(f"slow{n}", Priority.BACKGROUND)
    for n in range(4):
        queue.add(f"fast{n}", Priority.URGENT)
    assert taken(queue) == "fast0"
    clock.advance(2)
    assert [taken(queue) for _ in range(4)] == ["slow0", "fast1", "slow1", "fast2"]


def test_of_several_delays_the_earliest_counts() -> None:
    queue, clock = a_queue()
    queue.add("a", after=10)
    queue.add("a", after=3)
    queue.add("a", after=5)
    clock.advance(2.9)
    assert taken(queue) is None
    clock.advance(0.1)
    assert taken(queue) == "a"
    queue.done("a")
    clock.advance(60)
    assert taken(queue) is None


def test_a_pending_delay_stands_unless_the_worker_settled_it() -> None:
    queue, clock = a_queue()
    for key in ("kept", "settled"):
        queue.add(key, after=10)
        queue.add(key)
        assert taken(queue) == key
    queue.done("kept")
    queue.done("settled", settled=True)
    clock.advance(10)
    assert taken(queue) == "kept"
    assert taken(queue) is None


def test_outdated_delays_do_not_pile_up() -> None:
    queue, clock = a_queue()
    for n in range(10_000):
        queue.add("a", after=20_000 - n)
    assert queue.timers < 200
    clock.advance(10_001)
    assert taken(queue) == "a"


@pytest.mark.looptime
async def test_takers_wake_in_virtual_time_and_each_key_goes_to_one() -> None:
    queue: Queue[str] = Queue(LoopClock(START))
    seen: list[tuple[str, float]] = []

    async def worker() -> None:
        while (item := await queue.take()) is not None:
            seen.append((item.key, asyncio.get_running_loop().time()))
            await asyncio.sleep(1)
            queue.done(item.key)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(worker())
        queue.add("later", after=100)
        queue.add("now")
        await asyncio.sleep(200)
        queue.shut_down()
    assert seen == [("now", 0.0), ("later", 100.0)]


@pytest.mark.looptime
async def test_shut_down_drains_what_waits_and_drops_what_is_delayed() -> None:
    queue: Queue[str] = Queue(LoopClock(START))
    seen: list[str] = []

    async def worker() -> None:
        while (item := await queue.take()) is not None:
            await asyncio.sleep(1)
            seen.append(item.key)
            queue.done(item.key)

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(worker())
        for key in "abc":
            queue.add(key)
        queue.add("delayed", after=2)
        await asyncio.sleep(0.5)
        queue.add("a")  # while processed: once more
        queue.shut_down()
        queue.add("late")
        await queue.drained()
        assert sorted(seen) == ["a", "a", "b", "c"]


async def test_a_cancelled_taker_passes_its_turn_on() -> None:
    queue, _ = a_queue()
    first, second = asyncio.create_task(queue.take()), asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add("a")  # wakes the first
    first.cancel()
    item = await second
    assert item is not None
    assert item.key == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


def shared(workers: int) -> Queue[str]:
    return Queue(ManualClock(), flow=lambda key: key[:-2], workers=workers)


def test_a_flow_leaves_workers_to_others() -> None:
    queue = shared(16)
    for number in range(20, 60):
        queue.add(f"red{number}")
    red = [taken(queue) for _ in range(13)]
    assert red[11] is not None
    assert red[12] is None, "twelve of sixteen"
    queue.add("blue10")
    queue.add("blue11", Priority.BACKGROUND)
    assert [taken(queue) for _ in range(3)] == ["blue10", "blue11", None]
    queue.done("blue10")
    queue.done("blue11")
    assert taken(queue) is None
    queue.done("red20")
    assert taken(queue) == "red32"
    queue.shut_down()
    assert taken(queue) == "red33", "nobody else comes"


def test_every_flow_has_a_worker_while_one_is_free() -> None:
    queue = shared(4)
    for flow in "abcd":
        for number in range(10, 20):
            queue.add(f"{flow}{number}")
    assert [taken(queue) for _ in range(5)] == ["a10", "b10", "c10", "d10", None]


async def test_workers_that_found_nothing_for_their_flows_are_told_when_one_is_free() -> None:
    queue = shared(16)
    for number in range(20, 60):
        queue.add(f"red{number}")
    queue.add("blue10")
    held = []
    while (key := taken(queue)) is not None:
        held.append(key)
    takers = [asyncio.create_task(queue.take()) for _ in range(2)]
    await asyncio.sleep(0)
    for key in held[:5]:
        queue.done(key)
    found = await asyncio.gather(*takers)
    assert all(item is not None for item in found)
