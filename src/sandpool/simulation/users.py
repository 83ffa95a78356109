"""Users: platform teams that edit templates and pools, agents that claim, and accidents. All by seeded choice.

What they do reaches the world at once, and what makes no sense there (the object is gone, the name is taken) is refused. Every action has a name, so
that it can be counted. One user, `TemplateEditor`, edits a template at the worst moment: while a failed call is about to be retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from sandpool.controlplane.objects.keys import key_of
from sandpool.kube.api import Propagation
from sandpool.kube.errors import ApiError
from sandpool.model import codec
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS, PODS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key
from sandpool.model.patches import merge_patch
from sandpool.model.pod import Phase, Pod
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from sandpool.simulation import scenario
from sandpool.simulation.faults import Fault, Faults
from sandpool.simulation.kubelet import Kubelet
from sandpool.simulation.scenario import Setup, Tenant
from sandpool.simulation.steps import USER, Author, writes_as
from sandpool.simulation.world import World

Action = Callable[[Tenant], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long users are busy (virtual seconds), and how many claims they make."""

    seconds: float
    claims: int
    edits: int


def choose_effort(chance: Random) -> Effort:
    """Some runs are bursts of claims, some are many edits of templates and pools, most a bit of both."""
    claims, edits = chance.choice(((16, 14), (16, 14), (30, 5), (6, 26), (8, 8)))
    return Effort(chance.choice((20.0, 35.0)), claims, edits)


