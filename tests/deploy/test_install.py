"""`sandpool install`: what it prints, and what it says when it cannot."""

from __future__ import annotations

import pytest

from sandpool.assembly.installation.rules import CLUSTER
from sandpool.cli.exits import USAGE
from sandpool.cli.main import run
from sandpool.model.crds import crds
from support.helm import by_identity, documents


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


def test_without_dry_run_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["install"]) == USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "sandpool install --dry-run | kubectl apply --server-side -f -" in err


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
