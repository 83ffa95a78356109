"""The Helm chart on a cluster with a real node: `helm install` as an operator runs it, in a namespace of its own choice, with the
real roles; the controller's own image; and a claim that becomes Ready. Then it is upgraded and removed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.run import SERVICE
from sandpool.install.rules import LEASE
from sandpool.install.settings import CONTROLLER
from sandpool.model.kinds import LEASES, NETWORK_POLICIES, TEMPLATES, raw
from support.images.node_image import BOXES
from support.images.node_image import CONTROLLER as IMAGE
from support.kube.helm import CHART, helm
from support.kube.kubectl import Kubectl
from support.kube.real_node import Cluster
from support.kube.stage import User, a_user

pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]

NAMESPACE = "elsewhere"
SERVER_NAME = "kubernetes.default.svc"


class Release:
    def __init__(self, cluster: Cluster) -> None:
        self.home: Path = cluster.folder
        self.kubectl = Kubectl(cluster.server.kubeconfig, cluster.folder, NAMESPACE)
        self._kubeconfig = cluster.server.kubeconfig
        repository, _, tag = IMAGE.rpartition(":")
        # There is no DNS and no kube-proxy here, so its pods are told where the server is.
        self.values = {
            "image": {"repository": repository, "tag": tag},
            "hostAliases": [{"ip": SERVICE, "hostnames": [SERVER_NAME]}],
            "extraEnv": [{"name": "KUBERNETES_SERVICE_HOST", "value": SERVER_NAME}],
        }

    def helm(self, *arguments: str) -> str:
        values = self.home / "values.yaml"
        values.write_text(json.dumps(self.values))
        flags = [f"--kubeconfig={self._kubeconfig}", f"--namespace={NAMESPACE}"]
        if arguments[0] in ("install", "upgrade"):
            flags += [str(CHART), f"--values={values}", "--create-namespace"]
        return helm(*arguments, *flags, home=self.home, timeout=150).stdout

    def rolled_out(self) -> None:
        done = self.kubectl.run("rollout", "status", f"deployment/{CONTROLLER}", "--timeout=120s", timeout=150)
        looks = (("get", "pods", "-o", "wide"), ("get", "events"), ("logs", f"deployment/{CONTROLLER}", "--tail=20"))
        told = "" if done.code == 0 else "\n".join(self.kubectl.run(*look).out for look in looks)
        assert done.code == 0, done.out + done.err + told


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Release]:
    release = Release(cluster)
    said = release.helm("install", "sandpool")
    assert f"the controller runs in {NAMESPACE}" in said
    try:
        release.rolled_out()
        yield release
    finally:
        release.helm("uninstall", "sandpool")
        gone(release)


def gone(release: Release) -> None:
    """The other tests bring controllers of their own."""
    deadline = time.monotonic() + 90
    while json.loads(release.kubectl("get", "pods", "-o", "json"))["items"]:
        assert time.monotonic() < deadline, "pods of the release are left"
        time.sleep(0.5)
    roles = release.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    assert CONTROLLER not in roles


async def serves(user: User, release: Release, name: str) -> None:
    await user.claim(name)
    box = (await user.served(name))[name]
    inside = Kubectl(release.kubectl.kubeconfig, release.home, user.namespace)
    assert inside("exec", box, "--", "cat", "/release").strip() == BOXES[0]


async def test_a_claim_becomes_ready_and_an_upgrade_leaves_it_alone(cluster: Cluster, release: Release) -> None:
    async with a_user(cluster, "charted") as user:  # type: ignore[arg-type]
        container = {"name": "main", "image": BOXES[0]}
        await user.create(TEMPLATES, "python", podTemplate={"spec": {"containers": [container]}})
        await user.pool(2)
        await user.filled(2)
        await serves(user, release, "before")
        lease = await user.api.get(LEASES, LEASE, NAMESPACE)
        assert (lease.spec.holder_identity or "").startswith(CONTROLLER)
        (policy,) = await user.all(raw(NETWORK_POLICIES))
        (router,) = policy.body["spec"]["ingress"][0]["from"]
        assert router["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": NAMESPACE}
        before = await user.served("before")
        release.values["extraArgs"] = ["--verbose"]
        release.helm("upgrade", "sandpool")
        release.rolled_out()
        await serves(user, release, "after")
        assert await user.served("before") == before
        await user.filled(2)
