"""A cluster in virtual time with the real Sandbox controller, whose writes are counted; the test plays user and kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from integration.controllers.controlled import Controlled
from sandpool.base.clock import LoopClock
from sandpool.controllers.sandbox.controller import SandboxController
from sandpool.controllers.sandbox.observe import Caches
from sandpool.controllers.sandbox.options import Options
from sandpool.kube.errors import NotFound
from sandpool.loop.cache import Cache
from sandpool.loop.events import EventRecorder
from sandpool.loop.manager import Manager, Parts
from sandpool.loop.reflector import Reflector, Scope
from sandpool.loop.writes import Writes
from sandpool.model.core import Event
from sandpool.model.kinds import CLAIMS, EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS, POOLS, SANDBOXES, SERVICES
from sandpool.model.labels import SANDBOX_NAME_HASH
from sandpool.model.metadata import Key
from sandpool.model.patches import merge_patch
from sandpool.model.pod import Pod
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.api.counting_api import CountingApi
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import START, a_cluster, half

Body = dict[str, Any]
KINDS: tuple[Resource[Any], ...] = (SANDBOXES, PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, POOLS, CLAIMS)
SCHEDULED = {"type": "PodScheduled", "status": "True"}
PULLED = {"type": "Initialized", "status": "True"}
READY = {"type": "Ready", "status": "True"}
NOT_READY = {"type": "Ready", "status": "False"}


@dataclass
class Cluster(Controlled):
    kind = "sandbox"
    api: FlakyApi  # the user's and the kubelet's
    flaky: FlakyApi  # the controller's: a test decides what goes wrong
    counted: CountingApi  # around it
    clock: LoopClock
    metrics: Metrics
    story: ReconcileHistory
    controller: SandboxController

    # The user

    async def make(self, name: str = "box", **spec: Any) -> Sandbox:
        """On a node from the start, so that its pod ends as pods on nodes do: marked, until the kubelet is done."""
        pod = {"nodeName": "n1", "containers": [{"name": "main", "image": "python"}]}
        body = {"podTemplate": {"spec": pod}, **spec}
        return await self.api.create(SANDBOXES, {"metadata": {"name": name}, "spec": body}, "default")

    async def edit(self, name: str = "box", **spec: Any) -> None:
        await self.api.patch(SANDBOXES, name, merge_patch({"spec": spec}), "default")

    async def sandbox(self, name: str = "box") -> Sandbox:
        return await self.api.get(SANDBOXES, name, "default")

    async def ready(self, name: str = "box") -> tuple[str, str] | None:
        return await self.said("Ready", name)

    async def said(self, type_: str, name: str = "box") -> tuple[str, str] | None:
        for condition in (await self.sandbox(name)).status.conditions:
            if condition.type == type_:
                return condition.status, condition.reason
        return None

    async def there(self, resource: Resource[Any], name: str = "box") -> Any:
        try:
            return await self.api.get(resource, name, "default")
        except NotFound:
            return None

    async def events(self) -> list[Event]:
        return list((await self.api.list(EVENTS, "default")).items)

    # The kubelet

    async def pod(self, name: str = "box") -> Pod:
        return await self.api.get(PODS, name, "default")

    async def report(self, name: str = "box", **status: Any) -> None:
        await self.api.patch_status(PODS, name, merge_patch({"status": status}), "default")

    async def start(self, name: str = "box", ip: str = "10.0.0.1", pause: float = 0.1) -> None:
        """Everything that a kubelet says while a pod starts."""
        for conditions in ([SCHEDULED], [SCHEDULED, PULLED], [SCHEDULED, PULLED, NOT_READY]):
            await self.report(name, phase="Pending", conditions=conditions)
            await asyncio.sleep(pause)
        await self.report(name, phase="Running", conditions=[SCHEDULED, PULLED, NOT_READY], podIPs=[{"ip": ip}])
        await asyncio.sleep(pause)
        await self.report(name, phase="Running", conditions=[SCHEDULED, PULLED, READY])
        for count in range(5):
            await self.report(name, containerStatuses=[_container(count)])

    async def finish(self, name: str = "box") -> None:
        """The end of a graceful deletion."""
        await self.api.delete(PODS, name, "default", grace=0)

    async def running(self, name: str = "box", **spec: Any) -> None:
        await self.make(name, **spec)
        await self.settle()
        await self.start(name)
        await self.settle()

    # The watch of it all

    def told(self, name: str = "box") -> str:
        return "\n".join(map(str, self.story.of(("sandbox", Key("default", name)))))


def _container(restarts: int) -> Body:
    return {
        "name": "main", "ready": True, "restartCount": restarts, "image": "python", "imageID": "",
    }  # fmt: skip


@asynccontextmanager
async def a_box_cluster(options: Options = Options()) -> AsyncIterator[Cluster]:
    async with a_cluster() as api, controlled(api, options) as cluster:
        yield cluster


@asynccontextmanager
async def controlled(
    api: FlakyApi, options: Options = Options(), *, tracked_only: bool = False
) -> AsyncIterator[Cluster]:
    """One life of the controller on a cluster that may outlive it. `tracked_only`: its caches see no pod without the
    tracking label."""
    clock, metrics, story = LoopClock(START), Metrics(), ReconcileHistory()
    flaky = FlakyApi(api)
    counted = CountingApi(flaky)
    caches: list[Cache[Any]] = [Cache(kind) for kind in KINDS]
    if tracked_only:
        caches[1] = Cache(PODS, lambda pod: SANDBOX_NAME_HASH in pod.metadata.labels)
    recorder = EventRecorder(api, clock, metrics, Random(1).random, controller="sandbox", instance="test")
    controller = SandboxController(
        Writes(counted, caches), Caches(*caches), clock, metrics, story, events=recorder, options=options
    )
    reflectors = [Reflector(api, cache, clock, metrics, half) for cache in caches]
    if tracked_only:
        reflectors[1] = Reflector(api, caches[1], clock, metrics, half, Scope(labels=SANDBOX_NAME_HASH))
    parts = Parts(reflectors=reflectors, controllers=[controller.loop], services=[recorder.run])
    manager, stop = Manager(parts), asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    await manager.ready.wait()
    try:
        yield Cluster(api, flaky, counted, clock, metrics, story, controller)
    finally:
        stop.set()
        await running
