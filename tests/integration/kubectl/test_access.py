"""Credentials bound to one namespace, seen through kubectl."""

from __future__ import annotations

from pathlib import Path

from support.api.manifests import CLAIM
from support.kube.kubectl import Kubectl
from support.product.cluster import Cluster, sandpool


def bound(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> Kubectl:
    config = tmp_path / "kubeconfig"
    config.write_text(sandpool("token", "--namespace", kubectl.namespace, "--duration", "1h", *cluster.flag).stdout)
    config.chmod(0o600)
    return Kubectl(config, kubectl.home, kubectl.namespace)


def test_it_may_everything_in_its_namespace_and_nothing_elsewhere(
    cluster: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    tenant = bound(cluster, kubectl, tmp_path)
    user = f"system:serviceaccount:{kubectl.namespace}:default"
    assert user in tenant("auth", "whoami")
    tenant("create", "-f", "-", stdin=CLAIM)
    assert "mine" in tenant("get", "sandboxclaims")
    assert tenant("auth", "can-i", "delete", "pods").strip() == "yes"
    foreign = tenant.run("get", "sandboxclaims", "--namespace=default")
    assert foreign.code == 1
    assert (
        f'sandboxclaims.extensions.agents.x-k8s.io is forbidden: User "{user}" cannot list resource "sandboxclaims" '
        'in API group "extensions.agents.x-k8s.io" in the namespace "default"'
    ) in foreign.err
    everywhere = tenant.run("get", "pods", "-A")
    assert f'User "{user}" cannot list resource "pods" in API group "" at the cluster scope' in everywhere.err
    assert tenant.run("auth", "can-i", "get", "pods", "--namespace=default").out.strip() == "no"
    assert tenant.run("create", "namespace", "more").code == 1
    assert tenant.run("get", "nodes").code == 1


def test_deleting_the_account_ends_its_tokens(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    tenant = bound(cluster, kubectl, tmp_path)
    tenant("get", "pods")
    kubectl("delete", "serviceaccount", "default")
    refused = tenant.run("get", "pods")
    assert refused.code == 1
    assert "Unauthorized" in refused.err or "must be logged in" in refused.err


def test_a_wrong_token_is_unauthorized(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    text = kubectl.kubeconfig.read_text()
    token = next(line for line in text.splitlines() if "token:" in line)
    config.write_text(text.replace(token, token[:-4] + "AAAA"))
    config.chmod(0o600)
    refused = Kubectl(config, tmp_path).run("get", "pods")
    assert refused.code == 1
    assert "Unauthorized" in refused.err or "must be logged in" in refused.err
