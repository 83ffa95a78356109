"""No sandbox is made before its template's NetworkPolicy stands."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.bodies import template as template_body
from sandpool.controllers.protection import missing_policy
from sandpool.controllers.template.policy import Options, policy_body
from sandpool.loop.cache import Cache
from sandpool.model.codec import convert
from sandpool.model.core import NetworkPolicy
from sandpool.model.kinds import NETWORK_POLICIES, TEMPLATES
from sandpool.model.metadata import Key, Revision, Uid
from sandpool.model.template import SandboxTemplate

NAME = "t-network-policy"
OWNER = {
    "apiVersion": "extensions.agents.x-k8s.io/v1alpha1", "kind": "SandboxTemplate", "name": "t", "uid": "u",
    "controller": True,
}  # fmt: skip


def a_template(**spec: Any) -> SandboxTemplate:
    body = template_body("t", **spec)
    body["metadata"] |= {"namespace": "a", "uid": "template-uid"}
    return convert(TEMPLATES, body)


def a_policy(namespace: str = "a", **meta: Any) -> NetworkPolicy:
    body = policy_body(a_template(), Options())
    identity = {"namespace": namespace, "uid": "policy-uid", "resourceVersion": "7"}
    return convert(NETWORK_POLICIES, {**body, "metadata": {**body["metadata"], **identity, **meta}})


def policies(*present: NetworkPolicy) -> Cache[NetworkPolicy]:
    cache: Cache[NetworkPolicy] = Cache(NETWORK_POLICIES)
    cache.replace(present, Revision(10))
    return cache


def test_nothing_is_missing_where_the_policy_stands() -> None:
    assert missing_policy(a_template(), policies(a_policy())) is None


def test_one_that_another_implementation_made_counts() -> None:
    owned = a_policy(labels={}, annotations={}, ownerReferences=[OWNER])
    assert missing_policy(a_template(), policies(owned)) is None


def test_nothing_is_missing_where_none_is_wanted() -> None:
    assert missing_policy(a_template(networkPolicyManagement="Unmanaged"), policies()) is None


@pytest.mark.parametrize(
    "present",
    [(), (a_policy("another"),), (a_policy(deletionTimestamp="2026-01-01T00:00:00Z"),)],
    ids=["none", "in another namespace", "going"],
)
def test_a_policy_that_is_not_there_is_waited_for(present: tuple[NetworkPolicy, ...]) -> None:
    said = missing_policy(a_template(), policies(*present))
    assert said is not None
    assert f"NetworkPolicy {NAME} of template t does not exist yet" in said


def test_one_that_we_are_about_to_delete_protects_nobody() -> None:
    cache = policies(a_policy())
    assert cache.mark_deleting(Key("a", NAME), Uid("policy-uid"))
    assert missing_policy(a_template(), cache) is not None
    cache.unmark_deleting(Uid("policy-uid"))
    assert missing_policy(a_template(), cache) is None


@pytest.mark.parametrize(
    "meta",
    [
        {"labels": {}, "annotations": {}},
        {"labels": {}},
        {"ownerReferences": [{**OWNER, "name": "another"}]},
        {"ownerReferences": [{**OWNER, "apiVersion": "example.com/v1"}]},
    ],
)
def test_a_foreign_policy_of_that_name_protects_nobody_and_the_way_out_is_told(meta: dict[str, Any]) -> None:
    said = missing_policy(a_template(), policies(a_policy(**meta)))
    assert said is not None
    assert "does not belong to template t" in said
    assert "Unmanaged" in said
