"""The pod that stands for the router: there while the router is, put right when changed, and left alone by the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandpool.controlplane.router_pod import MIRROR, NODE, POD, RouterPod, pod_body, remove_router_pod
from sandpool.kube.api import Api
from sandpool.kube.errors import NotFound
from sandpool.model.kinds import NAMESPACES, PODS, SERVICES, raw
from sandpool.model.metadata import Uid
from sandpool.model.patches import merge_patch
from sandpool.wire.router_service import NAMESPACE, SERVICE
from support.simulated.kubelet_node import ANode, a_node, a_pod

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def shown() -> AsyncIterator[tuple[ANode, RouterPod]]:
    async with a_node() as node:
        router = RouterPod(node.api.inner, node.clock)
        async with router.shown():
            yield node, router


async def the_pod(api: Api) -> dict[str, Any]:
    return (await api.get(raw(PODS), POD, NAMESPACE)).body


async def replaced(api: Api, before: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            try:
                found = await the_pod(api)
            except NotFound:
                found = {}
            if found and found["metadata"]["uid"] != before and found.get("status", {}).get("phase") == "Running":
                return found
            await asyncio.sleep(0.1)


async def test_it_looks_as_clients_expect() -> None:
    async with shown() as (node, router):
        pod = await the_pod(node.api.inner)
        assert router.stands_for(pod["metadata"]["uid"])
        assert pod["status"]["phase"] == "Running"
        assert {one["type"]: one["status"] for one in pod["status"]["conditions"]}["Ready"] == "True"
        (container,) = pod["status"]["containerStatuses"]
        assert container["ready"] is True
        assert "running" in container["state"]
        service = (await node.api.inner.get(raw(SERVICES), SERVICE, NAMESPACE)).body["spec"]
        assert service["selector"].items() <= pod["metadata"]["labels"].items()
        assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(8080, 8080)]
    with pytest.raises(NotFound):
        await the_pod(node.api.inner)


async def test_the_kubelet_leaves_it_alone() -> None:
    """Whatever it had to do was done when another pod, which it does run, is ready; also after a restart."""
    async with shown() as (node, _):
        before = await the_pod(node.api.inner)
        for name in ("first", "second"):
            await node.create(a_pod(name))
            while (await node.get(name)).get("status", {}).get("phase") != "Running":
                await asyncio.sleep(0.1)
            await asyncio.sleep(120)
            assert await the_pod(node.api.inner) == before
            assert len(node.backend.list_pods()) == (1 if name == "first" else 2)
            await node.restart()


async def test_the_annotation_alone_means_nothing() -> None:
    """A pod of a user's runs as ever with it, and is never taken for the router."""
    async with shown() as (node, router):
        await node.create(a_pod("p", annotations={MIRROR: "sandpool"}))
        while (await node.get())["status"].get("phase") != "Running":
            await asyncio.sleep(0.1)
        assert node.backend.pod_status(Uid((await node.get())["metadata"]["uid"])) is not None
        assert not router.stands_for(Uid((await node.get())["metadata"]["uid"]))


async def test_a_pod_that_only_looks_like_it_is_replaced() -> None:
    async with a_node() as node:
        api = node.api.inner
        await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        stale = await api.create(PODS, pod_body(), NAMESPACE)
        router = RouterPod(api, node.clock)
        async with router.shown():
            assert not router.stands_for(stale.metadata.uid)
            assert router.stands_for(Uid((await the_pod(api))["metadata"]["uid"]))


@pytest.mark.parametrize("change", ["labels", "status", "deleted", "removed"])
async def test_it_is_put_right(change: str) -> None:
    async with shown() as (node, router):
        api = node.api.inner
        before = await the_pod(api)
        await asyncio.sleep(1)
        match change:
            case "labels":
                await api.patch(PODS, POD, merge_patch({"metadata": {"labels": {"app": None}}}), NAMESPACE)
            case "status":
                await api.patch_status(PODS, POD, merge_patch({"status": {"phase": "Failed"}}), NAMESPACE)
            case "deleted":
                assert await api.delete(PODS, POD, NAMESPACE) is not None  # it has its time to end
            case _:
                await api.delete(PODS, POD, NAMESPACE, grace=0)
        again = await replaced(api, before["metadata"]["uid"])
        assert again["metadata"]["labels"] == {"app": "sandbox-router"}
        assert router.stands_for(Uid(again["metadata"]["uid"]))
        assert router.stands_for(Uid(before["metadata"]["uid"])), "whoever forwards to it still reaches the router"


async def test_a_namespace_that_is_going_does_not_end_it() -> None:
    async with a_node() as node:
        api = node.api.inner
        held = {"metadata": {"name": NAMESPACE, "finalizers": ["example.com/held"]}}
        await api.create(NAMESPACES, held)
        await api.delete(NAMESPACES, NAMESPACE)
        async with RouterPod(api, node.clock).shown():
            await asyncio.sleep(5)
            with pytest.raises(NotFound):
                await the_pod(api)


async def test_what_a_crash_left_is_removed() -> None:
    async with a_node() as node:
        api = node.api.inner
        await remove_router_pod(api)  # nothing there: nothing happens
        await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await api.create(PODS, pod_body(), NAMESPACE)
        await remove_router_pod(api)
        with pytest.raises(NotFound):
            await the_pod(api)
        assert pod_body()["spec"]["nodeName"] == NODE
