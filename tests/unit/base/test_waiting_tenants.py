"""Who is served next of those who wait."""

from __future__ import annotations

import asyncio

from sandpool.base.fairness import WaitingTenants
from sandpool.base.shares import Shares


async def begin(waiting: WaitingTenants, tenants: str, got: list[str]) -> list[asyncio.Task[None]]:
    async def wait(name: str) -> None:
        await waiting.wait(name[0], lambda: None, lambda tenant: got.append(f"{tenant} gave it back"))
        got.append(name)

    tasks = [asyncio.create_task(wait(f"{tenant}{number}")) for number, tenant in enumerate(tenants)]
    await asyncio.sleep(0)
    return tasks


async def test_whoever_may_not_have_one_is_passed_over_and_keeps_its_order() -> None:
    shares, got = Shares(10), list[str]()
    waiting = WaitingTenants(shares)
    tasks = await begin(waiting, "aaab", got)
    assert not waiting.serve(lambda _: False)
    assert waiting.serve(lambda tenant: tenant == "b")
    await asyncio.sleep(0)
    while waiting.serve(lambda _: True):
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert got == ["b3", "a0", "a1", "a2"]
    assert shares.held == {"a": 3, "b": 1}
    assert not waiting.serve(lambda _: True)


async def test_whoever_gives_up_takes_nothing_along() -> None:
    shares, got = Shares(10), list[str]()
    waiting = WaitingTenants(shares)
    tasks = await begin(waiting, "ab", got)
    assert waiting.serve(lambda _: True)
    for task in tasks:  # the first has just been served
        task.cancel()
    await asyncio.wait(tasks)
    assert got == ["a gave it back"]
    assert not waiting