class Users:
    """All users of a run."""

    def __init__(self, world: World, setup: Setup, kubelet: Kubelet, faults: Faults, chance: Random) -> None:
        self._world = world
        self._setup = setup
        self._kubelet = kubelet
        self._faults = faults
        self._chance = chance
        self._made = 0
        self._old_names: list[tuple[str, str]] = []  # of claims, to be used again
        self._edits: tuple[tuple[int, str, Action], ...] = (
            (4, "template edited", self._edit_template),
            (2, "template relabelled", self._relabel_template),
            (1, "template deleted", self._delete_template),
            (1, "template re-created", self._make_template),
            (5, "pool scaled", self._scale),
            (2, "pool's template switched", self._switch),
            (2, "pool's strategy changed", self._change_strategy),
            (1, "pool deleted", self._delete_pool),
            (1, "pool orphaned its members", self._orphan_pool),
            (2, "pool re-created", self._make_pool),
            (7, "claim deleted", self._delete_claim),
            (3, "claim re-created", self._recreate_claim),
            (2, "claim extended", self._extend_claim),
            (3, "claimed sandbox deleted", self._delete_claimed),
            (2, "warm sandbox deleted", self._delete_member),
            (4, "warm sandbox replaced by force", self._replace_member),
            (2, "sandbox made by hand", self._make_sandbox),
            (2, "sandbox suspended or resumed", self._suspend),
            (3, Fault.POD_LOST.value, self._delete_pod),
            (3, "work finished", self._finish),
            (2, Fault.NODE_DRAIN.value, self._drain),
        )

    async def settle_in(self) -> None:
        """Creates the templates and pools before the first claim."""
        writes_as(USER)
        for tenant in self._setup.tenants:
            for template in tenant.templates:
                await self._world.api.create(TEMPLATES, scenario.template(template, self._chance), tenant.namespace)
            for pool in tenant.pools:
                await self._world.api.create(POOLS, scenario.pool(pool, tenant, self._chance), tenant.namespace)

    async def work(self, effort: Effort) -> None:
        writes_as(USER)
        moments = self._bursts(effort) + [(self._chance.random() * effort.seconds, "edit") for _ in range(effort.edits)]
        now = 0.0
        for at, what in sorted(moments):
            await asyncio.sleep(at - now)
            now = at
            await (self._claim() if what == "claim" else self._edit())

    async def crowd(self) -> None:
        """Several claims of one pool at once, perhaps while it shrinks or rolls out: what two leaders most easily conflict about."""
        writes_as(USER)
        await asyncio.sleep(self._chance.random() * 2)
        tenant = self._chance.choice(self._setup.tenants)
        pool = self._chance.choice(tenant.pools)
        if self._chance.random() < 0.5:
            try:
                await self._chance.choice((self._scale, self._edit_template))(tenant)
            except ApiError:
                pass
        for _ in range(self._chance.choice((3, 5))):
            await self._claim("", tenant.namespace, pool)

    async def flood(self, chance: Random, within: float) -> None:
        """For a while, more claims of one pool than it can have members for."""
        writes_as(USER)
        await asyncio.sleep(chance.random() * within)
        tenant = chance.choice(self._setup.tenants)
        pool, pause = chance.choice(tenant.pools), chance.choice((0.0, 0.1, 0.3))
        self._faults.happened("more claims than can be served")
        for _ in range(chance.choice((10, 20))):
            await self._claim("", tenant.namespace, pool)
            await asyncio.sleep(chance.random() * pause)

    def _bursts(self, effort: Effort) -> list[tuple[float, str]]:
        moments: list[tuple[float, str]] = []
        while len(moments) < effort.claims:
            at = self._chance.random() * effort.seconds
            spread = self._chance.choice((0.0, 0.0, 0.05, 1.0))
            moments += [
                (at + self._chance.random() * spread, "claim") for _ in range(self._chance.choice((1, 2, 4, 8)))
            ]
        return moments[: effort.claims]

    async def _edit(self) -> None:
        _, name, action = self._chance.choices(self._edits, [weight for weight, _, _ in self._edits])[0]
        try:
            done = await action(self._chance.choice(self._setup.tenants))
        except ApiError:
            return
        if done is not False:
            self._faults.happened(name)

    # Claims

    async def _claim(self, name: str = "", namespace: str = "", pool: str = "") -> None:
        self._made += 1
        tenant = self._chance.choice(self._setup.tenants)
        name, namespace = name or f"claim-{self._made}", namespace or tenant.namespace
        pool = pool or (self._chance.choice(tenant.pools) if self._chance.random() < 0.97 else "no-such-pool")
        body = scenario.claim(name, pool, self._chance, self._world.clock.now())
        create = self._create_and_lose if self._chance.random() < 0.2 else self._world.api.create
        try:
            await create(CLAIMS, body, namespace)
        except ApiError:
            return

    async def _create_and_lose(self, resource: Resource[SandboxClaim], body: dict[str, Any], namespace: str) -> None:
        """If the claim is served in the write that creates it, its sandbox is deleted before anybody has heard of either."""
        creating = asyncio.get_running_loop().create_task(self._world.api.create(resource, body, namespace))
        await asyncio.sleep(0)  # decided by then, but perhaps not durable
        claim = self._world.current.get(key_of(resource, namespace, body["metadata"]["name"]))
        if claim is not None and claim.status.sandbox is not None:
            self._faults.happened("sandbox deleted while it is handed over")
            try:
                await self._world.api.delete(SANDBOXES, claim.status.sandbox.name, namespace)
            except ApiError:
                pass
        await creating

    def _some(self, kind: str, wanted: Callable[[Any], bool] = lambda _: True) -> Any:
        found = [obj for obj in self._world.of(kind) if wanted(obj)]
        return self._chance.choice(found) if found else None

    async def _delete_claim(self, tenant: Tenant) -> object:
        claim = self._some(SandboxClaim.kind)
        if claim is None:
            return False
        how = self._chance.choice((None, None, None, Propagation.FOREGROUND, Propagation.ORPHAN))
        meta = claim.metadata
        self._old_names.append((meta.namespace, meta.name))
        if how is Propagation.ORPHAN:
            self._faults.happened("claim orphaned its sandbox")
        return await self._world.api.delete(CLAIMS, meta.name, meta.namespace, propagation=how)

    async def _recreate_claim(self, tenant: Tenant) -> object:
        """Deleted and made again under its name, at once or later."""
        if self._old_names and self._chance.random() < 0.5:
            namespace, name = self._old_names.pop()
        else:
            claim = self._some(SandboxClaim.kind)
            if claim is None:
                return False
            namespace, name = claim.metadata.namespace, claim.metadata.name
            await self._world.api.delete(CLAIMS, name, namespace)
        await self._claim(name, namespace)
        return True

    async def _extend_claim(self, tenant: Tenant) -> object:
        claim = self._some(SandboxClaim.kind, lambda claim: claim.spec.lifecycle is not None)
        if claim is None:
            return False
        lifecycle = scenario.lifecycle(self._chance, self._world.clock.now())
        patch = merge_patch({"spec": {"lifecycle": lifecycle}})
        return await self._world.api.patch(CLAIMS, claim.metadata.name, patch, claim.metadata.namespace)

    async def _delete_claimed(self, tenant: Tenant) -> object:
        return await self._delete_sandbox(SandboxClaim.kind)

    async def _delete_member(self, tenant: Tenant) -> object:
        return await self._delete_sandbox("SandboxWarmPool")

    async def _delete_sandbox(self, owner: str) -> object:
        box = self._some(Sandbox.kind, lambda box: (held := box.metadata.controller) is not None and held.kind == owner)
        if box is None:
            return False
        how = self._chance.choice((None, None, Propagation.FOREGROUND))
        return await self._world.api.delete(SANDBOXES, box.metadata.name, box.metadata.namespace, propagation=how)

    async def _replace_member(self, tenant: Tenant) -> object:
        """As `kubectl replace --force`: another object of the same name and owner. And then a burst of claims."""
        box = self._some(Sandbox.kind, _warm)
        if box is None:
            return False
        meta = box.metadata
        body = codec.to_json(box)
        body.pop("status", None)
        body["metadata"] = {
            name: value
            for name, value in body["metadata"].items()
            if name in ("name", "labels", "annotations", "ownerReferences")
        }
        await self._world.api.delete(SANDBOXES, meta.name, meta.namespace)
        await self._world.api.create(SANDBOXES, body, meta.namespace)
        for _ in range(self._chance.choice((1, 3))):
            await self._claim("", meta.namespace, meta.controller.name)
        return True

    async def _make_sandbox(self, tenant: Tenant) -> object:
        """Under its own name, or under that of a future claim."""
        name = self._chance.choice((f"box-{self._made}", f"claim-{self._made + 2}"))
        return await self._world.api.create(
            SANDBOXES, scenario.sandbox(name, self._chance, self._world.clock.now()), tenant.namespace
        )

    async def _suspend(self, tenant: Tenant) -> object:
        box = self._some(
            Sandbox.kind,
            lambda box: (held := box.metadata.controller) is not None and held.kind == SandboxClaim.kind,
        )
        if box is None:
            return False
        mode = "Running" if box.spec.suspended else "Suspended"
        patch = merge_patch({"spec": {"operatingMode": mode}})
        return await self._world.api.patch(SANDBOXES, box.metadata.name, patch, box.metadata.namespace)

    # Pods and nodes

    async def _delete_pod(self, tenant: Tenant) -> object:
        pod = self._some(Pod.kind)
        return pod is not None and await self._world.api.delete(PODS, pod.metadata.name, pod.metadata.namespace)

    async def _finish(self, tenant: Tenant) -> object:
        pod = self._some(Pod.kind, lambda pod: pod.ready and "claim" in pod.metadata.name)
        pod = pod or self._some(Pod.kind, lambda pod: pod.ready)
        if pod is None:
            return False
        await self._kubelet.finish(pod.metadata, self._chance.choice((Phase.SUCCEEDED, Phase.FAILED)))
        return True

    async def _drain(self, tenant: Tenant) -> object:
        node = self._chance.choice(self._setup.nodes)
        await self._kubelet.drain(node)
        if self._chance.random() < 0.7:
            self._world.spawn(self._uncordon(node))
        return True

    async def _uncordon(self, node: str) -> None:
        writes_as(USER)
        await asyncio.sleep(self._chance.random() * 15)
        await self._kubelet.uncordon(node)

    # Templates and pools

    async def _edit_template(self, tenant: Tenant) -> object:
        patch = scenario.another_image(self._chance)
        return await self._world.api.patch(TEMPLATES, self._chance.choice(tenant.templates), patch, tenant.namespace)

    async def _relabel_template(self, tenant: Tenant) -> object:
        """A change that makes no member stale."""
        patch = merge_patch({"spec": {"podTemplate": {"metadata": {"labels": {"app": self._chance.choice("abc")}}}}})
        return await self._world.api.patch(TEMPLATES, self._chance.choice(tenant.templates), patch, tenant.namespace)

    async def _delete_template(self, tenant: Tenant) -> object:
        return await self._world.api.delete(TEMPLATES, self._chance.choice(tenant.templates), tenant.namespace)

    async def _make_template(self, tenant: Tenant) -> object:
        missing = [name for name in tenant.templates if not self._exists(SandboxTemplate.kind, tenant.namespace, name)]
        if not missing:
            return False
        return await self._world.api.create(TEMPLATES, scenario.template(missing[0], self._chance), tenant.namespace)

    def _exists(self, kind: str, namespace: str, name: str) -> bool:
        return any(obj.metadata.key == (namespace, name) for obj in self._world.of(kind))

    async def _scale(self, tenant: Tenant) -> object:
        patch = merge_patch({"spec": {"replicas": self._chance.randrange(7)}})
        return await self._world.api.patch(POOLS, self._chance.choice(tenant.pools), patch, tenant.namespace)

    async def _switch(self, tenant: Tenant) -> object:
        patch = merge_patch({"spec": {"sandboxTemplateRef": {"name": self._chance.choice(tenant.templates)}}})
        return await self._world.api.patch(POOLS, self._chance.choice(tenant.pools), patch, tenant.namespace)

    async def _change_strategy(self, tenant: Tenant) -> object:
        patch = merge_patch({"spec": {"updateStrategy": scenario.strategy(self._chance)}})
        return await self._world.api.patch(POOLS, self._chance.choice(tenant.pools), patch, tenant.namespace)

    async def _delete_pool(self, tenant: Tenant, how: Propagation | None = None) -> object:
        how = how or self._chance.choice((None, Propagation.FOREGROUND))
        return await self._world.api.delete(POOLS, self._chance.choice(tenant.pools), tenant.namespace, propagation=how)

    async def _orphan_pool(self, tenant: Tenant) -> object:
        return await self._delete_pool(tenant, Propagation.ORPHAN)

    async def _make_pool(self, tenant: Tenant) -> object:
        missing = [name for name in tenant.pools if not self._exists("SandboxWarmPool", tenant.namespace, name)]
        if not missing:
            return False
        return await self._world.api.create(POOLS, scenario.pool(missing[0], tenant, self._chance), tenant.namespace)


def _warm(box: Sandbox) -> bool:
    owner = box.metadata.controller
    return owner is not None and owner.kind == "SandboxWarmPool" and bool(box.status.pod_ips)


FAILED = (Fault.CONFLICT, Fault.INTERNAL, Fault.UNAVAILABLE, Fault.TIMEOUT)
"""Faults after which a call is retried, because it had no effect."""


class TemplateEditor:
    """Subscribes to faults and edits templates."""

    def __init__(self, world: World, faults: Faults, chance: Random) -> None:
        self._world = world
        self._faults = faults
        self._chance = chance
        faults.on_strike = self._on_event

    def _on_event(self, fault: Fault, whom: Author) -> None:
        """If the transfer of a member to a claim failed, edits the pool's template now and then."""
        pool = whom.saw.pool
        if fault in FAILED and whom.controller == "claim" and pool is not None and self._chance.random() < 0.5:
            self._world.spawn(self._edit(pool.template_key))

    async def _edit(self, template: Key) -> None:
        writes_as(USER)
        await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.01, 0.1)))
        try:
            await self._world.api.patch(
                TEMPLATES, template.name, scenario.another_image(self._chance), template.namespace
            )
        except ApiError:
            return
        self._faults.happened("template edited during a transfer")
