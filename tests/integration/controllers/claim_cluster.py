"""A cluster in virtual time with the real claim controller, whose calls are counted and can be made to fail; the test plays user,
pool and sandbox controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from conformance.bodies import claim as claim_body
from conformance.bodies import pod_spec
from conformance.bodies import pool as pool_body
from conformance.bodies import template as template_body
from integration.controllers.controlled import Controlled
from sandpool.base.clock import LoopClock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.claim.controller import Caches, ClaimController
from sandpool.controllers.claim.options import Options
from sandpool.kube.api import Api
from sandpool.kube.errors import NotFound
from sandpool.loop.cache import Cache
from sandpool.loop.events import EventRecorder
from sandpool.loop.manager import Deadlines, Manager, Parts
from sandpool.loop.reflector import Reflector
from sandpool.loop.writes import Writes
from sandpool.model import labels
from sandpool.model.blueprint import blueprint_hash
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find
from sandpool.model.kinds import CLAIMS, EVENTS, NETWORK_POLICIES, NODES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key
from sandpool.model.names import name_hash
from sandpool.model.patches import merge_patch
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.api.counting_api import CountingApi
from support.api.faulty_api import FaultyApi
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import START, a_cluster, half

KINDS: tuple[Any, ...] = (CLAIMS, SANDBOXES, POOLS, TEMPLATES, NETWORK_POLICIES, NODES)
READY = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "Pod is Ready"}
NOT_READY = {"type": "Ready", "status": "False", "reason": "DependenciesNotReady", "message": "The pod does not exist"}
SINCE = "2026-01-01T00:00:00Z"


@dataclass
class World:
    """What outlives a controller, and those who act in it besides."""

    api: FlakyApi

    async def template(self, name: str = "t", **spec: Any) -> SandboxTemplate:
        """Without a NetworkPolicy of its own, so that nothing has to be waited for."""
        body = template_body(name, **{"networkPolicyManagement": "Unmanaged", **spec})
        return await self.api.create(TEMPLATES, body, "default")

    async def pool(self, name: str = "p", **spec: Any) -> SandboxWarmPool:
        """Of no members, unless said otherwise: there is no controller here that would make any."""
        return await self.api.create(POOLS, pool_body(name, **({"replicas": 0} | spec)), "default")

    async def member(self, name: str, pool: str = "p", *, ready: bool = True, node: str = "n1") -> Sandbox:
        """As the pool controller makes it."""
        owner = await self.api.get(POOLS, pool, "default")
        template = await self.api.get(TEMPLATES, owner.spec.sandbox_template_ref.name, "default")
        marks = {
            labels.WARM_POOL: name_hash(pool),
            labels.TEMPLATE_REF_HASH: name_hash(template.metadata.name),
            labels.TEMPLATE_HASH: blueprint_hash(template.spec),
            labels.CREATED_BY: "controller",
            labels.LAUNCH_TYPE: "warm",
        }
        reference = {
            "apiVersion": SandboxWarmPool.api_version, "kind": SandboxWarmPool.kind, "name": pool,
            "uid": owner.metadata.uid, "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        notes = {labels.POD_NAME: name, labels.TEMPLATE_REF: template.metadata.name}
        head = {"name": name, "labels": marks, "annotations": notes, "ownerReferences": [reference]}
        spec = {"podTemplate": {"spec": pod_spec(automountServiceAccountToken=False)}}
        made = await self.api.create(SANDBOXES, {"metadata": head, "spec": spec}, "default")
        return await self.ready(name, node=node) if ready else made

    async def ready(self, name: str, ip: str = "10.0.0.1", node: str = "n1") -> Sandbox:
        return await self.says(name, READY, podIPs=[ip], nodeName=node)

    async def says(self, name: str, *conditions: dict[str, Any], **status: Any) -> Sandbox:
        """What the sandbox controller tells of a sandbox."""
        dated = [{"lastTransitionTime": SINCE, **condition} for condition in conditions]
        patch = merge_patch({"status": {"conditions": dated, **status}})
        return await self.api.patch_status(SANDBOXES, name, patch, "default")

    async def furnish(self, members: int = 1, **pool: Any) -> None:
        await self.template()
        await self.pool(**pool)
        for number in range(members):
            await self.member(f"m{number}")

    async def claim(self, name: str = "c", meta: dict[str, Any] | None = None, **spec: Any) -> SandboxClaim:
        body = claim_body(name, **spec)
        return await self.api.create(CLAIMS, body | {"metadata": {"name": name, **(meta or {})}}, "default")

    async def edit(self, name: str = "c", **spec: Any) -> None:
        await self.api.patch(CLAIMS, name, merge_patch({"spec": spec}), "default")

    async def see(self, name: str = "c") -> SandboxClaim:
        return await self.api.get(CLAIMS, name, "default")

    async def said(self, type_: str = "Ready", name: str = "c") -> tuple[str, str] | None:
        found = find((await self.see(name)).status.conditions, type_)
        return None if found is None else (found.status, found.reason)

    async def has(self, name: str = "c") -> str:
        """The sandbox that the claim is bound to."""
        status = (await self.see(name)).status
        return status.sandbox.name if status.sandbox is not None else ""

    async def sandbox(self, name: str) -> Sandbox | None:
        try:
            return await self.api.get(SANDBOXES, name, "default")
        except NotFound:
            return None

    async def owned(self, claim: SandboxClaim) -> list[str]:
        items = (await self.api.list(SANDBOXES, "default")).items
        return [
            one.metadata.name
            for one in items
            if one.metadata.controller is not None and one.metadata.controller.uid == claim.metadata.uid
        ]

    async def events(self) -> list[tuple[str, str]]:
        return [(event.type, event.reason) for event in (await self.api.list(EVENTS, "default")).items]


@dataclass
class Life(World, Controlled):
    """One life of the controller."""

    kind = "claim"
    faulty: FaultyApi
    counted: CountingApi
    clock: LoopClock
    metrics: Metrics
    story: ReconcileHistory
    assigner: Assigner
    caches: Caches
    controller: ClaimController
    running: asyncio.Task[None]

    @property
    def repairs(self) -> float:
        self.controller.audit()
        samples = (sample for metric in self.metrics.registry.collect() for sample in metric.samples)
        return sum(sample.value for sample in samples if sample.name == "sandpool_repairs_total")

    def told(self, name: str = "c") -> str:
        return "\n".join(map(str, self.story.of(("claim", Key("default", name)))))

    async def crash(self) -> None:
        """Everything stops where it is."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


