"""What is done about a template and its policy, view by view."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.bodies import template as template_body
from sandpool.controllers.template.plan import (
    CreatePolicy,
    DeletePolicy,
    PatchPolicy,
    PatchTemplate,
    Plan,
    TemplateView,
    plan_template,
)
from sandpool.controllers.template.policy import Options, policy_body, policy_name
from sandpool.kube.api import Preconditions
from sandpool.model import labels
from sandpool.model.codec import convert
from sandpool.model.core import NetworkPolicy
from sandpool.model.kinds import NETWORK_POLICIES, TEMPLATES
from sandpool.model.metadata import Revision, Uid
from sandpool.model.names import name_hash
from sandpool.model.patches import apply_json_patch
from sandpool.model.template import SandboxTemplate

OPTIONS = Options()
LABEL = {labels.TEMPLATE_REF_HASH: name_hash("t")}
IDENTITY = {"namespace": "a", "uid": "policy-uid", "resourceVersion": "7"}
OWNER = {
    "apiVersion": "extensions.agents.x-k8s.io/v1alpha1",
    "kind": "SandboxTemplate",
    "name": "t",
    "uid": "template-uid",
    "controller": True,
}


def a_template(*, labelled: bool = True, leaving: bool = False, **spec: Any) -> SandboxTemplate:
    body = template_body("t", **spec)
    body["metadata"] |= {"namespace": "a", "uid": "template-uid", "labels": LABEL if labelled else {}}
    if leaving:
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return convert(TEMPLATES, body)


def made(template: SandboxTemplate, **meta: Any) -> dict[str, Any]:
    """The policy of a template as a server would show it."""
    body = policy_body(template, OPTIONS)
    return {**body, "metadata": {**body["metadata"], **IDENTITY, **meta}}


def a_policy(body: dict[str, Any]) -> NetworkPolicy:
    return convert(NETWORK_POLICIES, body)


def plan(template: SandboxTemplate | None, policy: dict[str, Any] | None = None, *, protected: bool = False) -> Plan:
    return plan_template(TemplateView("t", template, a_policy(policy) if policy else None, protected), OPTIONS)


FOREIGN = made(a_template(), labels={}, annotations={})
DELETE = DeletePolicy("t-network-policy", Preconditions(Uid("policy-uid"), Revision(7)))


def patched(step: object, body: dict[str, Any]) -> NetworkPolicy:
    assert isinstance(step, PatchPolicy)
    assert {"op": "test", "path": "/metadata/uid", "value": "policy-uid"} in step.patch.body
    return a_policy(apply_json_patch(body, step.patch.body))


def test_nothing_to_do() -> None:
    assert plan(a_template(), made(a_template())) == Plan()


def test_the_label_of_the_template() -> None:
    for wrong in (a_template(labelled=False), a_template(labelled=False)):
        (step,) = plan(wrong, made(wrong)).steps
        assert isinstance(step, PatchTemplate)
        assert step.patch.body == {"metadata": {"uid": "template-uid", "labels": LABEL}}
    assert len(name_hash("t")) == 8
    assert name_hash("t") == name_hash("t") != name_hash("u")


def test_the_policy_is_made_before_anything_else_and_has_no_owner() -> None:
    steps = plan(a_template(labelled=False)).steps
    assert [type(step) for step in steps] == [CreatePolicy, PatchTemplate]
    assert isinstance(steps[0], CreatePolicy)
    assert "ownerReferences" not in steps[0].body["metadata"]
    assert steps[0].body["metadata"]["name"] == "t-network-policy"


def test_decisions_read_as_sentences() -> None:
    """They are what `sandpool why` shows."""
    steps = plan(a_template(labelled=False)).steps
    assert [str(step) for step in steps] == [
        "create networkpolicy t-network-policy",
        "put the hash of its name on the template",
    ]
    (repair,) = plan(a_template(networkPolicy={"egress": [{}]}), made(a_template())).steps
    assert str(repair) == "patch networkpolicy t-network-policy: make it what the template says"
    assert str(DELETE) == "delete networkpolicy t-network-policy: nobody needs it any more"


def test_unmanaged() -> None:
    unmanaged = a_template(networkPolicyManagement="Unmanaged")
    assert plan(unmanaged) == Plan()
    assert plan(unmanaged, made(a_template())) == Plan((DELETE,))
    assert plan(unmanaged, made(a_template(), ownerReferences=[OWNER])) == Plan((DELETE,))
    assert plan(unmanaged, FOREIGN) == Plan(), "not ours to delete, and nothing to complain about"


def test_management_left_empty_means_managed() -> None:
    assert isinstance(plan(a_template(networkPolicyManagement="")).steps[0], CreatePolicy)


def test_an_edit_reaches_the_policy() -> None:
    edited = a_template(networkPolicy={"egress": [{}]})
    body = made(a_template())
    (step,) = plan(edited, body).steps
    assert patched(step, body) == a_policy(made(edited))


@pytest.mark.parametrize(
    "drift",
    [
        {"podSelector": {}},
        {"podSelector": {"matchLabels": {**LABEL, "app": "x"}}},
        {"policyTypes": ["Ingress"]},
        {"egress": [{}]},
    ],
)
def test_drift_is_repaired(drift: dict[str, Any]) -> None:
    body = made(a_template())
    drifted = {**body, "spec": {**body["spec"], **drift}}
    (step,) = plan(a_template(), drifted).steps
    assert patched(step, drifted) == a_policy(body)


def test_a_repair_of_a_policy_that_changed_meanwhile_is_refused_by_its_revision() -> None:
    body = made(a_template(), annotations={labels.TEMPLATE_REF: "t", "note": "kept"})
    (step,) = plan(a_template(networkPolicy={}), body).steps
    assert isinstance(step, PatchPolicy)
    assert {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"} in step.patch.body
    assert patched(step, body).metadata.annotations["note"] == "kept"


@pytest.mark.parametrize(
    "meta",
    [
        {"labels": {}, "annotations": {}},
        {"labels": {}},
        {"annotations": {labels.TEMPLATE_REF: "another"}},
        {"ownerReferences": [{**OWNER, "name": "another"}]},
        {"ownerReferences": [{**OWNER, "kind": "Deployment"}]},
        {"ownerReferences": [{**OWNER, "apiVersion": "example.com/v1"}]},
    ],
)
def test_a_foreign_policy_is_never_touched_and_told(meta: dict[str, Any]) -> None:
    body = {**made(a_template(), **meta), "spec": {"podSelector": {}}}
    done = plan(a_template(), body)
    assert done.steps == ()
    assert "t-network-policy" in done.conflict
    assert "Unmanaged" in done.conflict
    assert plan(None, body) == Plan()


def test_a_rival_of_the_same_hash_keeps_a_policy_from_being_made_and_nothing_else() -> None:
    view = TemplateView("t", a_template(labelled=False), rival="another")
    done = plan_template(view, OPTIONS)
    assert [type(step) for step in done.steps] == [PatchTemplate]
    assert "t and another have the same hash" in done.conflict
    body = made(a_template())
    assert plan_template(TemplateView("t", a_template(), a_policy(body), rival="another"), OPTIONS) == Plan()
    unmanaged = TemplateView("t", a_template(networkPolicyManagement="Unmanaged"), rival="another")
    assert plan_template(unmanaged, OPTIONS) == Plan()


def test_a_policy_that_the_template_owns_is_freed() -> None:
    body = made(a_template(), ownerReferences=[{**OWNER, "controller": None, "uid": "x"}, OWNER], annotations={})
    (step,) = plan(a_template(), body).steps
    freed = patched(step, body)
    assert [owner.uid for owner in freed.metadata.owner_references] == ["x"]
    assert freed.spec == a_policy(body).spec
    assert plan_template(TemplateView("t", a_template(), freed), OPTIONS) == Plan(), "once"
    for late in (plan(a_template(leaving=True), body), plan(None, body, protected=True)):
        (step,) = late.steps
        assert patched(step, body).metadata.controller is None, "before the template takes it along"


def test_the_policy_outlives_its_template_as_long_as_it_protects_something() -> None:
    body = made(a_template())
    assert plan(a_template(leaving=True), body) == Plan()
    assert plan(None, body, protected=True) == Plan()
    assert plan(None, body) == Plan((DELETE,))
    assert plan(None) == Plan()


def test_a_template_made_anew_takes_the_policy_over() -> None:
    body = made(a_template())
    assert plan(a_template(), body, protected=True) == Plan()


def test_a_policy_on_its_way_out_is_waited_for() -> None:
    leaving = made(a_template(), deletionTimestamp="2026-01-01T00:00:00Z")
    assert plan(a_template(), leaving) == Plan()
    assert plan(None, leaving) == Plan()


def test_names_that_are_too_long() -> None:
    one, other = "x" * 253, "x" * 252 + "y"
    assert len(policy_name(one)) <= 253
    assert policy_name(one) != policy_name(other)
