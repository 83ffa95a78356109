from __future__ import annotations

from typing import Any

import pytest

from conformance.bodies import metadata, pod_spec, pool, sandbox, template
from sandpool.controllers.assigner.facts import Member, Pool, member_of, pool_of, stale
from sandpool.model import labels
from sandpool.model.blueprint import blueprint_hash, secure_pod_spec
from sandpool.model.codec import convert
from sandpool.model.kinds import POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key, Uid
from sandpool.model.names import name_hash
from sandpool.model.pool import UpdateStrategyType
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate

OWNER = {
    "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
    "kind": "SandboxWarmPool",
    "name": "p",
    "uid": "pool-uid",
    "controller": True,
}
READY = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "", "lastTransitionTime": None}
MARKS = {labels.WARM_POOL: name_hash("p"), labels.TEMPLATE_REF_HASH: name_hash("t")}


def a_sandbox(owner: dict[str, Any] | None = None, *, spec: Any = None, **meta: Any) -> Sandbox:
    head = {"namespace": "a", "uid": "u", "labels": MARKS, "ownerReferences": [{**OWNER, **(owner or {})}], **meta}
    status = {"conditions": [READY], "podIPs": ["10.0.0.1"], "nodeName": "n"}
    return convert(SANDBOXES, sandbox(spec=spec, metadata=metadata("warm", **head), status=status))


def test_a_member() -> None:
    expected = Member(Uid("u"), Key("a", "warm"), Uid("pool-uid"), "n", ready=True)
    assert member_of(a_sandbox(), stale=False) == expected


def test_references_of_an_old_version_count() -> None:
    assert member_of(a_sandbox({"apiVersion": "extensions.agents.x-k8s.io/v1alpha1"}), stale=False) is not None


@pytest.mark.parametrize(
    "other",
    [
        {"apiVersion": "example.com/v1"},
        {"kind": "SandboxClaim"},
        {"controller": None},
    ],
)
def test_perfect_labels_without_a_pool_that_controls_it_are_not_enough(other: dict[str, Any]) -> None:
    assert member_of(a_sandbox(other), stale=False) is None


@pytest.mark.parametrize("missing", list(MARKS))
def test_labels_are_needed_too(missing: str) -> None:
    marks = {key: value for key, value in MARKS.items() if key != missing}
    assert member_of(a_sandbox(labels=marks), stale=False) is None


def test_ready_needs_an_address() -> None:
    body = sandbox(metadata=metadata(ownerReferences=[OWNER], labels=MARKS), status={"conditions": [READY]})
    found = member_of(convert(SANDBOXES, body), stale=False)
    assert found is not None
    assert not found.ready


def test_leaving_is_what_the_object_or_the_cache_says() -> None:
    for found in (
        member_of(a_sandbox(deletionTimestamp="2026-01-01T00:00:00Z"), stale=False),
        member_of(a_sandbox(), stale=False, leaving=True),
    ):
        assert found is not None
        assert found.leaving


def test_a_pool() -> None:
    body = pool("p", updateStrategy={"type": "Recreate"})
    body["metadata"] |= {"namespace": "a", "uid": "pool-uid"}
    expected = Pool(Uid("pool-uid"), Key("a", "p"), UpdateStrategyType.RECREATE, template_known=False)
    assert pool_of(convert(POOLS, body), template_known=False) == expected


def a_template(**spec: Any) -> SandboxTemplate:
    return convert(TEMPLATES, template("t", **spec))


def made_from(source: SandboxTemplate, **marks: str) -> Sandbox:
    spec = {"podTemplate": {"spec": secure_pod_spec(source.spec)}}
    return a_sandbox(spec=spec, labels={**MARKS, **marks})


def test_stale() -> None:
    now = a_template()
    other = a_template(podTemplate={"spec": pod_spec(hostname="x")})
    hash_now = blueprint_hash(now.spec)
    assert not stale(made_from(now, **{labels.TEMPLATE_HASH: hash_now}), now, hash_now)
    assert not stale(made_from(now), now, hash_now), "without a label the specs decide"
    assert stale(made_from(other, **{labels.TEMPLATE_HASH: blueprint_hash(other.spec)}), now, hash_now)
    assert stale(made_from(now, **{labels.TEMPLATE_REF_HASH: name_hash("another")}), now, hash_now)


def test_metadata_of_a_template_makes_nobody_stale() -> None:
    before = a_template()
    after = a_template(podTemplate={"spec": pod_spec(), "metadata": {"labels": {"a": "b"}}})
    member = made_from(before, **{labels.TEMPLATE_HASH: blueprint_hash(before.spec)})
    assert not stale(member, after, blueprint_hash(after.spec))
