"""A cluster in virtual time with the real pool controller, whose calls are counted; the test plays user, kubelet and claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from integration.controllers.controlled import Controlled
from sandpool.base.clock import LoopClock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Woken
from sandpool.controllers.assigner.feed import Feed
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.pool.controller import Caches, PoolController
from sandpool.controllers.pool.options import Options
from sandpool.kube.errors import NotFound
from sandpool.loop.cache import Cache
from sandpool.loop.events import EventRecorder
from sandpool.loop.manager import Manager, Parts
from sandpool.loop.reflector import Reflector
from sandpool.loop.writes import Writes
from sandpool.model.conditions import find
from sandpool.model.core import Event
from sandpool.model.kinds import CLAIMS, EVENTS, NETWORK_POLICIES, NODES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.labels import TEMPLATE_HASH, WARM_POOL
from sandpool.model.metadata import Key, Uid
from sandpool.model.patches import json_patch, merge_patch
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.model.times import seconds
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.api.counting_api import CountingApi
from support.api.faulty_api import FaultyApi
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import START, a_cluster, half

KINDS: tuple[Resource[Any], ...] = (POOLS, SANDBOXES, TEMPLATES, NETWORK_POLICIES, NODES)
ROLLING = {"type": "RollingUpdate"}
RECREATE = {"type": "Recreate"}


@dataclass
class Cluster(Controlled):
    kind = "pool"
    api: FlakyApi  # the user's, the kubelet's and the claims'
    flaky: FlakyApi  # the controller's
    faulty: FaultyApi  # around it: a test decides what goes wrong
    counted: CountingApi  # around it
    clock: LoopClock
    metrics: Metrics
    story: ReconcileHistory
    assigner: Assigner
    sandboxes: Cache[Sandbox]
    controller: PoolController
    woken: list[Claimant] = field(default_factory=list)

    # The user

    async def template(self, name: str = "t", image: str = "python", **spec: Any) -> None:
        body = {"networkPolicyManagement": "Unmanaged", **_blueprint(image), **spec}
        await self.api.create(TEMPLATES, {"metadata": {"name": name}, "spec": body}, "default")

    async def edit_template(self, name: str = "t", image: str = "newer", **spec: Any) -> None:
        await self.api.patch(TEMPLATES, name, merge_patch({"spec": {**_blueprint(image), **spec}}), "default")

    async def make(self, replicas: int = 3, name: str = "p", template: str = "t", **spec: Any) -> SandboxWarmPool:
        body = {"replicas": replicas, "sandboxTemplateRef": {"name": template}, **spec}
        return await self.api.create(POOLS, {"metadata": {"name": name}, "spec": body}, "default")

    async def edit(self, name: str = "p", **spec: Any) -> None:
        await self.api.patch(POOLS, name, merge_patch({"spec": spec}), "default")

    async def pool(self, name: str = "p") -> SandboxWarmPool:
        return await self.api.get(POOLS, name, "default")

    async def said(self, type_: str, name: str = "p") -> tuple[str, str, str]:
        condition = find((await self.pool(name)).status.conditions, type_)
        assert condition is not None, f"nothing is said about {type_}"
        return condition.status, condition.reason, condition.message

    async def events(self) -> list[Event]:
        return list((await self.api.list(EVENTS, "default")).items)

    # The kubelet and the Sandbox controller

    async def members(self) -> list[Sandbox]:
        """What is there and unclaimed, by name."""
        found = (await self.api.list(SANDBOXES, "default", labels=WARM_POOL)).items
        return sorted(found, key=lambda sandbox: sandbox.metadata.name)

    async def report(self, name: str, ready: bool = True, message: str = "m", **more: Any) -> None:
        now = seconds(self.clock.now())
        condition = {
            "type": "Ready", "status": str(ready), "reason": "R", "message": message, "lastTransitionTime": now,
        }  # fmt: skip
        status = {"conditions": [condition], "podIPs": ["10.0.0.1"] if ready else [], **more}
        await self.api.patch_status(SANDBOXES, name, merge_patch({"status": status}), "default")

    async def unschedulable(self, name: str, scheduled: bool = False) -> None:
        now = seconds(self.clock.now())
        condition = {
            "type": "PodScheduled",
            "status": str(scheduled),
            "reason": "Scheduled" if scheduled else "Unschedulable",
            "message": "0/3 nodes are available",
            "lastTransitionTime": now,
        }
        patch = merge_patch({"status": {"conditions": [condition]}})
        await self.api.patch_status(SANDBOXES, name, patch, "default")

    async def all_ready(self) -> None:
        for member in await self.members():
            if not any(condition.true for condition in member.status.conditions):
                with suppress(NotFound):  # a rollout goes on meanwhile
                    await self.report(member.metadata.name)
        await self.settle()

    async def filled(self, replicas: int = 3, **spec: Any) -> list[Sandbox]:
        """A pool with all its members ready, and nothing left to tell."""
        await self.template()
        await self.make(replicas, **spec)
        await self.settle()
        await self.all_ready()
        await self.settle(3)
        self.counted.clear()
        return await self.members()

    # A claim

    async def take(self, sandbox: Sandbox, name: str = "c") -> None:
        """What a transfer does."""
        claim = await self.api.create(
            CLAIMS, {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": "p"}}}, "default"
        )
        owner = {
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "name": name,
            "uid": claim.metadata.uid, "controller": True,
        }  # fmt: skip
        mark = WARM_POOL.replace("/", "~1")
        operations: list[Any] = [
            {"op": "replace", "path": "/metadata/ownerReferences/0", "value": owner},
            {"op": "remove", "path": f"/metadata/labels/{mark}"},
        ]
        await self.api.patch(SANDBOXES, sandbox.metadata.name, json_patch(operations), "default")

    def reserve(self, pool: SandboxWarmPool, claim: str = "c1") -> str:
        """What a claim does before its transfer; the answer is the member's name."""
        claimant = Claimant(Uid(claim), Key("default", claim))
        now = self.clock.now()
        decision = self.assigner.acquire(claimant, pool.metadata.uid, now, now)
        return str(decision.member.key.name)  # type: ignore[union-attr]

    # What happens in between

    def before(self, verb: str, then: Callable[[], Awaitable[object]]) -> list[str]:
        """`then` runs once, when the controller's next call of that verb on sandboxes is about to reach the server. The
        answer is empty until it has."""
        met: list[str] = []

        async def hook(called: str, plural: str) -> None:
            if not met and (called, plural) == (verb, "sandboxes"):
                met.append(called)
                await then()

        self.flaky.before = hook
        return met

    def after(self, verb: str, then: Callable[[], Awaitable[object]]) -> None:
        """The same, when the server has done it and has not answered yet."""
        met: list[str] = []

        async def hook(called: str, plural: str) -> None:
            if not met and (called, plural) == (verb, "sandboxes"):
                met.append(called)
                await then()

        self.flaky.after = hook

    # The watch of it all

    def told(self, name: str = "p") -> str:
        return "\n".join(map(str, self.story.of(("pool", Key("default", name)))))


