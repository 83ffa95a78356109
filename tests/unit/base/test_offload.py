"""Work beside the event loop: one piece at a time, one tenant after the other."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from functools import partial

import pytest

from sandpool.base.offload import FairLock, FairThreads, Offload
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
    offload, bench = Offload(), Bench()
    names = ["red1", "red2", "red3", "red4", "blue1"]
    tasks = [asyncio.create_task(offload.run(name[:-1], lambda name=name: bench.work(name))) for name in names]  # type: ignore[misc]
    await until_one_is_at_work(bench)
    assert bench.order == ["red1"]
    bench.go.set()
    assert await asyncio.gather(*tasks) == names
    assert bench.order == ["red1", "red2", "blue1", "red3", "red4"]


async def test_whoever_gives_up_leaves_its_place() -> None:
    offload, bench = Offload(), Bench()
    first, second, third = (
        asyncio.create_task(offload.run("red", lambda name=name: bench.work(name)))  # type: ignore[misc]
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
    offload = Offload()

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await offload.run("red", fails)
    assert await offload.run("red", lambda: 1) == 1


async def test_a_gate_lets_one_in_at_a_time() -> None:
    gate, inside, most = FairLock(), 0, 0

    async def pass_through(tenant: str) -> None:
        nonlocal inside, most
        async with gate.turn(tenant):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(pass_through(tenant) for tenant in ("red", "red", "blue", "red")))
    assert (inside, most) == (0, 1)


async def test_one_tenant_does_not_have_all_threads() -> None:
    threads, bench = FairThreads("test", 4), Bench()
    names = ["red1", "red2", "red3", "red4", "red5", "blue1", "blue2"]
    tasks = [asyncio.create_task(threads.run(name[:-1], partial(bench.work, name))) for name in names]
    async with asyncio.timeout(60):
        while len(bench.order) < 4:
            await asyncio.sleep(0.001)
    assert sorted(bench.order) == ["blue1", "red1", "red2", "red3"]
    bench.go.set()
    assert await asyncio.gather(*tasks) == names
    threads.close()


async def test_whoever_gives_up_leaves_the_threads_to_others() -> None:
    threads, bench = FairThreads("test", 1), Bench()
    first, second = (asyncio.create_task(threads.run("red", partial(bench.work, name))) for name in ("1", "2"))
    await until_one_is_at_work(bench)
    for task in (first, second):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    third = asyncio.create_task(threads.run("red", partial(bench.work, "3")))
    await asyncio.sleep(0)
    assert bench.order == ["1"]  # it goes on, and nobody else begins meanwhile
    bench.go.set()
    assert await third == "3"
    assert bench.order == ["1", "3"]
    threads.close()
    with pytest.raises(RuntimeError):
        await threads.run("red", partial(bench.work, "4"))


async def test_what_fails_holds_nothing_of_what_it_was_given() -> None:
    """Else it would wait for the collector of cycles, which runs seldom."""

    class Payload:
        def fail(self) -> None:
            raise ValueError("no")

    threads = Threads("test", 1)
    gc.disable()
    try:
        kept = []
        for run in (partial(Offload().run, "red"), threads.of("red").run):
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
