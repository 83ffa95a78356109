from __future__ import annotations

from typing import Any

import pytest

from sandpool.install.preflight import defects, in_words, needed
from sandpool.install.rules import LEASE
from sandpool.model.crds import crds


def definition(stored: list[str], **served: bool) -> dict[str, Any]:
    versions = [{"name": name, "served": is_served} for name, is_served in served.items()]
    return {
        "metadata": {"name": "sandboxes.agents.x-k8s.io"},
        "spec": {"versions": versions},
        "status": {"storedVersions": stored},
    }


def test_a_good_definition_has_no_defects() -> None:
    assert list(defects(definition(["v1beta1"], v1beta1=True), "v1beta1")) == []
    assert list(defects(definition(["v1beta1"], v1alpha1=True, v1beta1=True), "v1beta1")) == []
    for crd in crds():
        assert list(defects(crd, "v1beta1")) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (definition(["v1alpha1"], v1alpha1=True), "serves v1alpha1, not v1beta1; apply ours: `sandpool crds"),
        (definition(["v1beta1"], v1beta1=False), "serves nothing, not v1beta1"),
        (
            definition(["v1alpha1", "v1beta1"], v1alpha1=True, v1beta1=True),
            "has v1alpha1 among its status.storedVersions",
        ),
    ],
)
def test_an_old_definition_is_named_with_the_next_step(found: dict[str, Any], said: str) -> None:
    (problem,) = defects(found, "v1beta1")
    assert problem.startswith("the CustomResourceDefinition sandboxes.agents.x-k8s.io")
    assert said in problem


def test_permissions_are_asked_for_where_they_are_needed() -> None:
    everywhere = {in_words([each]) for each in needed((), "home", extensions=True)}
    assert {"create pods", "patch sandboxclaims.extensions.agents.x-k8s.io/status", "list nodes"} <= everywhere
    assert "patch leases.coordination.k8s.io in namespace home" in everywhere
    two = {in_words([each]) for each in needed(("a", "b"), "", extensions=True)}
    assert {"create pods in namespace a", "create pods in namespace b", "watch nodes"} <= two
    assert not [each for each in two if "leases" in each or each == "create pods"]
    alone = {in_words([each]) for each in needed((), "", extensions=False)}
    assert "create pods" in alone
    assert not [each for each in alone if "extensions" in each or "nodes" in each or "networkpolicies" in each]


def test_verbs_of_one_resource_are_told_together() -> None:
    asked = [each for each in needed(("a",), "", extensions=False) if each.rule.resource in ("pods", "events")]
    assert in_words(asked) == (
        "get/list/watch/create/patch/delete pods in namespace a, create/patch events in namespace a"
    )


def test_a_question_holds_what_a_server_must_know() -> None:
    (asked,) = [each for each in needed((), "home", extensions=True) if each.rule.names and each.verb == "patch"]
    attributes = asked.body()["spec"]["resourceAttributes"]
    assert attributes == {
        "group": "coordination.k8s.io",
        "resource": "leases",
        "verb": "patch",
        "namespace": "home",
        "name": LEASE,
    }
    (status,) = [each for each in needed((), "", extensions=False) if each.rule.resource == "sandboxes/status"]
    attributes = status.body()["spec"]["resourceAttributes"]
    assert (attributes["resource"], attributes["subresource"]) == ("sandboxes", "status")
    assert "namespace" not in attributes