def _blueprint(image: str) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": [{"name": "main", "image": image}]}}}


def hashes(members: list[Sandbox]) -> set[str]:
    return {member.metadata.labels[TEMPLATE_HASH] for member in members}


def uids(members: list[Sandbox]) -> set[str]:
    return {member.metadata.uid for member in members}


@asynccontextmanager
async def a_pool_cluster(options: Options = Options()) -> AsyncIterator[Cluster]:
    async with a_cluster() as api, controlled(api, options) as cluster:
        yield cluster


@asynccontextmanager
async def controlled(api: FlakyApi, options: Options = Options(), seed: int = 1) -> AsyncIterator[Cluster]:
    """One life of the controller on a cluster that may outlive it."""
    clock, metrics, story, woken = LoopClock(START), Metrics(), ReconcileHistory(), list[Claimant]()
    flaky = FlakyApi(api)
    faulty = FaultyApi(flaky)
    counted = CountingApi(faulty)
    caches: dict[Resource[Any], Cache[Any]] = {kind: Cache(kind) for kind in KINDS}
    recorder = EventRecorder(api, clock, metrics, Random(2).random, controller="pool", instance="test")
    assigner, staleness = Assigner(), Staleness(caches[POOLS], caches[TEMPLATES])

    def wake(claims: Woken) -> None:
        woken.extend(claims)

    Feed(assigner, staleness, *(caches[kind] for kind in (SANDBOXES, POOLS, TEMPLATES, NODES)), wake).connect()  # type: ignore[arg-type, call-arg]
    controller = PoolController(
        Writes(counted, caches.values()),
        Caches(*(caches[kind] for kind in (POOLS, SANDBOXES, TEMPLATES, NETWORK_POLICIES))),
        assigner,
        staleness,
        Random(seed).random,
        clock,
        metrics,
        story,
        wake_claims=wake,
        events=recorder,
        options=options,
    )
    reflectors = [Reflector(api, cache, clock, metrics, half) for cache in caches.values()]
    parts = Parts(reflectors=reflectors, controllers=[controller.loop], services=[recorder.run])
    manager, stop = Manager(parts), asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    await manager.ready.wait()
    try:
        yield Cluster(
            api, flaky, faulty, counted, clock, metrics, story, assigner, caches[SANDBOXES], controller, woken
        )
    finally:
        stop.set()
        await running
