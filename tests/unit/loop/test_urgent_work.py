from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.priority import Priority, UrgentWork
from sandpool.loop.queue import Queue
from support.clocks.manual_clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def two_queues() -> tuple[Queue[str], Queue[str], ManualClock]:
    clock, urgent = ManualClock(), UrgentWork()
    claims: Queue[str] = Queue(clock, patience=2.0)
    pools: Queue[str] = Queue(clock, patience=2.0)
    for queue in (claims, pools):
        queue.share(urgent)
    return claims, pools, clock


def taken(queue: Queue[str]) -> str | None:
    item = queue.take_nowait()
    return item.key if item else None


def test_background_keys_wait_while_another_queue_has_urgent_ones() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim")
    pools.add("pool", Priority.BACKGROUND)
    assert taken(pools) is None, "a claim waits"
    assert taken(claims) == "claim"
    assert taken(pools) is None, "a claim is with a worker"
    claims.done("claim")
    assert taken(pools) == "pool"


def test_background_work_that_urgent_work_waits_for_takes_turns() -> None:
    claims, pools, _ = two_queues()
    hungry = False
    pools.expedite_background_while(lambda: hungry)
    claims.add("claim")
    for number in range(3):
        pools.add(f"user {number}")
        pools.add(f"pool {number}", Priority.BACKGROUND)
    assert taken(pools) == "user 0"
    assert taken(pools) == "user 1", "nobody waits for what pools make"
    hungry = True
    assert [taken(pools) for _ in range(4)] == ["pool 0", "user 2", "pool 1", "pool 2"]


async def test_a_held_back_key_is_handed_out_when_its_work_is_waited_for() -> None:
    clock, urgent = LoopClock(START), UrgentWork()
    queue: Queue[str] = Queue(clock, patience=1_000.0)
    queue.share(urgent)
    hungry = False
    queue.expedite_background_while(lambda: hungry)
    urgent.began()
    queue.add("pool", Priority.BACKGROUND)
    taking = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not taking.done()
    hungry = True
    queue.recheck()
    item = await taking
    assert item is not None
    assert item.key == "pool"
    queue.done("pool")
    urgent.ended()


def test_a_key_that_comes_back_is_still_waited_for() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim")
    assert taken(claims) == "claim"
    claims.add("claim")
    pools.add("pool", Priority.BACKGROUND)
    claims.done("claim")
    assert taken(pools) is None
    assert taken(claims) == "claim"
    claims.done("claim")
    assert taken(pools) == "pool"


def test_what_is_raised_counts_once() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim", Priority.BACKGROUND)
    claims.add("claim", Priority.URGENT)
    claims.add("claim", Priority.URGENT)
    pools.add("pool", Priority.BACKGROUND)
    assert taken(pools) is None
    assert taken(claims) == "claim"
    claims.done("claim")
    assert taken(pools) == "pool"


def test_urgent_keys_do_not_wait_for_each_other() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim")
    pools.add("urgent")
    assert taken(pools) == "urgent"
    assert taken(claims) == "claim"


def test_a_background_key_waits_no_longer_than_patience() -> None:
    claims, pools, clock = two_queues()
    claims.add("claim")
    pools.add("pool", Priority.BACKGROUND)
    clock.advance(1.9)
    pools.add("younger", Priority.BACKGROUND)
    assert taken(pools) is None
    clock.advance(0.1)
    assert taken(pools) == "pool"
    assert taken(pools) is None, "the younger one has not rested yet"
    clock.advance(1.9)
    assert taken(pools) == "younger"


def test_nothing_is_held_back_at_the_end() -> None:
    claims, pools, _ = two_queues()
    claims.add("claim")
    pools.add("pool", Priority.BACKGROUND)
    pools.shut_down()
    assert taken(pools) == "pool"


@pytest.mark.looptime
@pytest.mark.parametrize("idle_after", [0.5, 60.0])
async def test_workers_are_woken_when_urgent_work_is_done_or_by_time(idle_after: float) -> None:
    clock, urgent = LoopClock(START), UrgentWork()
    queue: Queue[str] = Queue(clock, patience=2.0)
    queue.share(urgent)
    urgent.began()
    keys = ["a", "b", "c"]
    for key in keys:
        queue.add(key, Priority.BACKGROUND)
    began = clock.monotonic()
    workers = [asyncio.create_task(queue.take()) for _ in keys]
    asyncio.get_running_loop().call_later(idle_after, urgent.ended)
    items = await asyncio.gather(*workers)
    assert sorted(item.key for item in items if item is not None) == keys
    assert clock.monotonic() - began == pytest.approx(min(idle_after, 2.0))
