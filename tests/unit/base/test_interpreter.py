"""The collector and the C library are asked to tidy up while nobody waits."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from sandpool.base.clock import LoopClock
from sandpool.base.interpreter import DEEPER, ENOUGH, EVERY, LULL, SELDOM, collect_quietly, give_back
from support.simulated.loop_cluster import START

pytestmark = pytest.mark.looptime


async def looked(times: int, calm: Callable[[], bool]) -> list[str]:
    """What was done in so many looks."""
    done: list[str] = []
    task = asyncio.create_task(collect_quietly(LoopClock(START), calm, lambda: done.append("gave back")))
    await asyncio.sleep((times + 0.5) * EVERY)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return done


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many containers are new, as the collector says; collections are added to it."""
    told = [0]
    monkeypatch.setattr(gc, "get_count", lambda: (told[0], 0, 0))
    monkeypatch.setattr(gc, "collect", lambda generation=2: told.append(generation))
    return told


async def test_memory_is_given_back_once_after_a_lull(count: list[int]) -> None:
    assert await looked(20 * LULL, lambda: True) == ["gave back"]
    assert await looked(LULL - 1, lambda: True) == []
    assert len(count) == 1, "there was nothing to collect"


async def test_not_while_somebody_waits(count: list[int]) -> None:
    count[0] = ENOUGH
    assert await looked(20 * LULL, lambda: False) == []
    assert len(count) == 1


async def test_garbage_goes_first_and_begins_the_lull_anew(count: list[int]) -> None:
    count[0] = ENOUGH
    assert await looked(3 * LULL, lambda: True) == []
    assert count[1:] == [0 if number % DEEPER else 1 for number in range(1, 3 * LULL + 1)]


async def test_what_has_grown_old_is_looked_at_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """In quiet moments the youngest are collected before there are enough for the collector to come by itself, which is when it would look
    at the oldest: garbage among those stayed forever."""
    done: list[int] = []
    deeper = 0

    def collect(generation: int = 2) -> None:
        nonlocal deeper
        done.append(generation)
        deeper = 0 if generation == 2 else deeper + (generation == 1)

    monkeypatch.setattr(gc, "get_count", lambda: (ENOUGH, 0, deeper))
    monkeypatch.setattr(gc, "collect", collect)
    rounds = DEEPER * (SELDOM + 1)
    assert await looked(2 * rounds, lambda: True) == []
    assert [done.count(generation) for generation in range(3)] == [2 * rounds * (DEEPER - 1) // DEEPER, 2 * SELDOM, 2]


def test_the_c_library_may_be_asked_at_any_time() -> None:
    give_back()
