"""An installation as an operator makes it: what `sandpool install --dry-run` prints is given to kubectl, and the controller runs
from its image in the cluster that it serves. There is no DNS and no kube-proxy here, so its pods are told where the server is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from node.run import SERVICE
from sandpool.install.rules import LEASE
from sandpool.install.settings import CONTROLLER
from sandpool.model.kinds import LEASES, TEMPLATES
from support.images.node_image import BOXES
from support.images.node_image import CONTROLLER as IMAGE
from support.kube.access import NAMESPACE
from support.kube.kubectl import Kubectl
from support.kube.real_node import Cluster
from support.kube.stage import User, a_user

pytestmark = [pytest.mark.node, pytest.mark.timeout(300)]

SERVER_NAME = "kubernetes.default.svc"


def manifests() -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "sandpool", "install", "--dry-run", "--image", IMAGE]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return [told_where(body) for body in yaml.load_all(printed, Loader=yaml.CSafeLoader)]


def told_where(body: dict[str, Any]) -> dict[str, Any]:
    if body["kind"] == "Deployment":
        spec = body["spec"]["template"]["spec"]
        spec["hostAliases"] = [{"ip": SERVICE, "hostnames": [SERVER_NAME]}]
        spec["containers"][0]["env"] = [{"name": "KUBERNETES_SERVICE_HOST", "value": SERVER_NAME}]
    return body


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Kubectl]:
    kubectl = Kubectl(cluster.server.kubeconfig, cluster.folder, NAMESPACE)
    kubectl(
        "apply",
        "--server-side",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests()}),
    )
    try:
        rolled_out(kubectl)
        yield kubectl
    finally:
        kubectl("delete", "deployment", CONTROLLER, "--cascade=foreground", "--timeout=60s", timeout=90)


def rolled_out(kubectl: Kubectl) -> None:
    done = kubectl.run("rollout", "status", f"deployment/{CONTROLLER}", "--timeout=120s", timeout=150)
    assert done.code == 0, done.out + done.err + told(kubectl)


def told(kubectl: Kubectl) -> str:
    """What an operator would look at."""
    looks = (
        ("get", "pods", "-o", "wide"),
        ("get", "events"),
        ("logs", f"deployment/{CONTROLLER}", "--tail=20"),
    )
    return "\n".join(done.out + done.err for done in (kubectl.run(*look) for look in looks))


async def test_it_serves_the_cluster_that_it_runs_in(cluster: Cluster, installed: Kubectl) -> None:
    async with a_user(cluster, "installed") as user:  # type: ignore[arg-type]
        container = {"name": "main", "image": BOXES[0]}
        await user.create(TEMPLATES, "python", podTemplate={"spec": {"containers": [container]}})
        await user.pool(2)
        await user.filled(2)
        await user.claim("mine")
        name = (await user.served("mine"))["mine"]
        inside = Kubectl(cluster.server.kubeconfig, cluster.folder, "installed")
        assert inside("exec", name, "--", "cat", "/release").strip() == BOXES[0]


async def test_when_the_leading_pod_dies_the_other_takes_over(cluster: Cluster, installed: Kubectl) -> None:
    async with a_user(cluster, "handed-over") as user:  # type: ignore[arg-type]
        await user.create(
            TEMPLATES, "python", podTemplate={"spec": {"containers": [{"name": "main", "image": BOXES[0]}]}}
        )
        await user.pool(1)
        await user.filled(1)
        before = await holder(user)
        installed("delete", "pod", before.partition("_")[0], "--wait=false")
        await user.claim("mine")
        await user.served("mine")
        await user.filled(1)
        assert await holder(user) != before
    rolled_out(installed)
    for pod in json.loads(installed("get", "pods", "-o", "json"))["items"]:
        if "deletionTimestamp" not in pod["metadata"]:
            assert [one["restartCount"] for one in pod["status"]["containerStatuses"]] == [0]


async def holder(user: User) -> str:
    return str((await user.api.get(LEASES, LEASE, NAMESPACE)).spec.holder_identity)
