"""Work beside the event loop: one piece at a time, one tenant after the other."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from functools import partial

import pytest

from sandpool.loop.aside import Aside, Gate
from sandpool.node.pods.threads import Threads


class Bench:
    """Work that waits until it is let go, and notes its order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.go = threading.Event()

    def work(self, name: str) -> str:
        self.order.append(name)
        assert self.go.wait(60)
        return name


async def until_one_is_at_work(bench: Bench) -> None:
    async with asyncio.timeout(60):
        while not bench.order:
            await asyncio.sleep(0.001)


async def test_one_tenant_after_the_other() -> None:
    aside, bench = Aside(), Bench()
    names = ["red1", "red2", "red3", "red4", "blue1"]
    tasks = [asyncio.create_task(aside.run(name[:-1], lambda name=name: bench.work(name))) for name in names]  # type: ignore[misc]
    await until_one_is_at_work(bench)
    assert bench.order == ["red1"]
    bench.go.set()
    assert await asyncio.gather(*tasks) == names
    assert bench.order == ["red1", "red2", "blue1", "red3", "red4"]


async def test_whoever_gives_up_leaves_its_place() -> None:
    aside, bench = Aside(), Bench()
    first, second, third = (
        asyncio.create_task(aside.run("red", lambda name=name: bench.work(name)))  # type: ignore[misc]
        for name in ("1", "2", "3")
    )
    await until_one_is_at_work(bench)
    first.cancel()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert bench.order == ["1"]  # it goes on, and nobody else begins meanwhile
    bench.go.set()
    assert await third == "3"
    assert bench.order == ["1", "3"]


async def test_an_error_is_the_askers() -> None:
    aside = Aside()

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await aside.run("red", fails)
    assert await aside.run("red", lambda: 1) == 1


async def test_a_gate_lets_one_in_at_a_time() -> None:
    gate, inside, most = Gate(), 0, 0

    async def pass_through(tenant: str) -> None:
        nonlocal inside, most
        async with gate.turn(tenant):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(pass_through(tenant) for tenant in ("red", "red", "blue", "red")))
    assert (inside, most) == (0, 1)


async def test_what_fails_holds_nothing_of_what_it_was_given() -> None:
    """Else it would wait for the collector of cycles, which runs seldom."""

    class Payload:
        def fail(self) -> None:
            raise ValueError("no")

    threads = Threads("test", 1)
    gc.disable()
    try:
        kept = []
        for run in (partial(Aside().run, "red"), threads.run):
            payload = Payload()
            kept.append(weakref.ref(payload))
            with pytest.raises(ValueError, match="no"):
                await run(payload.fail)
            del payload
        await asyncio.sleep(0.05)  # threads forget what they did
        assert [one() for one in kept] == [None, None]
    finally:
        gc.enable()
        threads.close()
