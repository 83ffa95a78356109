"""The roles on a real server: what the controller's account may do, what it may not, and why it may change finalizers."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from sandpool.install.rules import LEASE
from support.kube.helm import documents
from support.kube.kubectl import Kubectl
from support.kube.kubectl_anywhere import Anywhere
from support.kube.server import KubeServer
from support.product.cluster import sandpool

pytestmark = pytest.mark.kube
SANDBOXES = "sandboxes.agents.x-k8s.io"


def installed(kubectl: Kubectl, namespace: str, *arguments: str) -> str:
    """Applies what `sandpool install` prints; answers the account's name, for `--as`."""
    text = sandpool("install", "--dry-run", "--image", "x", "-n", namespace, *arguments).stdout
    # The definitions are there already, and the Deployment has nobody to run it.
    wanted = [body for body in documents(text) if body["kind"] not in ("CustomResourceDefinition", "Deployment")]
    kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(wanted))
    return f"system:serviceaccount:{namespace}:sandpool-controller"


def may(server: KubeServer, account: str, asked: str) -> bool:
    """`asked`: verb, resource[/subresource][.group], namespace, and a name if it is about one object."""
    verb, resource, namespace, *name = asked.split()
    resource, _, group = resource.partition(".")
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "resource": resource, "subresource": subresource, "group": group}
    spec = {"user": account, "resourceAttributes": {**attributes, "namespace": namespace, "name": "".join(name)}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@pytest.fixture(scope="module")
def accounts(server: KubeServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of an installation for the whole cluster, and of one for the namespace red. The server is one that checks owners."""
    server.commands["kube-apiserver"].append("--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
    server.restart("kube-apiserver")
    kubectl = Anywhere(server.kubeconfig, tmp_path_factory.mktemp("home"))
    for name in ("red", "blue"):
        kubectl("create", "namespace", name)
    return {
        "wide": installed(kubectl, "wide"),
        "narrow": installed(kubectl, "narrow", "--watch-namespaces", "red"),
    }


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (f"create {SANDBOXES} red", True),
        ("patch sandboxclaims/status.extensions.agents.x-k8s.io red", True),
        ("delete pods blue", True),
        ("watch nodes red", True),
        (f"patch leases.coordination.k8s.io wide {LEASE}", True),
        ("patch leases.coordination.k8s.io wide another", False),
        (f"patch leases.coordination.k8s.io red {LEASE}", False),
        ("create leases.coordination.k8s.io red", False),
        ("delete persistentvolumeclaims red", False),
        ("get secrets red", False),
        ("create pods/exec red", False),
        ("update pods red", False),
        ("create sandboxclaims.extensions.agents.x-k8s.io red", False),
        ("delete nodes red", False),
    ],
)
def test_everywhere(asked: str, allowed: bool, server: KubeServer, accounts: dict[str, str]) -> None:
    assert may(server, accounts["wide"], asked) is allowed


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (f"create {SANDBOXES} red", True),
        (f"list {SANDBOXES} blue", False),
        ("list pods blue", False),
        ("create pods narrow", False),
        ("list nodes red", True),
        ("create leases.coordination.k8s.io narrow", True),
    ],
)
def test_in_one_namespace(asked: str, allowed: bool, server: KubeServer, accounts: dict[str, str]) -> None:
    assert may(server, accounts["narrow"], asked) is allowed


def pod_of(owner: dict[str, Any]) -> str:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {"generateName": "of-", "namespace": "red", "ownerReferences": [reference]}
    containers = [{"name": "main", "image": "x"}]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}})


def test_finalizers_are_for_clusters_that_check_owners(
    server: KubeServer, kubectl: Kubectl, accounts: dict[str, str]
) -> None:
    """No request names that subresource: an admission plugin asks for the right, so no audit log shows that it is used."""
    spec = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}
    body = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": "box"}, "spec": spec}
    owner = server.request("POST", "/apis/agents.x-k8s.io/v1beta1/namespaces/red/sandboxes", body)
    creates = ("create", "-f", "-", f"--as={accounts['wide']}")
    kubectl(*creates, stdin=pod_of(owner))
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/sandpool-controller"
    rules = [rule for rule in server.request("GET", role)["rules"] if rule["resources"] != ["sandboxes/finalizers"]]
    server.request("PATCH", role, {"rules": rules}, "application/merge-patch+json")
    refused = kubectl.run(*creates, stdin=pod_of(owner))
    assert refused.code != 0
    assert "cannot set blockOwnerDeletion" in refused.err
