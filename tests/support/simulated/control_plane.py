"""All four controllers, the collector and a hollow node on a store in memory, in virtual time; every call is counted.

A call of a controller takes one round trip of virtual time (`ROUND_TRIP`), so what a claim waited for can be read off the
clock exactly. The user and the node call without delay.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any

from sandpool.app.controllers import ControllerOptions, Controllers, Observability, Workers, assemble
from sandpool.base.clock import LoopClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.garbage_collection import GarbageCollector
from sandpool.controlplane.namespaces import ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Observer, Store
from sandpool.kube.api import Api, Call, Verb
from sandpool.loop.manager import Manager
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Object
from sandpool.model.patches import merge_patch
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.node.kubelet.agent import Kubelet
from sandpool.node.runtimes.fake import FakeBackend, FakeOptions
from sandpool.telemetry.log import bound_to
from sandpool.telemetry.metrics import OUTCOMES
from support.api.counting_api import CountingApi, Made

START = datetime(2026, 1, 1, tzinfo=UTC)
ROUND_TRIP = 0.01
FAILED = {"Conflict", "NotFound", "AlreadyExists", "Invalid"}
Body = dict[str, Any]


class DistantApi(CountingApi):
    """One round trip away: the call is decided, and answered, that much later."""

    def __init__(self, inner: Api) -> None:
        super().__init__(inner)
        self.by_controller: list[tuple[str, Made]] = []

    async def send(self, call: Call) -> Any:
        if call.verb is Verb.LIST:
            return await super().send(call)
        await asyncio.sleep(ROUND_TRIP)
        try:
            return await super().send(call)
        finally:
            self.by_controller.append((str(bound_to("controller") or ""), self.calls[-1]))

    def clear(self) -> None:
        super().clear()
        self.by_controller.clear()

    @property
    def sums(self) -> Counter[tuple[str, str, str]]:
        """Calls by controller, verb and resource."""
        return Counter((who, made.verb, made.resource) for who, made in self.by_controller)

    @property
    def failures(self) -> list[tuple[str, Made]]:
        return [(who, made) for who, made in self.by_controller if made.outcome != "ok"]


@dataclass
class ControlPlane:
    user: Api
    distant: DistantApi
    clock: LoopClock
    controllers: Controllers
    observability: Observability
    reconciled: dict[str, float] = field(default_factory=dict)

    async def template(self, name: str = "python", **spec: Any) -> None:
        pod = {"containers": [{"name": "main", "image": "python"}]}
        body = {"podTemplate": {"spec": pod}, **spec}
        await self.user.create(TEMPLATES, {"metadata": {"name": name}, "spec": body}, "default")

    async def pool(self, replicas: int, name: str = "python", template: str = "python", **spec: Any) -> None:
        body = {"replicas": replicas, "sandboxTemplateRef": {"name": template}, **spec}
        await self.user.create(POOLS, {"metadata": {"name": name}, "spec": body}, "default")

    async def claim(self, name: str, pool: str = "python", **spec: Any) -> SandboxClaim:
        body = {"warmPoolRef": {"name": pool}, **spec}
        return await self.user.create(CLAIMS, {"metadata": {"name": name}, "spec": body}, "default")

    async def edit(self, resource: Resource[Any], name: str, **spec: Any) -> None:
        await self.user.patch(resource, name, merge_patch({"spec": spec}), "default")

    async def get_claim(self, name: str) -> SandboxClaim:
        return await self.user.get(CLAIMS, name, "default")

    async def get_pool(self, name: str = "python") -> SandboxWarmPool:
        return await self.user.get(POOLS, name, "default")

    async def sandboxes(self) -> list[Sandbox]:
        return list((await self.user.list(SANDBOXES, "default")).items)

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 120.0, step: float = 0.25) -> None:
        """Lets virtual time pass until it holds."""
        end = self.clock.monotonic() + seconds
        while not await holds():
            assert self.clock.monotonic() < end, "not within the time given"
            await asyncio.sleep(step)

    async def filled(self, replicas: int, name: str = "python") -> None:
        async def full() -> bool:
            status = (await self.get_pool(name)).status
            return status.ready_replicas == replicas == status.replicas

        await self.until(full)

    async def served(self, names: list[str]) -> None:
        async def all_ready() -> bool:
            return all([is_true((await self.get_claim(name)).status.conditions, Type.READY) for name in names])

        await self.until(all_ready)

    def reconciles(self, controller: str) -> float:
        """Since `clear`."""
        return self._counted(controller) - self.reconciled.get(controller, 0.0)

    def clear(self) -> None:
        self.distant.clear()
        self.reconciled = {name: self._counted(name) for name in ("claim", "sandbox", "pool", "template")}

    def _counted(self, controller: str) -> float:
        read = self.observability.metrics.registry.get_sample_value
        name = "sandpool_reconciles_total"
        return sum(read(name, {"controller": controller, "outcome": outcome}) or 0.0 for outcome in OUTCOMES)


def ready_at(claim: Object) -> datetime:
    """When the claim's Ready was written, as its condition says (whole seconds)."""
    assert isinstance(claim, SandboxClaim)
    return next(one.last_transition_time for one in claim.status.conditions if one.type == Type.READY)  # type: ignore[return-value]


@asynccontextmanager
async def a_control_plane(
    hollow: FakeOptions = FakeOptions(),
    options: ControllerOptions | None = None,
    observability: Observability | None = None,
    before: Callable[[Api], Awaitable[None]] | None = None,
    node: bool = True,
    inline: bool = False,
    observer: Observer | None = None,
    line: Callable[[Api], Api] = lambda api: api,
) -> AsyncIterator[ControlPlane]:
    """`before` fills the store before anything runs. Without a node nothing becomes of pods. `inline`: the server shares the
    process of the controllers, and claims are bound inline. `observer` counts what is committed, whoever writes it. `line` stands between the controllers and the
    server."""
    clock, uids, random = LoopClock(START), count(1), Random(7)
    store = await Store.open(MemoryLog(200_000), history_limits=HistoryLimits(), observer=observer)
    objects = Objects(store, clock.now, lambda: f"00000000-0000-4000-8000-{next(uids):012x}")
    await ensure_namespaces(objects)
    if before is not None:
        await before(LocalApi(objects))
    distant = DistantApi(line(LocalApi(objects)))
    observability = observability or Observability()
    controllers = assemble(
        distant,
        clock,
        random.random,
        observability,
        options or ControllerOptions(workers=Workers(claim=400, sandbox=400)),
        hooks=objects.hooks if inline else None,
    )
    kubelet = Kubelet(LocalApi(objects), FakeBackend(clock, hollow), clock, random=lambda: 0.5)
    stop = asyncio.Event()
    manager = Manager(controllers.parts())
    try:
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(GarbageCollector(store, objects, clock).run())]
            if node:
                background.append(group.create_task(kubelet.run()))
                await kubelet.ready.wait()
            running = group.create_task(manager.run(stop))
            await manager.ready.wait()
            yield ControlPlane(LocalApi(objects), distant, clock, controllers, observability)
            stop.set()
            await running
            for task in background:
                task.cancel()
    finally:
        await store.close()
