"""The work of one claim does not depend on the size of its pool: counted, not timed."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from integration.controllers.claim_cluster import Life, World, a_life
from support.simulated.loop_cluster import a_cluster

pytestmark = pytest.mark.looptime

NODES = 50
WHERE = ("/sandpool/controllers/", "/sandpool/loop/cache.py", "/sandpool/loop/index.py", "/sandpool/loop/writes.py")


class Calls:
    """Counts the calls of our own functions on the claim path, and the items that their loops and builtins go over."""

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not any(part in name for part in WHERE):
            return None
        if event == "line":
            self.lines[f"{name.rpartition('/sandpool/')[2]}:{frame.f_lineno}"] += 1
        return self


async def cost(life: Life, name: str) -> Counter[str]:
    calls = Calls()
    before = sys.gettrace()
    sys.settrace(calls)
    try:
        await life.claim(name)
        await life.settle(0.05)
    finally:
        sys.settrace(before)
    assert (await life.has(name)).startswith("m")
    return calls.lines


async def one_claim(members: int) -> Counter[str]:
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(0)
        for number in range(members):
            await world.member(f"m{number}", node=f"n{number % NODES}")
        async with a_life(api) as life:
            await life.settle()
            await cost(life, "first")
            return await cost(life, "second")


async def test_a_claim_costs_the_same_in_a_pool_of_any_size() -> None:
    small, large = await one_claim(2 * NODES), await one_claim(20 * NODES)
    assert small == large
    assert 300 < sum(small.values()) < 3000, "lines executed for one claim, from its event to its last write"


async def test_a_claim_costs_the_same_among_ten_thousand() -> None:
    assert await one_claim(2 * NODES) == await one_claim(200 * NODES)
