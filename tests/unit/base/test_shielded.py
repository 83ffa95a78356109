"""Steps that come to their end, and steps that are told to."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sandpool.base.shielded import shielded, stoppable_thread


async def test_a_cancellation_comes_after_the_step() -> None:
    begun, go_on, done = asyncio.Event(), asyncio.Event(), list[str]()

    async def step() -> None:
        begun.set()
        await go_on.wait()
        done.append("step")

    task = asyncio.create_task(shielded(step()))
    await begun.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["step"]


async def test_results_and_failures_pass() -> None:
    async def fails() -> None:
        raise ValueError("no")

    async def answers() -> int:
        return 7

    assert await shielded(answers()) == 7
    with pytest.raises(ValueError, match="no"):
        await shielded(fails())
    assert await stoppable_thread(lambda stop: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await stoppable_thread(lambda stop: 1 // 0)


async def test_a_thread_is_told_and_waited_for() -> None:
    begun, ended = threading.Event(), threading.Event()

    def step(stop: threading.Event) -> None:
        begun.set()
        assert stop.wait(60)
        ended.set()

    task = asyncio.create_task(stoppable_thread(step))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
