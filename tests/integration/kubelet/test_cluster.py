"""Pods on a cluster that is reached in different ways, as its API and as kubectl show them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandpool.kube.api import EventType
from sandpool.kube.errors import Conflict, NotFound
from sandpool.model.binding import binding_body, binding_resource
from sandpool.model.kinds import PODS, raw
from sandpool.model.pod import Pod
from sandpool.node.kubelet.pods import NODE_PODS
from sandpool.node.runtimes.fake import EXIT_AFTER
from support.kube.kubectl import Kubectl
from support.simulated.kubelet_node import a_pod, condition

if TYPE_CHECKING:
    from integration.kubelet.conftest import Cluster

WAIT = 30.0


async def watched(cluster: Cluster, condition: Callable[[dict[str, Pod]], bool]) -> dict[str, Pod]:
    """The pods of the namespace, once they are like that; told by a watch."""
    pods: dict[str, Pod] = {}
    async with asyncio.timeout(WAIT), cluster.api.watch(PODS, cluster.namespace, initial=True) as events:
        if condition(pods):
            return pods
        async for event in events:
            if event.object is None:
                continue
            if event.type is EventType.DELETED:
                pods.pop(event.object.metadata.name, None)
            else:
                pods[event.object.metadata.name] = event.object
            if condition(pods):
                return pods
    raise AssertionError("the watch ended")


async def create(cluster: Cluster, name: str, **options: Any) -> None:
    await cluster.api.create(PODS, a_pod(name, **options), cluster.namespace)


async def test_pods_become_ready_and_leave(cluster: Cluster) -> None:
    await asyncio.gather(*(create(cluster, f"p{i}") for i in range(20)))
    pods = await watched(cluster, lambda pods: len(pods) == 20 and all(pod.ready for pod in pods.values()))
    assert len({pod.ips for pod in pods.values()}) == 20
    assert len({pod.spec.node_name for pod in pods.values()}) == 1
    for name in pods:
        await cluster.api.delete(PODS, name, cluster.namespace)
    async with asyncio.timeout(WAIT):
        while (await cluster.api.list(PODS, cluster.namespace)).items:
            await watched_change(cluster)


async def watched_change(cluster: Cluster) -> None:
    """Returns when something was deleted since the present state."""
    page = await cluster.api.list(PODS, cluster.namespace)
    if not page.items:
        return
    async with cluster.api.watch(PODS, cluster.namespace, since=page.revision) as events:
        async for event in events:
            if event.type is EventType.DELETED:
                return


async def test_the_status_is_complete_on_every_server(cluster: Cluster) -> None:
    await create(cluster, "p", initContainers=[{"name": "first", "image": "host"}])
    await watched(cluster, lambda pods: "p" in pods and pods["p"].ready)
    status = (await cluster.api.get(raw(PODS), "p", cluster.namespace)).body["status"]
    assert status["phase"] == "Running"
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert (status["hostIP"], status["hostIPs"]) == ("127.0.0.1", [{"ip": "127.0.0.1"}])
    assert status["qosClass"] == "BestEffort"
    assert status["containerStatuses"][0]["state"]["running"]["startedAt"]
    assert status["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    body = {"status": status}
    for type_ in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"):
        assert condition(body, type_) == "True", type_


async def test_a_pod_that_finishes(cluster: Cluster) -> None:
    await create(cluster, "p", restartPolicy="Never", annotations={EXIT_AFTER: "0.1"})
    pods = await watched(cluster, lambda pods: "p" in pods and pods["p"].status.phase == "Succeeded")
    assert not pods["p"].ready


async def test_bindings_are_refused_alike(cluster: Cluster) -> None:
    await create(cluster, "p")
    await watched(cluster, lambda pods: "p" in pods and pods["p"].ready)
    pod = await cluster.api.get(NODE_PODS, "p", cluster.namespace)
    assert pod.metadata.generation == 1
    body, where = binding_body(pod.metadata, "elsewhere"), binding_resource("p")
    with pytest.raises(Conflict, match=f'pod p is already assigned to node "{pod.spec.node_name}"') as caught:
        await cluster.api.create(where, body, cluster.namespace)
    assert caught.value.details == {"name": "p", "kind": "pods/binding"}
    other = {**body, "metadata": {"name": "p", "uid": "another-uid"}}
    with pytest.raises(Conflict, match="another-uid"):
        await cluster.api.create(where, other, cluster.namespace)
    other = {**body, "metadata": {"name": "q"}}
    with pytest.raises(NotFound, match='pods "q" not found'):
        await cluster.api.create(binding_resource("q"), other, cluster.namespace)


@pytest.mark.kubectl
async def test_kubectl_shows_pods_and_nodes(cluster: Cluster, tmp_path: Path) -> None:
    kubectl = Kubectl(cluster.kubeconfig, tmp_path, cluster.namespace)
    await create(cluster, "p")
    await watched(cluster, lambda pods: "p" in pods and pods["p"].ready)
    shown = (await asyncio.to_thread(kubectl, "get", "pods", "--no-headers")).split()
    assert shown[:4] == ["p", "1/1", "Running", "0"]
    wide = (await asyncio.to_thread(kubectl, "get", "pods", "-o", "wide", "--no-headers")).split()
    pod = await cluster.api.get(PODS, "p", cluster.namespace)
    assert wide[5:7] == [pod.ips[0], pod.spec.node_name]
    node = (await asyncio.to_thread(kubectl, "get", "node", pod.spec.node_name, "--no-headers")).split()
    assert node[:2] == [pod.spec.node_name, "Ready"]
    waited = await asyncio.to_thread(kubectl, "wait", "--for=condition=Ready", "pod/p", "--timeout=20s")
    assert "condition met" in waited
    described = await asyncio.to_thread(kubectl, "describe", "pod", "p")
    assert re.search(r"^Status: +Running$", described, re.MULTILINE)
    deleted = await asyncio.to_thread(kubectl, "delete", "pod", "p", "--timeout=20s")
    assert "deleted" in deleted


@pytest.mark.kubectl
async def test_what_a_hollow_pod_cannot_do_is_said(cluster: Cluster, tmp_path: Path, request: Any) -> None:
    if "kube" in request.node.name.partition("[")[2]:
        pytest.skip("a real server asks the node itself")
    kubectl = Kubectl(cluster.kubeconfig, tmp_path, cluster.namespace)
    await create(cluster, "p")
    await watched(cluster, lambda pods: "p" in pods and pods["p"].ready)
    done = await asyncio.to_thread(kubectl.run, "logs", "p")
    assert done.code != 0
    assert "the backend hollow" in done.err
