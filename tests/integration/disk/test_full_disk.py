"""A cluster whose disk something else has filled: what makes room is stored, what needs room is refused and says why, and it heals."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import InsufficientStorage, Unavailable
from support.node.small_disk import MIB, fill, small_disk
from support.product.cluster import CLAIMS, Cluster, sandpool, stop

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root"),
]
MAPS = "/api/v1/namespaces/default/configmaps"
NODE = "/api/v1/nodes/local"
GROUP = "extensions.agents.x-k8s.io"
TEMPLATES = f"/apis/{GROUP}/v1beta1/namespaces/default/sandboxtemplates"
POOLS = f"/apis/{GROUP}/v1beta1/namespaces/default/sandboxwarmpools"
BOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 400 * MIB) as place:
        yield place


@pytest.fixture
def reserve() -> str:
    return "64Mi"


@pytest.fixture
def cluster(disk: Path, reserve: str) -> Iterator[Cluster]:
    cluster = Cluster(disk / "data")
    cluster.up("--backend", "hollow", "--no-pool", "--disk-reserve", reserve)
    try:
        yield cluster
    finally:
        stop(cluster)


def until(check: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def pressed(cluster: Cluster) -> str:
    conditions = cluster.request("GET", NODE)["status"]["conditions"]
    return next(one["status"] for one in conditions if one["type"] == "DiskPressure")


def a_map(name: str, size: int = 2000) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x" * size}}


def test_a_full_disk_refuses_what_grows_and_stores_what_makes_room(cluster: Cluster, disk: Path) -> None:
    for number in range(50):
        cluster.request("POST", MAPS, a_map(f"m{number}"))
    held = {**a_map("held"), "metadata": {"name": "held", "finalizers": ["example.com/held"]}}
    cluster.request("POST", MAPS, held)
    until(lambda: pressed(cluster) == "False", "the node says that there is room")
    fill(disk / "hog", leave=0)
    until(lambda: cluster.status()["disk"]["level"] == "full", "status says that it is full")
    until(lambda: pressed(cluster) == "True", "and so does the node")
    shown = sandpool("status", *cluster.flag).stdout
    assert "disk full" in shown
    with pytest.raises(InsufficientStorage, match=r"disk full.*nothing new is stored.*delete") as refused:
        cluster.request("POST", MAPS, a_map("more"))
    assert refused.value.causes[0].reason == "DiskFull"
    with pytest.raises(InsufficientStorage, match=r"disk full.*nothing that grows"):
        cluster.request("PUT", f"{MAPS}/m0", a_map("m0", 4000))
    cluster.request("PUT", f"{MAPS}/m0", a_map("m0", 1000))
    marked = cluster.request("DELETE", f"{MAPS}/held")
    assert marked["metadata"]["deletionTimestamp"]
    cluster.request("PUT", f"{MAPS}/held", {**a_map("held"), "metadata": {"name": "held", "finalizers": []}})
    for number in range(1, 50):
        cluster.request("DELETE", f"{MAPS}/m{number}")
    assert [one["metadata"]["name"] for one in cluster.request("GET", MAPS)["items"]] == ["m0"]
    assert cluster.status()["healthy"] is True
    (disk / "hog").unlink()
    until(lambda: cluster.status()["disk"]["level"] == "ok", "there is room again")
    until(lambda: pressed(cluster) == "False", "and the node says so")
    until(lambda: _stored(cluster, "later"), "what was refused is stored")


def test_no_pod_is_started_and_all_say_why(cluster: Cluster, disk: Path) -> None:
    fill(disk / "hog", leave=40 * MIB)  # pressure, and still room for objects
    until(lambda: pressed(cluster) == "True", "the node is under pressure")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "host"}]}}  # fmt: skip
    cluster.request("POST", PODS, pod)

    def waits() -> bool:
        status = cluster.request("GET", f"{PODS}/p").get("status", {})
        waiting = [one["state"].get("waiting") or {} for one in status.get("containerStatuses", ())]
        return bool(waiting) and waiting[0].get("reason") == "DiskPressure" and "disk" in waiting[0]["message"]

    until(waits, "the pod says what it waits for")
    box = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": "b"}, "spec": {"podTemplate": {"spec": pod["spec"]}}}  # fmt: skip
    cluster.request("POST", BOXES, box)
    until(lambda: "disk pressure" in _said(cluster, f"{BOXES}/b"), "the sandbox says it as well")
    (disk / "hog").unlink()
    until(lambda: cluster.request("GET", f"{PODS}/p")["status"].get("phase") == "Running", "it runs when there is room")


@pytest.mark.parametrize("reserve", ["16Mi"])
def test_all_objects_of_a_store_beyond_the_reserve_are_deleted_and_it_comes_back(cluster: Cluster, disk: Path) -> None:
    """If need be it is given the reserve bit by bit; what was superseded makes room for the rest."""
    count = 36  # twice the reserve
    for number in range(count):
        cluster.request("POST", MAPS, a_map(f"m{number}", 900_000))
    fill(disk / "hog", leave=0)
    until(lambda: cluster.status()["disk"]["level"] == "full", "status says that it is full")
    for number in range(count):
        until(
            lambda number=number: _gone(cluster, f"m{number}"),  # type: ignore[misc]
            "each delete is stored, if need be after the reserve was opened",
        )
    assert cluster.request("GET", MAPS)["items"] == []
    (disk / "hog").unlink()
    held = disk / "data" / "reserve"
    until(lambda: held.exists() and held.stat().st_blocks * 512 >= 15 * MIB, "the reserve is held again")


def test_a_start_on_a_full_disk(cluster: Cluster, disk: Path) -> None:
    cluster.request("POST", MAPS, a_map("kept"))
    os.kill(cluster.running.pid, signal.SIGKILL)
    until(lambda: sandpool("status", *cluster.flag, check=False).returncode == 3, "it is dead")
    fill(disk / "hog", leave=0)
    cluster.up("--backend", "hollow", "--no-pool", "--disk-reserve", "64Mi")
    assert cluster.status()["disk"]["level"] == "full"
    cluster.request("DELETE", f"{MAPS}/kept")
    with pytest.raises(InsufficientStorage, match=r"disk full"):
        cluster.request("POST", CLAIMS, {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "metadata": {"name": "c"}, "spec": {"warmPoolRef": {"name": "python"}}})  # fmt: skip


def test_a_pool_on_a_full_disk_says_why_it_does_not_fill(cluster: Cluster, disk: Path) -> None:
    spec = {"containers": [{"name": "main", "image": "host"}]}
    template = {"apiVersion": f"{GROUP}/v1beta1", "kind": "SandboxTemplate", "metadata": {"name": "t"}, "spec": {"podTemplate": {"spec": spec}}}  # fmt: skip
    cluster.request("POST", TEMPLATES, template)
    pool = {"apiVersion": f"{GROUP}/v1beta1", "kind": "SandboxWarmPool", "metadata": {"name": "w"}, "spec": {"replicas": 0, "sandboxTemplateRef": {"name": "t"}}}  # fmt: skip
    cluster.request("POST", POOLS, pool)
    fill(disk / "hog", leave=0)
    until(lambda: cluster.status()["disk"]["level"] == "full", "status says that it is full")
    made = cluster.request("GET", f"{POOLS}/w")
    cluster.request("PUT", f"{POOLS}/w", {**made, "spec": {**made["spec"], "replicas": 2}})
    until(lambda: "disk full" in _said(cluster, f"{POOLS}/w"), "the pool says why")
    (disk / "hog").unlink()
    until(
        lambda: cluster.request("GET", f"{POOLS}/w")["status"].get("readyReplicas") == 2, "it fills when there is room"
    )


def _said(cluster: Cluster, path: str) -> str:
    """What its conditions say."""
    conditions = cluster.request("GET", path).get("status", {}).get("conditions", ())
    return "; ".join(one.get("message", "") for one in conditions)


def _stored(cluster: Cluster, name: str) -> bool:
    try:
        cluster.request("POST", MAPS, a_map(name))
    except InsufficientStorage:
        return False
    return True


def _gone(cluster: Cluster, name: str) -> bool:
    try:
        cluster.request("DELETE", f"{MAPS}/{name}")
    except Unavailable:
        return False
    except SandpoolError as error:
        return "not found" in str(error)
    return True
