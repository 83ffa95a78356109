"""The REST surface, fuzzed from its own OpenAPI documents: whatever comes in, no 500 and no hang."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.product.cluster import Cluster, running_cluster

DOCUMENTS = [
    "api/v1",
    "apis/agents.x-k8s.io/v1beta1",
    "apis/extensions.agents.x-k8s.io/v1beta1",
    "apis/coordination.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/node.k8s.io/v1",
]
CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "data") as cluster:
        yield cluster


def fuzz(cluster: Cluster, document: str, examples: int, tmp_path: Path) -> None:
    kubeconfig = yaml.safe_load((cluster.data_dir / "kubeconfig").read_text())
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{cluster.running.api}/openapi/v3/{document}",
        "--url", cluster.running.api, "--checks", CHECKS, "--max-examples", str(examples), "--phases", "fuzzing",
        "--mode", "all", "--tls-verify", "false", "--request-timeout", "20", "--workers", "1", "--seed", "1",
        "--generation-database", "none", "--max-failures", "3", "--no-color",
        "--suppress-health-check", "too_slow",  # which the machine is, when it has much else to do
        "--header", f"Authorization: Bearer {kubeconfig['users'][0]['user']['token']}",
    ]  # fmt: skip
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert cluster.status()["healthy"] is True


@pytest.mark.long
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_all_documents(cluster: Cluster, document: str, tmp_path: Path) -> None:
    fuzz(cluster, document, 25, tmp_path)
