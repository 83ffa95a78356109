"""What a claim costs with the four controllers on one machine: a burst on a durable store, and one claim in pools of any size.

Prints; asserts nothing about time. Pods are hollow: what is measured is the control plane, not the start of processes.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from sandpool.app.controllers import Controllers, Observability, assemble
from sandpool.base.clock import SystemClock
from sandpool.base.interpreter import collect_quietly, settle_interpreter
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.garbage_collection import GarbageCollector
from sandpool.controlplane.namespaces import ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.uids import NewUids
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Observer, Store
from sandpool.kube.api import Api
from sandpool.kube.priority_gate import PriorityGate
from sandpool.loop.manager import Manager
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, POOLS, TEMPLATES
from sandpool.model.reasons import Type
from sandpool.node.kubelet.agent import Kubelet
from sandpool.node.runtimes.fake import FakeBackend
from support.api.counting_api import CountingApi
from support.api.full_pool import fill

POOL, BURST, BURSTS = 600, 300, 5
SIZES = (100, 1_000, 10_000)
ONE_BY_ONE = 100


@asynccontextmanager
async def a_cluster(
    members: int, node: bool, observability: Observability | None = None, observer: Observer | None = None
) -> AsyncIterator[tuple[Api, CountingApi, Controllers]]:
    """On a durable store. With `members` the pool is there from the start; with a node it can be refilled."""
    with tempfile.TemporaryDirectory() as folder:
        clock = SystemClock()
        store = await Store.open(SqliteLog(Path(folder) / "store.db"), observer=observer)
        objects = Objects(store, clock.now, NewUids())
        await ensure_namespaces(objects)
        user = LocalApi(objects)
        if members:
            await fill(user, members)
        counting = CountingApi(LocalApi(objects))
        gate = PriorityGate(clock, width=400)
        controllers = assemble(
            counting, clock, Random(1).random, observability or Observability(), gate=gate, hooks=objects.hooks
        )
        manager, stop = Manager(controllers.parts()), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(GarbageCollector(store, objects, clock).run())]
            if node:
                kubelet = Kubelet(LocalApi(objects), FakeBackend(clock), clock)
                background.append(group.create_task(kubelet.run()))
                await kubelet.ready.wait()
            background.append(group.create_task(collect_quietly(clock, lambda: controllers.urgent.idle)))
            running = group.create_task(manager.run(stop))
            await manager.ready.wait()
            settle_interpreter()
            yield user, counting, controllers
            stop.set()
            await running
            for task in background:
                task.cancel()
        await store.close()


class Latencies:
    """From the moment a claim is asked for until the process that serves it knows it to be Ready."""

    def __init__(self, controllers: Controllers) -> None:
        self.began: dict[str, float] = {}
        self.took: dict[str, float] = {}
        self.changed = asyncio.Event()
        controllers.caches.claims.subscribe(self._step)

    def _step(self, _: SandboxClaim | None, new: SandboxClaim | None) -> None:
        if new is None or new.metadata.name not in self.began or new.metadata.name in self.took:
            return
        if not is_true(new.status.conditions, Type.READY):
            return
        self.took[new.metadata.name] = time.perf_counter() - self.began[new.metadata.name]
        self.changed.set()

    async def claim(self, user: Api, name: str) -> None:
        self.began[name] = time.perf_counter()
        body = {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": "python"}}}
        await user.create(CLAIMS, body, "default")

    async def all_served(self, count: int) -> None:
        while len(self.took) < count:
            self.changed.clear()
            await self.changed.wait()


async def bursts() -> None:
    pod = {"containers": [{"name": "main", "image": "python"}]}
    async with a_cluster(0, node=True) as (user, counting, controllers):
        body: dict[str, Any] = {"metadata": {"name": "python"}, "spec": {"podTemplate": {"spec": pod}}}
        await user.create(TEMPLATES, body, "default")
        body = {"metadata": {"name": "python"}, "spec": {"replicas": POOL, "sandboxTemplateRef": {"name": "python"}}}
        began = time.perf_counter()
        await user.create(POOLS, body, "default")
        await filled(controllers)
        print(f"a pool of {POOL} filled in {time.perf_counter() - began:.2f} s, from nothing")
        print(
            f"{'burst':>6} {'all Ready':>10} {'p50':>8} {'p99':>8} {'refilled':>9} {'writes per claim':>17} {'errors':>7}"
        )
        for number in range(BURSTS):
            await one_burst(user, counting, controllers, number)


async def one_burst(user: Api, counting: CountingApi, controllers: Controllers, number: int) -> None:
    counting.clear()
    latencies = Latencies(controllers)
    began = time.perf_counter()
    await asyncio.gather(*(latencies.claim(user, f"burst-{number}-{index}") for index in range(BURST)))
    await latencies.all_served(BURST)
    served = time.perf_counter() - began
    await filled(controllers)
    refilled = time.perf_counter() - began
    await settled()
    times = sorted(latencies.took.values())
    errors = sum(count for (_, _, outcome), count in counting.totals.items() if outcome != "ok")
    print(
        f"{number + 1:>6} {served * 1000:>7.0f} ms {statistics.median(times) * 1000:>5.0f} ms "
        f"{times[int(len(times) * 0.99)] * 1000:>5.0f} ms {refilled:>7.2f} s {counting.writes / BURST:>17.2f} {errors:>7}"
    )


async def filled(controllers: Controllers) -> None:
    """Every member that the pool should have can be claimed, whether its status says so already or not."""
    for _ in range(12_000):
        pools = list(controllers.caches.pools)
        if pools and controllers.assigner.counts(pools[0].metadata.uid).ready == POOL:
            return
        await asyncio.sleep(0.005)
    raise SystemExit("the pool did not fill within a minute")


async def settled() -> None:
    """What a start leaves to do is done."""
    for _ in range(600):
        before = time.process_time()
        await asyncio.sleep(0.5)
        if time.process_time() - before < 0.05:
            return
    raise SystemExit("the cluster did not come to rest within five minutes")


async def growth() -> None:
    print(f"\n{'members':>8} {'p50 of one claim':>17} {'CPU per claim':>14} {'ratio':>6}")
    first = 0.0
    for size in SIZES:
        async with a_cluster(size, node=False) as (user, _, controllers):
            latencies = Latencies(controllers)
            await settled()
            cpu = time.process_time()
            for number in range(ONE_BY_ONE):
                await latencies.claim(user, f"one-{number}")
                await latencies.all_served(number + 1)
            spent = (time.process_time() - cpu) / ONE_BY_ONE
            first = first or spent
            median = statistics.median(latencies.took.values())
            print(f"{size:>8} {median * 1000:>14.2f} ms {spent * 1000:>11.2f} ms {spent / first:>6.2f}")


async def main() -> None:
    await bursts()
    await growth()


if __name__ == "__main__":
    uvloop.run(main())
