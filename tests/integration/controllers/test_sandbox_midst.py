"""What happens to a sandbox in the midst of a reconcile: the plan was made for what it was a moment ago."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from integration.controllers.box_cluster import Cluster, a_box_cluster, controlled
from sandpool.model.kinds import CLAIMS, PERSISTENT_VOLUME_CLAIMS, PODS, POOLS, SANDBOXES, SERVICES, TEMPLATES
from sandpool.model.labels import CLAIM_UID, POD_SPEC_HASH, SANDBOX_UID, TRACE_CONTEXT, WARM_POOL
from sandpool.model.metadata import Key
from sandpool.model.patches import json_patch, merge_patch
from sandpool.model.times import seconds
from support.simulated.loop_cluster import START, a_cluster

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")
CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
STORAGE: dict[str, Any] = {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": CLAIM_SPEC}]}
TRACE = '{"traceparent":"00-1-2-01"}'
EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"


async def nothing(verb: str, plural: str) -> None: ...


def once(cluster: Cluster, what: str, does: Callable[[], Awaitable[object]]) -> None:
    """When the controller's next call of this verb and resource is done, and before it hears so, something else happens,
    and the watch says so."""

    async def meanwhile(verb: str, plural: str) -> None:
        if f"{verb} {plural}" == what:
            cluster.flaky.after = nothing
            await does()
            await asyncio.sleep(0.1)

    cluster.flaky.after = meanwhile


async def test_a_sandbox_that_is_suspended_meanwhile_gets_no_pod() -> None:
    async with a_box_cluster() as cluster:
        once(cluster, "create persistentvolumeclaims", lambda: cluster.edit(operatingMode="Suspended"))
        await cluster.make(**STORAGE)
        await cluster.settle(5)
        assert cluster.writes == ["create persistentvolumeclaims", "patch_status sandboxes"]
        assert await cluster.said("Suspended") == ("True", "PodTerminated")


async def test_a_sandbox_that_is_gone_meanwhile_gets_no_pod() -> None:
    async with a_box_cluster() as cluster:
        once(cluster, "create persistentvolumeclaims", lambda: cluster.api.delete(SANDBOXES, "box", "default"))
        await cluster.make(**STORAGE)
        await cluster.settle(5)
        assert cluster.writes == ["create persistentvolumeclaims"]
        assert cluster.refused == []


async def test_a_sandbox_that_is_made_anew_meanwhile_gets_a_pod_of_its_own() -> None:
    async with a_box_cluster() as cluster:

        async def anew() -> None:
            await cluster.api.delete(SANDBOXES, "box", "default")
            await cluster.api.delete(PERSISTENT_VOLUME_CLAIMS, "data-box", "default")  # what the collector does
            await cluster.make(**STORAGE)

        once(cluster, "create persistentvolumeclaims", anew)
        await cluster.make(**STORAGE)
        await cluster.settle(5)
        uid = (await cluster.sandbox()).metadata.uid
        for resource, name in ((PODS, "box"), (PERSISTENT_VOLUME_CLAIMS, "data-box")):
            assert (await cluster.there(resource, name)).metadata.controller.uid == uid
        assert cluster.counted.count("create", "pods") == 1


async def test_more_time_while_the_end_is_told_keeps_the_pod() -> None:
    async with a_box_cluster() as cluster:
        end = START + timedelta(seconds=50)
        await cluster.running(service=True, shutdownTime=seconds(end))
        first = await cluster.pod()
        cluster.counted.clear()
        once(cluster, "patch_status sandboxes", lambda: cluster.edit(shutdownTime=None))
        await cluster.settle(60)
        assert (await cluster.pod()).metadata.uid == first.metadata.uid
        assert not (await cluster.pod()).metadata.leaving
        assert await cluster.ready() == IS_READY
        assert set(cluster.writes) == {"patch_status sandboxes"}


async def test_more_time_while_the_pod_is_deleted_keeps_the_service() -> None:
    async with a_box_cluster() as cluster:
        end = START + timedelta(seconds=50)
        await cluster.running(service=True, shutdownTime=seconds(end))
        service = await cluster.there(SERVICES)
        once(cluster, "delete pods", lambda: cluster.edit(shutdownTime=None))
        await cluster.settle(60)
        assert (await cluster.there(SERVICES)).metadata.uid == service.metadata.uid
        assert await cluster.ready() == ("False", "DependenciesNotReady"), "until the next pod runs"


async def test_a_member_that_is_claimed_meanwhile_gets_the_pod_of_a_claimed_one() -> None:
    async with a_box_cluster() as cluster:
        transfer = await a_member(cluster)
        once(cluster, "create persistentvolumeclaims", transfer)
        await cluster.settle(5)
        pod = await cluster.pod()
        assert WARM_POOL not in pod.metadata.labels
        assert CLAIM_UID in pod.metadata.labels
        assert pod.metadata.annotations[TRACE_CONTEXT] == TRACE
        assert cluster.writes == ["create persistentvolumeclaims", "create pods", "patch_status sandboxes"]
        assert cluster.refused == []


async def test_a_member_that_is_claimed_while_its_pod_is_made_is_patched_once() -> None:
    async with a_box_cluster() as cluster:
        transfer = await a_member(cluster)
        once(cluster, "create pods", transfer)
        await cluster.settle(5)
        pod = await cluster.pod()
        assert WARM_POOL not in pod.metadata.labels
        assert pod.metadata.annotations[TRACE_CONTEXT] == TRACE
        assert cluster.writes[1:3] == ["create pods", "patch pods"]
        assert cluster.counted.count("patch", "pods") == 1
        assert cluster.refused == []


async def a_member(cluster: Cluster) -> Callable[[], Awaitable[object]]:
    """A member of a pool, just made; the answer hands it over to a claim."""
    api = cluster.api
    template = {"podTemplate": {"spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "python"}]}}}
    await api.create(TEMPLATES, {"metadata": {"name": "t"}, "spec": template}, "default")
    pool_body = {"metadata": {"name": "pool"}, "spec": {"sandboxTemplateRef": {"name": "t"}}}
    pool = await api.create(POOLS, pool_body, "default")
    claim_body = {"metadata": {"name": "claim"}, "spec": {"warmPoolRef": {"name": "pool"}}}
    claim = await api.create(CLAIMS, claim_body, "default")
    await cluster.settle()
    owner = {"apiVersion": EXTENSIONS, "kind": "SandboxWarmPool", "name": "pool", "uid": pool.metadata.uid}
    metadata = {
        "name": "box",
        "labels": {WARM_POOL: "w"},
        "annotations": {"note": "x"},
        "ownerReferences": [{**owner, "controller": True}],
    }
    await api.create(SANDBOXES, {"metadata": metadata, "spec": {**template, **STORAGE}}, "default")
    mine = {"apiVersion": EXTENSIONS, "kind": "SandboxClaim", "name": "claim", "uid": claim.metadata.uid}
    patch = json_patch(
        [
            {"op": "replace", "path": "/metadata/ownerReferences/0", "value": {**mine, "controller": True}},
            {"op": "remove", "path": f"/metadata/labels/{WARM_POOL.replace('/', '~1')}"},
            {"op": "add", "path": f"/metadata/annotations/{TRACE_CONTEXT.replace('/', '~1')}", "value": TRACE},
        ]
    )
    return lambda: api.patch(SANDBOXES, "box", patch, "default")


async def test_a_changed_spec_is_told_in_the_write_that_tells_its_generation() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        made_from = (await cluster.pod()).metadata.annotations[POD_SPEC_HASH]
        cluster.counted.clear()
        image = {"nodeName": "n1", "containers": [{"name": "main", "image": "other"}]}
        await cluster.edit(podTemplate={"spec": image})
        await cluster.settle(5)
        assert cluster.writes == ["patch_status sandboxes"]
        assert await cluster.said("PodUpToDate") == ("False", "PodOutdated")
        assert await cluster.ready() == IS_READY
        assert [event.reason for event in await cluster.events()] == ["PodOutdated"]
        for _ in range(3):
            cluster.controller.loop.wake(Key("default", "box"), "test")
            await cluster.settle(5)
        assert cluster.writes == ["patch_status sandboxes"]
        await cluster.api.delete(PODS, "box", "default")
        await cluster.finish()
        await cluster.settle()
        await cluster.start()
        await cluster.settle(5)
        assert await cluster.said("PodUpToDate") is None
        assert (await cluster.pod()).metadata.annotations[POD_SPEC_HASH] != made_from


async def test_the_service_of_an_earlier_version_narrows_after_the_pod_has_its_label() -> None:
    async with a_cluster() as api:
        async with controlled(api) as cluster:
            await cluster.running(service=True)
        await api.patch(SERVICES, "box", merge_patch({"spec": {"selector": {SANDBOX_UID: None}}}), "default")
        await api.patch(PODS, "box", merge_patch({"metadata": {"labels": {SANDBOX_UID: None}}}), "default")
        async with controlled(api) as cluster:
            await cluster.settle(5)
            uid = (await cluster.sandbox()).metadata.uid
            assert cluster.writes == ["patch pods", "patch services"]
            assert (await cluster.pod()).metadata.labels[SANDBOX_UID] == uid
            assert (await cluster.there(SERVICES)).spec.selector[SANDBOX_UID] == uid
            assert await cluster.ready() == IS_READY


async def test_w22_a_normal_life_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with a_box_cluster() as cluster:
        caplog.set_level(logging.INFO)
        caplog.clear()
        await cluster.running(service=True, **STORAGE)
        await cluster.edit(operatingMode="Suspended")
        await cluster.settle()
        await cluster.finish()
        await cluster.settle(5)
        await cluster.api.delete(SANDBOXES, "box", "default")
        await cluster.settle(5)
        assert caplog.messages == []
