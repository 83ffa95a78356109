"""Seeded lives of a pool under faults of every kind: what may never happen does not, and in the end all is well."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from integration.controllers.pool_cluster import Cluster, a_pool_cluster, hashes
from sandpool.controllers.pool.options import Options
from sandpool.kube.errors import ApiError, Conflict, InternalError, TooManyRequests, Unreachable
from sandpool.model.kinds import SANDBOXES
from sandpool.model.patches import merge_patch
from sandpool.model.sandbox import Sandbox

pytestmark = pytest.mark.looptime

REPLICAS = 6
STEPS = 40
FAULTS = ("InternalError", "Conflict", "TooManyRequests", "Unreachable", "lost")


class Storm:
    """Lets a part of the controller's calls fail, before or after they reached the server, and watches the population."""

    def __init__(self, cluster: Cluster, random: Random, most: int) -> None:
        self.cluster, self.random, self.most = cluster, random, most
        self.on = True
        self.fired: Counter[str] = Counter()
        self.violations: list[str] = []
        self.claimed: dict[str, str] = {}

    async def before(self, verb: str, plural: str) -> None:
        if self.on and verb in ("create", "get", "delete", "patch_status"):
            await asyncio.sleep(self.random.random() / 10)
            if self.random.random() < 0.15:
                error = self.random.choice(
                    [InternalError("no"), Conflict("moved"), TooManyRequests("busy", retry_after=1), Unreachable("cut")]
                )
                self.fired[type(error).__name__] += 1
                raise error

    async def after(self, verb: str, plural: str) -> None:
        if verb in ("create", "delete") and plural == "sandboxes":
            await self.check(verb)
        if self.on and self.random.random() < 0.1:
            self.fired["lost"] += 1
            raise Unreachable("lost")

    async def check(self, verb: str) -> None:
        everything = {one.metadata.name: one for one in (await self.cluster.api.list(SANDBOXES, "default")).items}
        owned = [one for one in everything.values() if _owner(one) == "SandboxWarmPool"]
        if verb == "create" and len(owned) > self.most:
            self.violations.append(f"{len(owned)} members")
        for name, uid in self.claimed.items():
            if name not in everything or everything[name].metadata.uid != uid or everything[name].metadata.leaving:
                self.violations.append(f"{name} was claimed and is gone")


def _owner(sandbox: Sandbox) -> str:
    owner = sandbox.metadata.controller
    return owner.kind if owner is not None else ""


async def happen(cluster: Cluster, storm: Storm, random: Random, number: int) -> None:
    """One thing that a claim, a kubelet, a user or an accident does."""
    members = await cluster.members()
    if not members:
        return
    one = random.choice(members)
    name = one.metadata.name
    images = ("python", "newer", "newest")

    async def take() -> None:
        await cluster.take(one, f"c{number}")
        storm.claimed[name] = one.metadata.uid

    actions = [
        take,
        lambda: cluster.report(name, ready=random.random() < 0.8),
        lambda: cluster.edit_template(image=random.choice(images)),
        lambda: cluster.api.delete(SANDBOXES, name, "default"),
        lambda: cluster.api.patch(
            SANDBOXES, name, merge_patch({"metadata": {"labels": {"a": str(number)}}}), "default"
        ),
    ]
    try:
        await random.choices(actions, [4, 6, 1, 1, 2])[0]()  # type: ignore[no-untyped-call]
    except ApiError:
        pass  # it was gone already


async def life(strategy: str, seed: int) -> Counter[str]:
    random = Random(f"{strategy}{seed}")
    async with a_pool_cluster(Options(concurrency=3)) as cluster:
        storm = Storm(cluster, random, REPLICAS + (2 if strategy == "RollingUpdate" else 0))
        cluster.flaky.before, cluster.flaky.after = storm.before, storm.after
        await cluster.template()
        await cluster.make(REPLICAS, updateStrategy={"type": strategy})
        for number in range(STEPS):
            await asyncio.sleep(random.random())
            await happen(cluster, storm, random, number)
        storm.on = False
        for _ in range(12):
            await cluster.settle(30)
            await cluster.all_ready()
        await cluster.settle(5)
        members = await cluster.members()
        assert len(members) == REPLICAS, cluster.told()
        assert strategy == "OnReplenish" or len(hashes(members)) == 1
        status = (await cluster.pool()).status
        assert (status.replicas, status.ready_replicas) == (REPLICAS, REPLICAS)
        assert (await cluster.said("Progressing"))[1] == "UpToDate"
        await storm.check("end")
        assert storm.violations == []
        return storm.fired


@pytest.mark.parametrize("strategy", ["OnReplenish", "Recreate", "RollingUpdate"])
async def test_lives_under_faults(strategy: str) -> None:
    fired: Counter[str] = Counter()
    for seed in range(6):
        fired += await life(strategy, seed)
    assert all(fired[fault] for fault in FAULTS), fired


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["OnReplenish", "Recreate", "RollingUpdate"])
async def test_many_lives_under_faults(strategy: str) -> None:
    for seed in range(100, 140):
        await life(strategy, seed)
