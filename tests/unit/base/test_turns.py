"""Turns of the loop: one at a time, tenants in rotation, and nobody waits for one who has left."""

from __future__ import annotations

import asyncio

from sandpool.base.turns import Turns


async def test_tenants_take_turns_however_many_one_has_waiting() -> None:
    turns, order = Turns(), list[str]()

    async def work(tenant: str) -> None:
        await turns.take(tenant)
        order.append(tenant)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(work("greedy"))
        await asyncio.sleep(0)
        tasks.create_task(work("modest"))
    assert len(order) == 21
    assert "modest" in order[:4]


async def test_short_work_passes_between_two_pieces() -> None:
    turns, done = Turns(), list[int]()

    async def work() -> None:
        await turns.take("greedy")
        done.append(len(done))

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(work())
        for _ in range(12):
            before = len(done)
            await asyncio.sleep(0)
            assert len(done) <= before + 1
        assert len(done) <= 6


async def test_who_has_left_takes_no_turn() -> None:
    turns = Turns()
    await turns.take("a")
    waiting = [asyncio.create_task(turns.take("a")) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting[:2]:
        task.cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting, return_exceptions=True)
        assert [task.cancelled() for task in waiting] == [True, True, False]
        await turns.take("b")
