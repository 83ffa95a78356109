"""The real server that everything else is compared with: it starts, serves our CRDs as they are, collects, and is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from conformance.bodies import core, metadata, sandbox
from conformance.rest.answers import recorded
from kube.build import KUBERNETES
from support.kube import server as kube_server

pytestmark = pytest.mark.kube
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
CONFIGS = "/api/v1/namespaces/default/configmaps"
PATIENCE = 60.0


@pytest.fixture
def server() -> Iterator[kube_server.KubeServer]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with kube_server.running() as server:
        yield server


def test_life_of_a_server(server: kube_server.KubeServer) -> None:
    assert server.request("GET", "/version")["gitVersion"] == KUBERNETES
    assert recorded()["kubernetes"] == KUBERNETES, "record the answers anew: python -m conformance.rest.record"
    crds = server.request("GET", CRDS)["items"]
    assert len(crds) == 4
    for crd in crds:
        conditions = {condition["type"]: condition for condition in crd["status"]["conditions"]}
        assert conditions["Established"]["status"] == "True"
        assert "NonStructuralSchema" not in conditions, conditions["NonStructuralSchema"]
        assert "KubernetesAPIApprovalPolicyConformant" not in conditions or (
            conditions["KubernetesAPIApprovalPolicyConformant"]["status"] == "True"
        )
    owner = server.request("POST", SANDBOXES, sandbox("owner"))
    reference = {"apiVersion": owner["apiVersion"], "kind": "Sandbox", "name": "owner", "uid": owner["metadata"]["uid"]}
    server.request("POST", CONFIGS, core("ConfigMap", metadata=metadata("child", ownerReferences=[reference])))
    server.request("DELETE", f"{SANDBOXES}/owner")
    deadline = time.monotonic() + PATIENCE
    while any(item["metadata"]["name"] == "child" for item in server.request("GET", CONFIGS)["items"]):
        assert time.monotonic() < deadline, server.log("kube-controller-manager")
        time.sleep(0.1)
    pids = [process.pid for process in server.processes]
    server.stop()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not server.folder.exists()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    (tmp_path / "bad.yaml").write_text("{apiVersion: apiextensions.k8s.io/v1, kind: Nonsense, metadata: {name: x}}")
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(OSError, match="400"):
        kube_server.start(crds=tmp_path)
    assert {child.pid for child in psutil.Process().children()} == before
