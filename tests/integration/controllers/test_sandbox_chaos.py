"""Seeded lives of some sandboxes under faults of every kind: whatever happens, they end as they should."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from integration.controllers.box_cluster import Cluster, a_box_cluster
from sandpool.kube.errors import ApiError, Conflict, InternalError, NotFound, TooManyRequests, Unreachable
from sandpool.model.kinds import PODS, SANDBOXES, SERVICES
from sandpool.model.labels import SANDBOX_NAME_HASH
from sandpool.model.patches import merge_patch

pytestmark = pytest.mark.looptime

NAMES = ("a", "b", "c")
STEPS = 60


class Storm:
    """Lets a part of the controller's calls fail, before or after they reached the server, or take their time."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.on = True
        self.fired: Counter[str] = Counter()

    async def before(self, verb: str, plural: str) -> None:
        if not self.on:
            return
        await asyncio.sleep(self.random.random() / 10)
        if self.random.random() < 0.15:
            error = self.random.choice(
                [InternalError("no"), Conflict("moved on"), TooManyRequests("busy", retry_after=1), Unreachable("cut")]
            )
            self.fired[type(error).__name__] += 1
            raise error

    async def after(self, verb: str, plural: str) -> None:
        if self.on and self.random.random() < 0.1:
            self.fired["lost"] += 1
            raise Unreachable("lost")


async def user(cluster: Cluster, random: Random, name: str) -> None:
    """One thing that a user, a kubelet or an accident does."""
    lost = merge_patch({"metadata": {"labels": {SANDBOX_NAME_HASH: None}}})
    actions = [
        lambda: cluster.make(name, service=random.choice([True, None])),
        lambda: cluster.edit(name, operatingMode="Suspended"),
        lambda: cluster.edit(name, operatingMode="Running"),
        lambda: cluster.edit(name, service=random.choice([True, False, None])),
        lambda: cluster.edit(name, podTemplate={"metadata": {"labels": {"app": random.choice("xyz")}}}),
        lambda: cluster.start(name, pause=0.0),
        lambda: cluster.finish(name),
        lambda: cluster.api.delete(PODS, name, "default"),
        lambda: cluster.api.delete(SERVICES, name, "default"),
        lambda: cluster.api.patch(PODS, name, lost, "default"),
        lambda: cluster.api.delete(SANDBOXES, name, "default"),
    ]
    try:
        await random.choices(actions, [4, *(len(actions) - 1) * [1]])[0]()  # type: ignore[no-untyped-call]
    except ApiError:
        pass  # there was nothing to do it to


async def calm(cluster: Cluster) -> None:
    """Faults are over; the kubelet ends what should end and starts what should start; the collector collects."""
    for _ in range(6):
        uids = {box.metadata.uid for box in (await cluster.api.list(SANDBOXES, "default")).items}
        for resource in (PODS, SERVICES):
            for obj in (await cluster.api.list(resource, "default")).items:  # type: ignore[misc]
                owner = obj.metadata.controller
                if obj.metadata.leaving or (owner is not None and owner.uid not in uids):
                    await cluster.api.delete(resource, obj.metadata.name, "default", grace=0)  # type: ignore[misc]
        await cluster.settle(1200)
        for pod in (await cluster.api.list(PODS, "default")).items:
            try:
                await cluster.start(pod.metadata.name, pause=0.0)
            except NotFound:
                pass
        await cluster.settle(1200)


@pytest.mark.parametrize("seed", range(12))
async def test_they_end_as_they_should(seed: int) -> None:
    random = Random(seed)
    async with a_box_cluster() as cluster:
        storm = Storm(random)
        cluster.flaky.before, cluster.flaky.after = storm.before, storm.after
        for _ in range(STEPS):
            await user(cluster, random, random.choice(NAMES))
            await asyncio.sleep(random.random())
        storm.on = False
        assert storm.fired
        await calm(cluster)
        await check(cluster)
        cluster.counted.clear()
        await cluster.settle(7200)
        assert cluster.writes == [], "and then they rest"


async def check(cluster: Cluster) -> None:
    pods = {pod.metadata.name: pod for pod in (await cluster.api.list(PODS, "default")).items}
    services = {service.metadata.name for service in (await cluster.api.list(SERVICES, "default")).items}
    boxes = {box.metadata.name: box for box in (await cluster.api.list(SANDBOXES, "default")).items}
    for name, box in boxes.items():
        story = f"{name}\n{cluster.told(name)}"
        assert await cluster.said("Healthy", name) is None, story
        if box.spec.suspended:
            assert name not in pods, story
            assert await cluster.said("Suspended", name) == ("True", "PodTerminated"), story
        else:
            assert await cluster.ready(name) == ("True", "DependenciesReady"), story
            assert pods[name].metadata.controller.uid == box.metadata.uid, story  # type: ignore[union-attr]
            template = box.spec.pod_template.metadata
            wanted = template.labels if template else {}
            assert {key: pods[name].metadata.labels.get(key) for key in wanted} == wanted, story
        if box.spec.service is not None:
            assert (name in services) is box.spec.service, story
        assert box.status.service == (name if name in services else ""), story
        assert {c.observed_generation for c in box.status.conditions} == {box.metadata.generation}, story
    assert set(pods) <= set(boxes)
