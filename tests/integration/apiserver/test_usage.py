"""What pods use, by the metrics API: measured from processes that really run, and seen by whom it concerns only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandpool.base.clock import SystemClock
from sandpool.controlplane.apiserver.server import ServerOptions
from sandpool.controlplane.apiserver.streams.serving import PodStreams
from sandpool.model import quantities
from sandpool.model.kinds import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from sandpool.model.usage import NODE_METRICS, POD_METRICS
from sandpool.node.kubelet.usage import UsageSampler
from support.api.local_objects import pod
from support.api.local_server import LocalServer, local_server
from support.kube.kubectl import Kubectl, kubectl_path
from support.node.streaming import Stage, WatchedNode, now, real_pods

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
HOLDS = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); while :; do :; done"
"""A shell that keeps some thirty megabytes and one processor busy."""


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Two pods that run, of which one is busy, on a node that the API knows."""
    node = WatchedNode(real_pods(tmp_path))
    await node.open()
    usage = UsageSampler(node.backend, SystemClock())
    try:
        async with local_server(tmp_path, options=ServerOptions(usage=usage), runtime=PodStreams(node, now)) as server:
            await server.objects.create(NODES, "", {"metadata": {"name": "here", "labels": {"big": "no"}}})
            made = Stage(server, node)
            await made.pod("busy", HOLDS)
            await made.pod("idle", containers=("main", "other"))
            yield made
    finally:
        await node.close()


async def items(server: LocalServer, path: str, **options: Any) -> dict[str, dict[str, Any]]:
    answer = await server.request("GET", path, **options)
    assert answer.status == 200, answer.body
    return {one["metadata"]["name"]: one for one in answer.json["items"]}


def cores(usage: dict[str, str]) -> float:
    return quantities.parse(usage["cpu"]).nanos / 1e9


async def test_what_pods_and_nodes_use(stage: Stage) -> None:
    server = stage.server
    pods = await items(server, POD_METRICS.path("default"))
    assert pods.keys() == {"busy", "idle"}
    (busy,) = pods["busy"]["containers"]
    assert busy["name"] == "main"
    assert 0 < cores(busy["usage"]) < 2
    assert quantities.parse(busy["usage"]["memory"]).value > 20_000_000
    assert [one["name"] for one in pods["idle"]["containers"]] == ["main", "other"]
    assert cores(pods["idle"]["containers"][0]["usage"]) < cores(busy["usage"])
    assert pods["busy"]["kind"] == "PodMetrics"
    assert pods["busy"]["metadata"]["namespace"] == "default"
    assert float(pods["busy"]["window"].removesuffix("s")) > 0
    nodes = await items(server, NODE_METRICS.path())
    assert nodes.keys() == {"here"}
    assert cores(nodes["here"]["usage"]) > 0
    assert quantities.parse(nodes["here"]["usage"]["memory"]).value > 20_000_000


async def test_one_of_them(stage: Stage) -> None:
    server = stage.server
    found = await server.request("GET", POD_METRICS.path("default", "idle"))
    assert found.json["metadata"]["name"] == "idle"
    assert (await server.request("GET", NODE_METRICS.path(name="here"))).json["metadata"]["labels"] == {"big": "no"}
    await server.objects.create(PODS, "default", pod("waiting"))
    for path, said in (
        (POD_METRICS.path("default", "absent"), 'pods.metrics.k8s.io "absent" not found'),
        (POD_METRICS.path("default", "waiting"), 'pods.metrics.k8s.io "waiting" not found'),  # nothing of it runs
        (NODE_METRICS.path(name="absent"), 'nodes.metrics.k8s.io "absent" not found'),
    ):
        refused = await server.request("GET", path)
        assert (refused.status, refused.json["message"]) == (404, said)


async def test_selectors_and_shapes(stage: Stage) -> None:
    server = stage.server
    await server.request(
        "PATCH", PODS.path("default", "busy"), {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json"
    )
    assert (await items(server, POD_METRICS.path() + "?labelSelector=a%3Db")).keys() == {"busy"}
    assert (await items(server, POD_METRICS.path() + "?fieldSelector=metadata.name%3Didle&limit=1")).keys() == {"idle"}
    assert (await server.request("GET", POD_METRICS.path() + "?labelSelector=%3D%3D")).status == 400
    table = (await server.request("GET", POD_METRICS.path("default"), headers=TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "CPU", "Memory", "Window"]
    assert [row["cells"][0] for row in table["rows"]] == ["busy", "idle"]
    for method, path in (
        ("POST", POD_METRICS.path("default")),
        ("DELETE", POD_METRICS.path("default", "busy")),
        ("GET", POD_METRICS.path("default") + "?watch=1"),
        ("PUT", NODE_METRICS.path(name="here")),
    ):
        assert (await server.request(method, path)).status == 405, method
    assert (await server.request("GET", POD_METRICS.path("default", "busy", "status"))).status == 404


async def test_a_token_of_one_namespace_sees_no_other(stage: Stage) -> None:
    server = stage.server
    await server.objects.create(NAMESPACES, "", {"metadata": {"name": "mine"}})
    await server.objects.create(SERVICE_ACCOUNTS, "mine", {"metadata": {"name": "user"}})
    asked = await server.request("POST", SERVICE_ACCOUNTS.path("mine", "user", "token"), {"spec": {}})
    token = asked.json["status"]["token"]
    assert await items(server, POD_METRICS.path("mine"), token=token) == {}
    for path in (POD_METRICS.path("default"), POD_METRICS.path("default", "busy"), POD_METRICS.path()):
        assert (await server.request("GET", path, token=token)).status == 403
    assert (await server.request("GET", NODE_METRICS.path(), token=token)).status == 403
    assert (await server.request("GET", POD_METRICS.path("default"), token=None)).status == 401


async def test_where_nobody_measures_it_is_not_there(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        groups = (await server.request("GET", "/apis")).json["groups"]
        assert "metrics.k8s.io" not in [group["name"] for group in groups]
        assert (await server.request("GET", POD_METRICS.path("default"))).status == 404


@pytest.mark.kubectl
async def test_kubectl_top(stage: Stage, tmp_path: Path) -> None:
    kubectl_path()
    kubectl = Kubectl(stage.server.kubeconfig, tmp_path)

    async def top(*arguments: str) -> list[list[str]]:
        return [line.split() for line in (await asyncio.to_thread(kubectl, "top", *arguments)).splitlines()]

    head, *rows = await top("pods", "--sort-by=cpu")
    assert head == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert [row[0] for row in rows] == ["busy", "idle"]
    assert int(rows[0][1].removesuffix("m")) > 0
    assert int(rows[0][2].removesuffix("Mi")) >= 20
    assert (await top("pod", "idle", "--no-headers"))[0][0] == "idle"
    assert [row[:2] for row in await top("pods", "-A", "--no-headers")] == [["default", "busy"], ["default", "idle"]]
    assert len(await top("pod", "--containers", "--no-headers")) == 3
    (node,) = await top("nodes", "--no-headers")
    assert node[0] == "here"
    shown = (await asyncio.to_thread(kubectl, "get", "pods.metrics.k8s.io")).split()
    assert shown[:4] == ["NAME", "CPU", "MEMORY", "WINDOW"]
    described = await asyncio.to_thread(kubectl, "explain", "pods", "--api-version=metrics.k8s.io/v1beta1")
    assert "PodMetrics is what one of the pods uses" in described
    assert "CPU" not in (await asyncio.to_thread(kubectl, "get", "pods")).split()  # still those of the core group
