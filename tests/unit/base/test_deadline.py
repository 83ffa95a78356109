from __future__ import annotations

import asyncio

import pytest

from sandpool.base.clock import LoopClock
from sandpool.base.deadline import Deadlines
from support.simulated.loop_cluster import START

pytestmark = pytest.mark.looptime


async def limited(deadlines: Deadlines, seconds: float) -> str:
    try:
        with deadlines.limit() as limit:
            await asyncio.sleep(seconds)
    except TimeoutError:
        assert limit.expired
        return "timeout"
    return "done"


async def test_what_takes_too_long_is_ended_at_its_own_time() -> None:
    clock = LoopClock(START)
    deadlines = Deadlines(clock, 10.0)
    ends: list[tuple[float, str]] = []

    async def one(begin: float, lasts: float) -> None:
        await asyncio.sleep(begin)
        end = await limited(deadlines, lasts)
        ends.append((clock.monotonic() - began, end))

    began = clock.monotonic()
    await asyncio.gather(one(0, 50), one(1, 2), one(4, 50), one(30, 9.5), one(31, 50))
    assert ends == [(3, "done"), (10, "timeout"), (14, "timeout"), (39.5, "done"), (41, "timeout")]
    deadlines.close()


async def test_a_cancellation_of_somebody_else_passes_through() -> None:
    deadlines = Deadlines(LoopClock(START), 10.0)
    task = asyncio.create_task(limited(deadlines, 50))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(20)  # and nobody is cancelled afterwards


async def test_a_cancellation_that_meets_the_end_of_time_is_not_lost() -> None:
    deadlines = Deadlines(LoopClock(START), 10.0)
    task = asyncio.create_task(limited(deadlines, 50))
    asyncio.get_running_loop().call_later(10.0, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_it_caught_itself_ends_as_it_likes() -> None:
    deadlines = Deadlines(LoopClock(START), 10.0)

    async def stubborn() -> str:
        with deadlines.limit() as limit:
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                return f"expired {limit.expired}"
        return "not reached"

    assert await asyncio.create_task(stubborn()) == "expired True"


async def test_one_limit_is_for_all_that_a_task_does_one_after_the_other() -> None:
    deadlines = Deadlines(LoopClock(START), 10.0)

    async def worker() -> list[str]:
        limit, ends = deadlines.limit(), []
        for seconds in (9, 50, 9, 50):
            try:
                with limit:
                    await asyncio.sleep(seconds)
                ends.append(f"done {limit.expired}")
            except TimeoutError:
                ends.append(f"timeout {limit.expired}")
        return ends

    assert await asyncio.create_task(worker()) == ["done False", "timeout True"] * 2
    assert not deadlines.running
    deadlines.close()
