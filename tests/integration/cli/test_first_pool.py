"""The pool that `sandpool up` brings, and that code runs in it. As an ordinary user starts it: test_users.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.model.kinds import PODS, POOLS
from sandpool.model.pool import SandboxWarmPool
from support.kube.kubectl import Kubectl
from support.node.first_pool import LOOK, SEEN
from support.product.cluster import Cluster, sandpool, stop
from support.product.cluster_watch import became


def full(pools: dict[str, SandboxWarmPool], **sizes: int) -> bool:
    return {name: pool.status.ready_replicas for name, pool in pools.items()} == sizes


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Not started yet, and without what the suite says about pools."""
    monkeypatch.delenv("SANDPOOL_POOL")
    made = Cluster(tmp_path / "data")
    yield made
    stop(made)


@pytest.mark.kubectl
def test_python_runs_in_it(cluster: Cluster, tmp_path: Path) -> None:
    said = sandpool("up", *cluster.flag, "--port", "0", "--detach", "--backend", "namespaces").stderr
    assert "Pool python: sandboxes are starting." in said
    assert "sandpool run python -- python3 -c 'print(6*7)'" in said
    became(cluster.data_dir, POOLS, lambda pools: full(pools, python=3))
    assert "pool        default/python: 3 of 3 ready" in sandpool("status", *cluster.flag).stdout
    pods = became(cluster.data_dir, PODS, lambda pods: len(pods) == 3)
    assert all(box.startswith("python-") for box in pods)
    kubectl = Kubectl(cluster.data_dir / "kubeconfig", tmp_path)
    assert kubectl("exec", min(pods), "--", "python3", "-c", LOOK) == SEEN
    limits = kubectl("get", "pod", min(pods), "-o", "jsonpath={.spec.containers[0].resources.limits}")
    assert all(name in limits for name in ("cpu", "memory", "ephemeral-storage"))


def test_it_is_the_users_from_then_on(cluster: Cluster) -> None:
    cluster.up()
    became(cluster.data_dir, POOLS, lambda pools: full(pools, python=3))
    cluster.down()
    cluster.up("--pool", "python=1", "--pool", "other=2")
    became(cluster.data_dir, POOLS, lambda pools: full(pools, python=1, other=2))
    cluster.down()
    cluster.up()
    became(cluster.data_dir, POOLS, lambda pools: full(pools, python=1, other=2))
    assert cluster.status()["pools"][1] == {"namespace": "default", "name": "python", "desired": 1, "ready": 1}


def test_none(cluster: Cluster) -> None:
    said = sandpool("up", *cluster.flag, "--port", "0", "--detach", "--no-pool").stderr
    assert "Pool" not in said
    assert cluster.status()["pools"] == []
