"""`sandpool install`: what it applies or prints, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from sandpool.cli.exits import FAILED, USAGE
from sandpool.cli.install import path_of
from sandpool.cli.main import run
from sandpool.install.objects import objects
from sandpool.install.rules import CLUSTER
from sandpool.install.settings import Settings
from sandpool.model.crds import crds
from support.kube.helm import by_identity, documents
from support.kube.server import KubeServer
from support.network.scripted_peer import answer, forever, scripted_peer
from support.product.cluster import running_cluster, sandpool


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[tuple[str, str, str], dict[str, object]]:
    assert run(["install", "--dry-run", *arguments]) == 0
    return by_identity(documents(capsys.readouterr().out))


def test_every_namespaced_object_says_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "--namespace", "here", "--image", "example.org/x:1")
    cluster_wide = {"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
    assert {namespace for kind, namespace, _ in found if kind not in cluster_wide} == {"here"}
    assert {namespace for kind, namespace, _ in found if kind in cluster_wide} == {""}
    assert [body for (kind, *_), body in found.items() if kind == "CustomResourceDefinition"] == crds()


def test_the_image_is_the_given_one(capsys: pytest.CaptureFixture[str]) -> None:
    text = str(printed(capsys, "--image", "example.org/x@sha256:" + "1" * 64))
    assert text.count("'image': 'example.org/x@sha256:") == 2
    assert capsys.readouterr().err == ""


def test_without_an_image_it_says_that_none_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "--dry-run"]) == 0
    assert "--image" in capsys.readouterr().err


def test_in_some_namespaces_only_kinds_without_one_are_granted_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "-n", "here", "--watch-namespaces", "red, blue", "--image", "x")
    everywhere = found["ClusterRole", "", "sandpool-controller-here"]
    assert everywhere["rules"] == [rule.body() for rule in CLUSTER]
    for namespace in ("red", "blue"):
        binding = found["RoleBinding", namespace, "sandpool-controller"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "sandpool-controller", "namespace": "here"}]
    assert "--watch-namespaces=red,blue" in str(found["Deployment", "here", "sandpool-controller"])


def test_a_second_installation_leaves_the_first_alone(capsys: pytest.CaptureFixture[str]) -> None:
    shared = {"CustomResourceDefinition"}
    one, other = (
        {
            key
            for key in printed(capsys, "-n", name, "--watch-namespaces", f"{name}-work", "--image", "x")
            if key[0] not in shared
        }
        for name in ("one", "other")
    )
    assert one & other == set()


def test_without_an_image_it_installs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["install"]) == USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "name it with --image" in err
    assert "sandpool install --dry-run" in err


async def test_it_sends_every_object_in_order(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async with scripted_peer(forever(answer({}))) as peer:
        code = await asyncio.to_thread(installed, peer.url, tmp_path)
    assert code == 0
    out, err = capsys.readouterr()
    wanted = objects(Settings(namespace="here", image="x"))
    assert [one.json for one in peer.seen] == wanted
    assert {(one.method, one.headers["Content-Type"], one.query["fieldManager"]) for one in peer.seen} == {
        ("PATCH", "application/apply-patch+yaml", "kubectl")
    }
    assert out.splitlines() == [f"{one['kind'].lower()}/{one['metadata']['name']} applied" for one in wanted]
    paths = [one.path for one in peer.seen]
    assert paths[0] == "/api/v1/namespaces/here"
    assert "/apis/networking.k8s.io/v1/namespaces/here/networkpolicies/sandpool-controller" in paths
    assert "/apis/rbac.authorization.k8s.io/v1/clusterroles/sandpool-controller" in paths
    assert "rollout status" in err


async def test_an_object_that_is_refused_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refusal = {"kind": "Status", "reason": "Forbidden", "message": "you may not", "code": 403}
    async with scripted_peer(answer({}), answer(refusal, 403)) as peer:
        code = await asyncio.to_thread(installed, peer.url, tmp_path)
    assert code == FAILED
    out, err = capsys.readouterr()
    assert out == "namespace/here applied\n"
    assert "customresourcedefinition/" in err
    assert "you may not" in err
    assert len(peer.seen) == 2


def installed(server: str, folder: Path) -> int:
    """With a kubeconfig for this server."""
    named = {"name": "x", "cluster": {"server": server}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    body = {"current-context": "x", "clusters": [named], "contexts": [context], "users": [{"name": "x", "user": {}}]}
    (folder / "kubeconfig").write_text(json.dumps(body))
    return run(["install", "--image", "x", "-n", "here", "--kubeconfig", str(folder / "kubeconfig")])


def test_never_on_the_cluster_of_this_machine(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data") as cluster:
        kubeconfig = ("--kubeconfig", str(cluster.data_dir / "kubeconfig"))
        done = sandpool(
            "install",
            "--image",
            "x",
            *kubeconfig,
            check=False,
            env={**os.environ, "SANDPOOL_DATA_DIR": str(cluster.data_dir)},
        )
    assert done.returncode == USAGE
    assert "runs its controllers itself" in done.stderr


@pytest.mark.kube
def test_a_real_server_has_it_afterwards(server: KubeServer, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--kubeconfig", str(server.kubeconfig), "-n", "acted"]
    for image in ("x:1", "x:2", "x:2"):
        assert run(["install", "--image", image, *where]) == 0, capsys.readouterr().err
    path = "/apis/apps/v1/namespaces/acted/deployments/sandpool-controller"
    (container,) = server.request("GET", path)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "x:2"
    for body in objects(Settings(namespace="acted", image="x:2")):
        assert server.request("GET", path_of(body))["metadata"]["name"] == body["metadata"]["name"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--namespace", "Not A Name"], "--namespace: 'Not A Name'"),
        (["--watch-namespaces", "red,a.b"], "--watch-namespaces: 'a.b'"),
        (["--watch-namespaces", "red,red"], "'red' twice"),
        (["--image", ""], "--image ''"),
        (["--image", "two words"], "--image 'two words'"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "--dry-run", *arguments]) == USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_the_router_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with_it, without = printed(capsys, "--image", "x"), printed(capsys, "--image", "x", "--no-router")
    kinds = sorted(kind for kind, *_ in with_it.keys() - without.keys())
    access = ["ClusterRole", "ClusterRole", "ClusterRoleBinding"]
    assert kinds == [*access, "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount"]
    assert ("Service", "agent-sandbox-system", "sandbox-router-svc") in with_it