@asynccontextmanager
async def a_claim_cluster(options: Options = Options()) -> AsyncIterator[Life]:
    async with a_cluster() as api, a_life(api, options) as life:
        yield life
        await life.settle()
        assert life.repairs == 0, life.told()


@asynccontextmanager
async def a_life(api: FlakyApi, options: Options = Options(), below: Api | None = None) -> AsyncIterator[Life]:
    """`below`: through which the controller calls instead of `api`."""
    clock, metrics, story = LoopClock(START), Metrics(), ReconcileHistory()
    assigner = Assigner(clock.monotonic)
    faulty = FaultyApi(below or api)
    counted = CountingApi(faulty)
    stores: list[Cache[Any]] = [Cache(kind) for kind in KINDS]
    caches = Caches(*stores)
    recorder = EventRecorder(api, clock, metrics, Random(1).random, controller="claim", instance="test")
    controller = ClaimController(
        Writes(counted, stores),
        caches,
        assigner,
        Staleness(caches.pools, caches.templates),
        clock,
        metrics,
        story,
        events=recorder,
        options=options,
    )
    parts = Parts(
        reflectors=[Reflector(api, store, clock, metrics, half) for store in stores],
        controllers=[controller.loop],
        services=[recorder.run, controller.audit_forever],
        prepare=controller.prepare,
    )
    manager, stop = Manager(parts, Deadlines(drained=5.0)), asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    await manager.ready.wait()
    counted.clear()
    try:
        yield Life(api, faulty, counted, clock, metrics, story, assigner, caches, controller, running)
    finally:
        stop.set()
        await asyncio.gather(running, return_exceptions=running.cancelled() or running.done())
