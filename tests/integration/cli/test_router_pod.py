"""The pod that stands for the router, over crashes: it is never shown where no router is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.controlplane.router_pod import POD
from sandpool.kube.errors import NotFound
from sandpool.model.kinds import PODS, SERVICES
from sandpool.wire.router_service import NAMESPACE, SERVICE
from support.product.cluster import Cluster, stop


def test_it_tells_the_truth_after_a_crash(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data")
    try:
        cluster.up("--backend", "namespaces")
        assert cluster.request("GET", PODS.path(NAMESPACE, POD))["status"]["phase"] == "Running"
        cluster.kill()
        cluster.up("--backend", "none")
        assert cluster.status()["router"] == ""
        assert cluster.request("GET", SERVICES.path(NAMESPACE, SERVICE))["spec"]["selector"] == {
            "app": "sandbox-router"
        }
        with pytest.raises(NotFound):
            cluster.request("GET", PODS.path(NAMESPACE, POD))
    finally:
        stop(cluster)
