from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from sandpool.base.clock import LoopClock
from sandpool.loop.queue import Priority, Queue
from sandpool.loop.rush import Rush
from support.manual_clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def two_queues() -> tuple[Queue[str], Queue[str], ManualClock]:
    clock, rush = ManualClock(), Rush()
    claims: Queue[str] = Queue(clock, patience=2.0)
    pools: Queue[str] = Queue(clock, patience=2.0)
    for queue in (claims, pools):
        queue.share(rush)
    return claims, pools, clock


def taken(queue: Queue[str]) -> str | None:
    item = queue.take_nowait()
    return item.key if item else None


def test_a_second_lane_rests_while_a_first_lane_elsewhere_is_at_work() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim")
    pools.add("pool", Priority.SECOND)
    assert taken(pools) is None, "a claim waits"
    assert taken(claims) == "claim"
    assert taken(pools) is None, "a claim is with a worker"
    claims.done("claim")
    assert taken(pools) == "pool"


def test_what_makes_what_is_waited_for_does_not_rest_and_takes_turns() -> None:
    claims, pools, _ = two_queues()
    hungry = False
    pools.hurry(lambda: hungry)
    claims.add("claim")
    for number in range(3):
        pools.add(f"user {number}")
        pools.add(f"pool {number}", Priority.SECOND)
    assert taken(pools) == "user 0"
    assert taken(pools) == "user 1", "nobody waits for what pools make"
    hungry = True
    assert [taken(pools) for _ in range(4)] == ["pool 0", "user 2", "pool 1", "pool 2"]


async def test_whoever_rests_is_woken_when_its_work_is_waited_for() -> None:
    clock, rush = LoopClock(START), Rush()
    queue: Queue[str] = Queue(clock, patience=1_000.0)
    queue.share(rush)
    hungry = False
    queue.hurry(lambda: hungry)
    rush.began()
    queue.add("pool", Priority.SECOND)
    taking = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not taking.done()
    hungry = True
    queue.look()
    item = await taking
    assert item is not None
    assert item.key == "pool"
    queue.done("pool")
    rush.ended()


def test_a_key_that_comes_back_is_still_waited_for() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim")
    assert taken(claims) == "claim"
    claims.add("claim")
    pools.add("pool", Priority.SECOND)
    claims.done("claim")
    assert taken(pools) is None
    assert taken(claims) == "claim"
    claims.done("claim")
    assert taken(pools) == "pool"


def test_what_is_raised_counts_once() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim", Priority.SECOND)
    claims.add("claim", Priority.FIRST)
    claims.add("claim", Priority.FIRST)
    pools.add("pool", Priority.SECOND)
    assert taken(pools) is None
    assert taken(claims) == "claim"
    claims.done("claim")
    assert taken(pools) == "pool"


def test_first_lanes_do_not_wait_for_each_other() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim")
    pools.add("urgent")
    assert taken(pools) == "urgent"
    assert taken(claims) == "claim"


def test_a_rest_ends_when_patience_does() -> None:
    claims, pools, clock = two_queues()
    claims.add("claim")
    pools.add("pool", Priority.SECOND)
    clock.advance(1.9)
    pools.add("younger", Priority.SECOND)
    assert taken(pools) is None
    clock.advance(0.1)
    assert taken(pools) == "pool"
    assert taken(pools) is None, "the younger one has not rested yet"
    clock.advance(1.9)
    assert taken(pools) == "younger"


def test_nothing_rests_at_the_end() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim")
    pools.add("pool", Priority.SECOND)
    pools.shut_down()
    assert taken(pools) == "pool"


@pytest.mark.looptime
@pytest.mark.parametrize("calm_after", [0.5, 60.0])
async def test_workers_that_rest_are_woken_by_calm_or_by_time(calm_after: float) -> None:
    clock, rush = LoopClock(START), Rush()
    queue: Queue[str] = Queue(clock, patience=2.0)
    queue.share(rush)
    rush.began()
    keys = ["a", "b", "c"]
    for key in keys:
        queue.add(key, Priority.SECOND)
    began = clock.monotonic()
    workers = [asyncio.create_task(queue.take()) for _ in keys]
    asyncio.get_running_loop().call_later(calm_after, rush.ended)
    items = await asyncio.gather(*workers)
    assert sorted(item.key for item in items if item is not None) == keys
    assert clock.monotonic() - began == pytest.approx(min(calm_after, 2.0))
