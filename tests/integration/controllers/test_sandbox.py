"""The Sandbox controller on a real Api in virtual time: what becomes of sandboxes, and what it costs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from integration.controllers.box_cluster import NOT_READY, SCHEDULED, a_box_cluster, controlled
from sandpool.model.kinds import CLAIMS, PERSISTENT_VOLUME_CLAIMS, PODS, POOLS, SANDBOXES, SERVICES, TEMPLATES
from sandpool.model.labels import ADOPTABLE, CLAIM_UID, POD_NAME, SANDBOX_NAME_HASH, TEMPLATE_REF_HASH, WARM_POOL
from sandpool.model.names import name_hash
from sandpool.model.patches import json_patch, merge_patch
from sandpool.model.times import seconds
from support.simulated.loop_cluster import START, a_cluster

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")
CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
STORAGE: dict[str, Any] = {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": CLAIM_SPEC}]}
FOREIGN = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}


async def test_a_sandbox_becomes_ready_in_two_writes() -> None:
    async with a_box_cluster() as cluster:
        await cluster.make()
        await cluster.settle()
        assert cluster.writes == ["create pods"]
        await cluster.start()
        await cluster.settle()
        assert await cluster.ready() == IS_READY, cluster.told()
        assert (await cluster.sandbox()).status.pod_ips == ("10.0.0.1",)
        await cluster.settle(120)
        assert cluster.writes == ["create pods", "patch_status sandboxes"]
        assert cluster.reconciles <= 3, cluster.told()
        assert cluster.refused == []


async def test_a_slow_start_is_three_reconciles_however_much_the_kubelet_says() -> None:
    async with a_box_cluster() as cluster:
        await cluster.make()
        await cluster.settle(1.5)
        assert await cluster.ready() == ("False", "DependenciesNotReady"), "the beginning is told after a moment"
        for number in range(50):
            state = {"type": "Step", "status": "False", "reason": f"R{number}"}
            await cluster.report(phase="Pending", conditions=[SCHEDULED, state])
            await asyncio.sleep(0.1)
        await cluster.start(pause=3)
        await cluster.settle()
        assert await cluster.ready() == IS_READY
        await cluster.settle(120)
        assert cluster.reconciles == 3, cluster.told()
        assert cluster.writes == ["create pods", "patch_status sandboxes", "patch_status sandboxes"]


async def test_a_pod_that_finds_no_node_is_told_soon() -> None:
    async with a_box_cluster() as cluster:
        await cluster.make()
        await cluster.settle(10)
        stuck = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
        await cluster.report(conditions=[stuck])
        await cluster.settle(1.1)
        assert await cluster.said("PodScheduled") == ("False", "Unschedulable")


async def test_progress_that_takes_long_is_told_late() -> None:
    async with a_box_cluster() as cluster:
        await cluster.make()
        await cluster.settle(2)
        await cluster.report(phase="Running", conditions=[SCHEDULED, NOT_READY])
        await cluster.settle(31)
        (ready,) = [c for c in (await cluster.sandbox()).status.conditions if c.type == "Ready"]
        assert "running but not ready" in ready.message


async def test_many_at_once_cost_two_writes_each_and_no_refusal() -> None:
    async with a_box_cluster() as cluster:
        names = [f"box-{number}" for number in range(100)]
        await asyncio.gather(*map(cluster.make, names))
        await cluster.settle()
        await asyncio.gather(*map(cluster.start, names))
        await cluster.settle()
        for name in names:
            assert await cluster.ready(name) == IS_READY
        await cluster.settle(120)
        assert len(cluster.writes) == 200
        assert cluster.counted.count("get") == 0
        assert cluster.refused == []
        assert cluster.reconciles <= 300


async def test_losing_readiness_is_told_at_once() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        await cluster.report(conditions=[SCHEDULED, NOT_READY])
        await cluster.settle()
        assert await cluster.ready() == ("False", "DependenciesNotReady")


async def test_suspend_and_resume() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running(service=True, **STORAGE)
        first = await cluster.pod()
        for round_ in range(2):
            cluster.counted.clear()
            await cluster.edit(operatingMode="Suspended")
            await cluster.settle()
            assert (await cluster.pod()).metadata.leaving
            assert await cluster.ready() == ("False", "SandboxSuspended")
            assert await cluster.said("Suspended") == ("False", "PodTerminating")
            await cluster.finish()
            await cluster.settle()
            assert await cluster.said("Suspended") == ("True", "PodTerminated")
            assert (await cluster.sandbox()).status.pod_ips == ()
            assert cluster.writes == ["delete pods", "patch_status sandboxes", "patch_status sandboxes"]
            assert await cluster.there(SERVICES) is not None
            assert await cluster.there(PERSISTENT_VOLUME_CLAIMS, "data-box") is not None
            await cluster.edit(operatingMode="Running")
            await cluster.settle()
            assert (await cluster.pod()).metadata.uid != first.metadata.uid
            await cluster.start(ip=f"10.0.1.{round_}")
            await cluster.settle()
            assert await cluster.ready() == IS_READY
            assert await cluster.said("Suspended") == ("False", "NotSuspended")
        suspended = [c for c in (await cluster.sandbox()).status.conditions if c.type == "Suspended"]
        assert suspended[0].observed_generation == (await cluster.sandbox()).metadata.generation
        reasons = {event.reason for event in await cluster.events()}
        assert {"SandboxSuspended", "SandboxResumed"} <= reasons
        assert cluster.refused == []


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_expiry_is_on_time_and_by_policy(policy: str) -> None:
    async with a_box_cluster() as cluster:
        end = START + timedelta(seconds=100)
        await cluster.running(service=True, shutdownTime=seconds(end), shutdownPolicy=policy)
        cluster.counted.clear()
        await asyncio.sleep((end - cluster.clock.now()).total_seconds() - 0.001)
        assert await cluster.ready() == IS_READY
        await cluster.settle(0.002)
        assert (await cluster.pod()).metadata.leaving
        assert await cluster.there(SERVICES) is None
        teardown = ["patch_status sandboxes", "delete pods", "delete services"]
        if policy == "Delete":
            assert await cluster.there(SANDBOXES) is None
            assert cluster.writes == [*teardown, "delete sandboxes"], "the end is seen before the teardown"
        else:
            assert await cluster.ready() == ("False", "SandboxExpired")
            await cluster.finish()
            await cluster.settle(60)
            status = (await cluster.sandbox()).status
            assert (status.pod_ips, status.service, status.selector, status.node_name) == ((), "", "", "")
            assert cluster.writes == teardown
        assert cluster.refused == []


async def test_the_end_of_a_member_whose_pod_never_ran_is_told() -> None:
    """Of such a member nothing else is told for a while."""
    async with a_box_cluster() as cluster:
        template = {"sandboxTemplateRef": {"name": "t"}}
        pool = await cluster.api.create(POOLS, {"metadata": {"name": "pool"}, "spec": template}, "default")
        owner = {
            "apiVersion": pool.api_version, "kind": pool.kind, "name": "pool", "uid": pool.metadata.uid, "controller": True,
        }  # fmt: skip
        pod = {"nodeName": "n1", "containers": [{"name": "main", "image": "python"}]}
        spec = {"podTemplate": {"spec": pod}, "shutdownTime": seconds(START + timedelta(seconds=10))}
        body = {"metadata": {"name": "box", "ownerReferences": [owner]}, "spec": spec}
        await cluster.api.create(SANDBOXES, body, "default")
        await cluster.settle(5)
        assert cluster.writes == ["create pods"]
        await cluster.settle(6)
        assert await cluster.ready() == ("False", "SandboxExpired")
        assert cluster.writes == ["create pods", "patch_status sandboxes", "delete pods"]


async def test_more_time_brings_an_expired_sandbox_back() -> None:
    async with a_box_cluster() as cluster:
        await cluster.make(shutdownTime=seconds(START - timedelta(seconds=1)))
        await cluster.settle()
        assert await cluster.ready() == ("False", "SandboxExpired")
        assert cluster.writes == ["patch_status sandboxes"], "it never got a pod"
        await cluster.edit(shutdownTime=None)
        await cluster.settle()
        await cluster.start()
        await cluster.settle()
        assert await cluster.ready() == IS_READY


async def test_more_time_in_the_last_moment_saves_it() -> None:
    async with a_box_cluster() as cluster:
        end = START + timedelta(seconds=50)
        await cluster.running(shutdownTime=seconds(end), shutdownPolicy="Delete")

        async def extend(verb: str, plural: str) -> None:
            if (verb, plural) == ("delete", "sandboxes"):
                cluster.flaky.before = nothing
                await cluster.edit(shutdownTime=seconds(end + timedelta(hours=1)))

        async def nothing(verb: str, plural: str) -> None: ...

        cluster.flaky.before = extend
        await cluster.settle(60)
        assert cluster.refused == ["Conflict"]
        assert await cluster.there(SANDBOXES) is not None
        await cluster.finish()
        await cluster.settle()
        assert not (await cluster.pod()).metadata.leaving, "a new one"


async def test_the_service_follows_its_switch() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running(service=True)
        assert (await cluster.sandbox()).status.service_fqdn == "box.default.svc.cluster.local"
        await cluster.edit(service=None)
        await cluster.settle(5)
        assert await cluster.there(SERVICES) is not None
        assert (await cluster.sandbox()).status.service == "box"
        await cluster.edit(service=False)
        await cluster.settle(5)
        assert await cluster.there(SERVICES) is None
        assert (await cluster.sandbox()).status.service == ""
        assert await cluster.ready() == IS_READY
        await cluster.edit(service=None)
        await cluster.settle(5)
        assert await cluster.there(SERVICES) is None
        assert cluster.refused == []


async def test_a_deleted_service_comes_back() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running(service=True)
        await cluster.api.delete(SERVICES, "box", "default")
        await cluster.settle()
        assert await cluster.there(SERVICES) is not None
        assert await cluster.ready() == IS_READY


async def test_storage_is_made_first_and_owned() -> None:
    async with a_box_cluster() as cluster:
        await cluster.make(**STORAGE)
        await cluster.settle()
        assert cluster.writes == ["create persistentvolumeclaims", "create pods"]
        claim = await cluster.there(PERSISTENT_VOLUME_CLAIMS, "data-box")
        assert claim.metadata.controller.uid == (await cluster.sandbox()).metadata.uid
        assert claim.metadata.labels == {SANDBOX_NAME_HASH: name_hash("box")}
        assert cluster.reconciles == 1, cluster.told()


async def test_storage_of_somebody_else_keeps_the_pod_away_until_it_is_gone() -> None:
    async with a_box_cluster() as cluster:
        metadata = {"name": "data-box", "ownerReferences": [FOREIGN]}
        await cluster.api.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": CLAIM_SPEC}, "default")
        await cluster.make(**STORAGE)
        await cluster.settle(5)
        assert await cluster.there(PODS) is None
        assert await cluster.ready() == ("False", "ReconcilerError")
        assert await cluster.said("Healthy") == ("False", "ConfigurationTrouble")
        before = cluster.reconciles
        await cluster.settle(3600)
        assert cluster.reconciles == before, "not retried on a timer"
        await cluster.api.delete(PERSISTENT_VOLUME_CLAIMS, "data-box", "default")
        await cluster.settle(5)
        assert await cluster.there(PODS) is not None
        assert await cluster.said("Healthy") is None


async def test_a_pod_deleted_by_hand_is_replaced() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        first = await cluster.pod()
        await cluster.api.delete(PODS, "box", "default")
        await cluster.settle()
        status = (await cluster.sandbox()).status
        assert await cluster.ready() == ("False", "DependenciesNotReady"), "at once, not when it is gone"
        assert status.pod_ips == ()
        assert (await cluster.pod()).metadata.uid == first.metadata.uid
        await cluster.finish()
        await cluster.settle()
        assert (await cluster.pod()).metadata.uid != first.metadata.uid
        assert await cluster.said("Suspended") == ("False", "NotSuspended")
        assert cluster.refused == []


async def test_a_transfer_to_a_claim_costs_one_patch_of_the_pod() -> None:
    async with a_box_cluster() as cluster:
        api = cluster.api
        template = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "python"}]}}}
        await api.create(TEMPLATES, {"metadata": {"name": "t"}, "spec": template}, "default")
        pool = await api.create(
            POOLS, {"metadata": {"name": "pool"}, "spec": {"sandboxTemplateRef": {"name": "t"}}}, "default"
        )
        claim = await api.create(
            CLAIMS, {"metadata": {"name": "claim"}, "spec": {"warmPoolRef": {"name": "pool"}}}, "default"
        )
        await cluster.settle()
        extensions = "extensions.agents.x-k8s.io/v1beta1"
        owner = {"apiVersion": extensions, "kind": "SandboxWarmPool", "name": "pool", "uid": pool.metadata.uid}
        labels = {WARM_POOL: "w", TEMPLATE_REF_HASH: "t"}
        metadata = {"name": "box", "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
        await api.create(SANDBOXES, {"metadata": metadata, "spec": template}, "default")
        await cluster.settle()
        await cluster.start()
        await cluster.settle(5)
        assert cluster.writes == ["create pods", "patch_status sandboxes"]
        assert (await cluster.pod()).metadata.labels[WARM_POOL] == "w"

        cluster.counted.clear()
        before = cluster.reconciles
        mine = {"apiVersion": extensions, "kind": "SandboxClaim", "name": "claim", "uid": claim.metadata.uid}
        transfer = [
            {"op": "replace", "path": "/metadata/ownerReferences/0", "value": {**mine, "controller": True}},
            {"op": "remove", "path": f"/metadata/labels/{WARM_POOL.replace('/', '~1')}"},
        ]
        await api.patch(SANDBOXES, "box", json_patch(transfer), "default")  # type: ignore[arg-type]
        await cluster.settle(120)
        assert cluster.writes == ["patch pods"]
        assert cluster.reconciles == before + 1, cluster.told()
        labels = (await cluster.pod()).metadata.labels
        assert WARM_POOL not in labels
        assert labels[CLAIM_UID] == claim.metadata.uid
        assert labels[TEMPLATE_REF_HASH] == "t"


async def test_a_pod_of_another_name_is_taken_over_and_followed() -> None:
    async with a_box_cluster() as cluster:
        spec = {"containers": [{"name": "main", "image": "python"}]}
        await cluster.api.create(
            PODS, {"metadata": {"name": "warm", "labels": {ADOPTABLE: "true"}}, "spec": spec}, "default"
        )
        template = {"podTemplate": {"spec": spec}}
        metadata = {"name": "box", "annotations": {POD_NAME: "warm"}}
        await cluster.api.create(SANDBOXES, {"metadata": metadata, "spec": template}, "default")
        await cluster.settle()
        await cluster.start("warm")
        await cluster.settle()
        assert await cluster.ready() == IS_READY
        assert ADOPTABLE not in (await cluster.pod("warm")).metadata.labels
        await cluster.edit(operatingMode="Suspended")
        await cluster.settle(5)
        assert await cluster.there(PODS, "warm") is None
        assert (await cluster.sandbox()).metadata.annotations == {}
        assert cluster.refused == []


async def test_a_successor_of_the_same_name_waits_for_the_old_pod() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        old = await cluster.pod()
        await cluster.api.delete(SANDBOXES, "box", "default")
        await cluster.make()
        await cluster.settle(5)
        assert (await cluster.pod()).metadata.uid == old.metadata.uid
        assert await cluster.ready() == ("False", "DependenciesNotReady")
        assert await cluster.said("Healthy") is None
        await cluster.api.delete(PODS, "box", "default")  # what the collector does
        await cluster.finish()
        await cluster.settle()
        assert (await cluster.pod()).metadata.uid != old.metadata.uid
        assert cluster.refused == []


async def test_a_new_controller_finds_nothing_to_do() -> None:
    async with a_cluster() as api:
        async with controlled(api) as cluster:
            await cluster.running(service=True, **STORAGE)
            assert await cluster.ready() == IS_READY
        async with controlled(api) as cluster:
            await cluster.settle(120)
            assert cluster.writes == []
            assert cluster.reconciles == 1, cluster.told()


async def test_an_edit_of_the_pod_template_reaches_the_running_pod() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        cluster.counted.clear()
        await cluster.edit(podTemplate={"metadata": {"labels": {"app": "x"}}})
        await cluster.settle(5)
        assert (await cluster.pod()).metadata.labels["app"] == "x"
        assert cluster.writes == ["patch pods", "patch_status sandboxes"]
        box = await cluster.sandbox()
        assert {c.observed_generation for c in box.status.conditions} == {box.metadata.generation}


async def test_a_label_lost_by_hand_is_repaired_and_others_are_left_alone() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running(service=True)
        cluster.counted.clear()
        before = cluster.reconciles
        await cluster.api.patch(PODS, "box", merge_patch({"metadata": {"annotations": {"cni": "x"}}}), "default")
        await cluster.settle(60)
        assert cluster.reconciles == before
        for resource in (PODS, SERVICES):
            lost = merge_patch({"metadata": {"labels": {SANDBOX_NAME_HASH: None}}})
            await cluster.api.patch(resource, "box", lost, "default")  # type: ignore[misc]
            await cluster.settle()
            assert (await cluster.there(resource)).metadata.labels[SANDBOX_NAME_HASH] == name_hash("box")
        assert cluster.writes == ["patch pods", "patch services"]
