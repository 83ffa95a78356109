"""The Sandbox controller beside others: who write a status that is not theirs to write, or take away what it made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integration.controllers.box_cluster import a_box_cluster, controlled
from sandpool.kube.api import Call
from sandpool.kube.errors import NotFound
from sandpool.model.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, SANDBOXES, SERVICES
from sandpool.model.patches import json_patch, merge_patch
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import a_cluster

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")


def not_ready(message: str) -> dict[str, Any]:
    """What an earlier leader, which saw less, might still say."""
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "DependenciesNotReady",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {"status": {"conditions": [condition], "podIPs": None}}


async def test_a_status_that_lands_late_is_put_right_at_once() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        assert await cluster.ready() == IS_READY
        cluster.counted.clear()
        await cluster.api.patch_status(SANDBOXES, "box", merge_patch(not_ready("late")), "default")
        await cluster.settle()
        assert await cluster.ready() == IS_READY
        assert (await cluster.sandbox()).status.pod_ips == ("10.0.0.1",)
        assert cluster.writes == ["patch_status sandboxes"]


async def test_two_who_contradict_each_other_do_it_less_and_less_often() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        cluster.counted.clear()
        for number in range(2000):  # 20 seconds
            if await cluster.ready() == IS_READY:
                await cluster.api.patch_status(SANDBOXES, "box", merge_patch(not_ready(str(number))), "default")
            await asyncio.sleep(0.01)
        assert 3 <= len(cluster.writes) <= 6
        await cluster.settle(60)
        assert await cluster.ready() == IS_READY


async def test_what_somebody_adds_to_a_status_is_left_alone() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        cluster.counted.clear()
        noted = {"type": "Noted", "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        added = json_patch([{"op": "add", "path": "/status/conditions/-", "value": noted}])
        await cluster.api.patch_status(SANDBOXES, "box", added, "default")
        await cluster.settle(60)
        assert cluster.writes == []
        assert await cluster.said("Noted") == ("True", "ByHand")


class SlowSandboxes(FlakyApi):
    """`flow` holds back the watch of sandboxes and no other."""

    def stream(self, call: Call) -> Any:
        return (super() if call.resource == SANDBOXES else self.inner).stream(call)  # type: ignore[union-attr]


@pytest.mark.parametrize(("resource", "spec"), [(PODS, {}), (SERVICES, {"service": True})], ids=["pod", "service"])
async def test_for_a_sandbox_that_is_gone_nothing_is_made_again(resource: Any, spec: dict[str, Any]) -> None:
    """The watch of sandboxes is slow, the others are not, and a collector takes away whatever is made for one that is gone."""
    async with a_cluster() as api, controlled(slow := SlowSandboxes(api)) as cluster:
        await cluster.running(**spec)
        cluster.counted.clear()
        slow.flow.clear()
        await cluster.api.delete(SANDBOXES, "box", "default")
        for _ in range(50):
            if await cluster.there(resource) is not None:
                await cluster.api.delete(resource, "box", "default", grace=0)
            await cluster.settle(0.05)
        assert cluster.counted.count("create") == 0
        assert cluster.counted.count("get", "sandboxes", "NotFound") == 1
        assert cluster.controller.remembered == 0, "the cache knows, though the watch has not said so"
        slow.flow.set()


async def test_a_pod_that_vanishes_again_and_again_is_made_less_and_less_often() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        cluster.counted.clear()
        for _ in range(2000):  # 20 seconds
            try:
                await cluster.api.delete(PODS, "box", "default", grace=0)
            except NotFound:
                pass
            await asyncio.sleep(0.01)
        assert 3 <= cluster.counted.count("create", "pods", "ok") <= 6
        await cluster.settle(60)
        await cluster.start()
        await cluster.settle()
        assert await cluster.ready() == IS_READY


async def test_a_pod_that_somebody_deletes_is_replaced_at_once() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        first = await cluster.pod()
        await cluster.api.delete(PODS, "box", "default", grace=0)
        await cluster.settle()
        assert (await cluster.pod()).metadata.uid != first.metadata.uid


async def test_who_suspends_and_resumes_often_does_not_wait() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        cluster.counted.clear()
        for _ in range(5):
            await cluster.edit(operatingMode="Suspended")
            await cluster.settle()
            await cluster.finish()
            await cluster.edit(operatingMode="Running")
            await cluster.settle()
            assert await cluster.there(PODS) is not None
        assert cluster.counted.count("get", "sandboxes") == 0


STORED = {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "name", "spec"),
    [(PODS, "box", {}), (SERVICES, "box", {"service": True}), (PERSISTENT_VOLUME_CLAIMS, "data-box", STORED)],
    ids=["pod", "service", "volume claim"],
)
async def test_what_was_orphaned_when_its_sandbox_was_deleted_is_left_alone(
    resource: Any, name: str, spec: dict[str, Any]
) -> None:
    async with a_cluster() as api, controlled(slow := SlowSandboxes(api)) as cluster:
        await cluster.running(**spec)
        cluster.counted.clear()
        slow.flow.clear()
        await cluster.api.delete(SANDBOXES, "box", "default")
        orphaned = merge_patch({"metadata": {"ownerReferences": None}})
        await cluster.api.patch(resource, name, orphaned, "default")
        await cluster.settle(60)
        assert cluster.writes == []
        assert (await cluster.there(resource, name)).metadata.owner_references == ()
        slow.flow.set()


async def test_a_pod_that_lost_its_owner_while_its_sandbox_is_there_is_taken_over() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        cluster.counted.clear()
        orphaned = merge_patch({"metadata": {"ownerReferences": None}})
        await cluster.api.patch(PODS, "box", orphaned, "default")
        await cluster.settle()
        assert (await cluster.pod()).metadata.controller is not None
        assert await cluster.ready() == IS_READY
