"""What is wrong with a cluster is told by `sandpool controller` at once, by name and with the next step: no traceback, no loop."""

from __future__ import annotations

import asyncio
import copy
import json
import ssl
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandpool.install.rules import access
from sandpool.install.settings import CONTROLLER, Settings
from sandpool.model.crds import crds
from sandpool.model.kinds import SANDBOXES
from support.kube import server as kube_server
from support.kube.access import NAMESPACE, Identity, install, signed_token, write_kubeconfig
from support.kube.certificates import Authority
from support.kube.process import Controller
from support.kube.server import CRDS, KubeServer, apply_crds
from support.network.scripted_peer import scripted_peer
from support.product.guide import REPLACE, command, shell

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A cluster on which nothing of ours is installed."""
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with kube_server.running(controllers=False, crds=tmp_path_factory.mktemp("none")) as server:
        yield server


@pytest.fixture(scope="module")
def identity(server: KubeServer) -> Identity:
    return install(server)


def last_words(folder: Path, kubeconfig: Path, *flags: str) -> str:
    """What it says before it ends with 1: one sentence after its log lines, and no traceback."""
    (folder / "log").unlink(missing_ok=True)
    process = Controller(folder / "log", kubeconfig, *flags)
    assert process.wait(60) == 1, process.tail()
    text = process.log.read_text()
    assert "traceback" not in text.lower(), text
    (words,) = [line for line in text.splitlines() if not line.startswith("{")]
    assert words.startswith("sandpool: ")
    return words


def test_a_missing_definition(server: KubeServer, identity: Identity, tmp_path: Path) -> None:
    words = last_words(tmp_path, identity.kubeconfig)
    for crd in crds():
        assert f"the CustomResourceDefinition {crd['metadata']['name']} is missing" in words
    assert "`sandpool crds | kubectl apply" in words


def old(crd: dict[str, Any], *, both: bool) -> dict[str, Any]:
    """As an earlier release had it: version v1alpha1 alone, or beside ours."""
    crd = copy.deepcopy(crd)
    new = crd["spec"]["versions"][0]
    alpha = {**copy.deepcopy(new), "name": "v1alpha1", "storage": not both}
    crd["spec"]["versions"] = [alpha, new] if both else [alpha]
    return crd


def test_an_old_definition_and_the_way_out(server: KubeServer, identity: Identity, tmp_path: Path) -> None:
    """The commands are those of the guide; an object of the old version is there afterwards."""
    (crd,) = [each for each in crds() if each["spec"]["names"]["plural"] == SANDBOXES.plural]
    name = crd["metadata"]["name"]
    server.request("POST", DEFINITIONS, old(crd, both=False))
    try:
        stored_as_of_old(server)
        words = last_words(tmp_path, identity.kubeconfig)
        assert f"the CustomResourceDefinition {name} serves v1alpha1, not v1beta1" in words
        server.request("PATCH", f"{DEFINITIONS}/{name}", {"spec": old(crd, both=True)["spec"]}, MERGE)
        words = last_words(tmp_path, identity.kubeconfig)
        assert f"the CustomResourceDefinition {name} has v1alpha1 among its status.storedVersions" in words
        assert "docs/how-to/replace-another-controller.md" in words
        with pytest.raises(urllib.error.HTTPError):  # what the guide says about being too early
            server.request("PATCH", f"{DEFINITIONS}/{name}", {"spec": crd["spec"]}, MERGE)
        for beginning in ("kubectl annotate $kind", "kubectl patch crd $kind"):
            shell(command(REPLACE, beginning), server, tmp_path, kind=name)
        assert name not in last_words(tmp_path, identity.kubeconfig)
        server.request("PATCH", f"{DEFINITIONS}/{name}", {"spec": crd["spec"]}, MERGE)
        assert server.request("GET", f"{SANDBOXES.path('default')}/old")["metadata"]["name"] == "old"
    finally:
        server.request("DELETE", f"{DEFINITIONS}/{name}")
        kube_server.wait_for(server, name, lambda: name not in json.dumps(server.request("GET", DEFINITIONS)))


def stored_as_of_old(server: KubeServer) -> None:
    path = SANDBOXES.path("default").replace(SANDBOXES.version, "v1alpha1")
    spec = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "python"}]}}}
    body = {
        "apiVersion": f"{SANDBOXES.group}/v1alpha1",
        "kind": SANDBOXES.kind,
        "metadata": {"name": "old"},
        "spec": spec,
    }
    kube_server.wait_for(server, "v1alpha1", lambda: server.request("POST", path, body))


def test_a_missing_permission(server: KubeServer, identity: Identity, tmp_path: Path) -> None:
    apply_crds(server, CRDS)
    (role,) = [
        body for body in access(Settings()) if body["kind"] == "ClusterRole" and body["metadata"]["name"] == CONTROLLER
    ]
    less = copy.deepcopy(role["rules"])
    for rule in less:
        if rule["resources"] == ["pods"]:
            rule["verbs"].remove("delete")
    server.request("PATCH", f"{ROLES}/{CONTROLLER}", {"rules": less}, MERGE)
    words = last_words(tmp_path, identity.kubeconfig)
    assert "this identity may not delete pods; `sandpool install --dry-run` prints the roles" in words
    server.request("PATCH", f"{ROLES}/{CONTROLLER}", {"rules": []}, MERGE)
    words = last_words(tmp_path, identity.kubeconfig)
    assert "get/list/watch/create/patch/delete sandboxes.agents.x-k8s.io, " in words
    assert "patch leases" not in words  # that is another role
    server.request("PATCH", f"{ROLES}/{CONTROLLER}", {"rules": role["rules"]}, MERGE)


def test_a_namespace_for_the_lease_that_is_not_there(server: KubeServer, tmp_path: Path) -> None:
    words = last_words(tmp_path, server.kubeconfig, "--leader-election-namespace=nowhere")
    assert "the namespace nowhere does not exist" in words
    assert "kubectl create namespace nowhere" in words


def test_a_token_that_has_expired(server: KubeServer, identity: Identity, tmp_path: Path) -> None:
    identity.show(signed_token(server, NAMESPACE, -3600))
    words = last_words(tmp_path, identity.kubeconfig)
    assert f"{server.url} does not accept who we are" in words
    assert "the token expired at " in words
    assert f"renew it in {identity.kubeconfig}" in words
    identity.show(signed_token(server, NAMESPACE, 3600))


def test_a_client_certificate_that_has_expired(server: KubeServer, tmp_path: Path) -> None:
    stem = server.folder / "ended"
    user = {"client-certificate": f"{stem}.crt", "client-key": f"{stem}.key"}
    write_kubeconfig(server, tmp_path / "kubeconfig", user, "default")
    words = last_words(tmp_path, tmp_path / "kubeconfig")
    assert "the client certificate expired at " in words


async def test_a_server_certificate_that_has_expired(server: KubeServer, tmp_path: Path) -> None:
    authority = Authority("late")
    authority.write_ca(tmp_path / "ca")
    authority.write_server(tmp_path / "server", names=[], addresses=["127.0.0.1"], ended=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    async with scripted_peer(tls=tls) as peer:
        text = (
            server.kubeconfig.read_text()
            .replace(server.url, peer.url)
            .replace(str(server.ca), str(tmp_path / "ca.crt"))
        )
        (tmp_path / "kubeconfig").write_text(text)
        words = await asyncio.to_thread(last_words, tmp_path, tmp_path / "kubeconfig")
    assert "certificate has expired" in words


def test_a_server_that_is_not_there(server: KubeServer, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(server.kubeconfig.read_text().replace(server.url, "https://127.0.0.1:1"))
    words = last_words(tmp_path, tmp_path / "kubeconfig")
    assert "cannot connect to 127.0.0.1:1" in words
    assert str(tmp_path / "kubeconfig") in words
