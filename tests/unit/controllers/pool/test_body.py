"""The sandbox that a pool makes."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from sandpool.controllers.assigner.facts import member_of, stale
from sandpool.controllers.pool.creation import ALPHABET, blank_member, member_name, named
from sandpool.model import labels
from sandpool.model.blueprint import blueprint_hash, pod_template_hash
from sandpool.model.names import dns_label, name_hash
from sandpool.model.sandbox import Sandbox, SandboxSpec
from sandpool.model.template import SandboxTemplate, SandboxTemplateSpec
from unit.controllers.pool.views import a_pool, a_template


def made(template: SandboxTemplate) -> Sandbox:
    return named(blank_member(a_pool(), template, blueprint_hash(template.spec)), "p-12345678")


def test_it_says_whose_it_is_and_what_it_was_made_from() -> None:
    template = a_template()
    sandbox = made(template)
    marks = {
        labels.WARM_POOL: name_hash("p"),
        labels.TEMPLATE_REF_HASH: name_hash("t"),
        labels.TEMPLATE_HASH: blueprint_hash(template.spec),
        labels.POD_TEMPLATE_HASH: pod_template_hash(template.spec.pod_template),
    }
    assert sandbox.metadata.labels == {**marks, labels.LAUNCH_TYPE: "warm", labels.CREATED_BY: "controller"}
    assert sandbox.metadata.annotations == {labels.TEMPLATE_REF: "t", labels.POD_NAME: "p-12345678"}
    pod = sandbox.spec.pod_template.metadata
    assert pod is not None
    assert pod.labels == marks
    assert labels.SAFE_TO_EVICT not in pod.annotations, "the Sandbox controller decides that, by the owner"


def test_it_is_a_member_and_fresh() -> None:
    template = a_template()
    sandbox = made(template)
    assert member_of(sandbox, stale=False) is not None
    assert not stale(sandbox, template, blueprint_hash(template.spec))


@pytest.mark.parametrize(
    ("change", "rolls"),
    [
        ({"pod": {"automountServiceAccountToken": False}}, False),
        ({"pod": {"automountServiceAccountToken": True}}, True),
        ({"pod": {"dnsPolicy": "ClusterFirst"}}, True),
        ({"pod": {"hostname": "other"}}, True),
        ({"service": True}, True),
        ({"meta": {"labels": {"a": "b"}}}, False),
        ({"envVarsInjectionPolicy": "Allowed"}, False),
    ],
)
def test_what_makes_it_stale(change: dict[str, Any], rolls: bool) -> None:
    template = a_template(**change)
    assert stale(made(a_template()), template, blueprint_hash(template.spec)) is rolls


def test_it_follows_the_template_in_everything() -> None:
    spec = {"accessModes": ["ReadWriteOnce"]}
    template = a_template(
        volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": spec}],
        service=True,
        meta={"labels": {"a": "b"}, "annotations": {labels.SAFE_TO_EVICT: "false"}},
    )
    sandbox = made(template)
    assert sandbox.spec.volume_claim_templates == template.spec.volume_claim_templates
    assert sandbox.spec.service is True
    pod = sandbox.spec.pod_template.metadata
    assert pod is not None
    assert pod.labels["a"] == "b"
    assert pod.annotations == {labels.SAFE_TO_EVICT: "false"}


@pytest.mark.parametrize(
    ("spec", "automount", "dns"),
    [
        ({}, False, "None"),
        ({"pod": {"automountServiceAccountToken": True}}, True, "None"),
        ({"networkPolicyManagement": "Unmanaged"}, False, None),
        ({"pod": {"dnsPolicy": "Default"}}, False, "Default"),
    ],
)
def test_secure_defaults(spec: dict[str, Any], automount: bool, dns: str | None) -> None:
    pod = msgspec.json.decode(made(a_template(**spec)).spec.pod_template.spec)
    assert (pod["automountServiceAccountToken"], pod.get("dnsPolicy")) == (automount, dns)


@pytest.mark.parametrize("pool", ["p", "a" * 53 + ".b", "x" * 253, "a-" * 100 + "a", "a." * 40 + "a"])
def test_names_fit_everywhere(pool: str) -> None:
    name = member_name(pool, Random(1).random)
    assert len(name) <= 63
    assert name.startswith(pool[:40].rstrip("-."))
    assert dns_label(name.replace(".", "-")) == []
    prefix, _, suffix = name.rpartition("-")
    assert len(suffix) == 8
    assert prefix[-1] not in "-."


def test_names_differ_and_follow_from_the_seed() -> None:
    random = Random(7).random
    drawn = [member_name("p", random) for _ in range(1000)]
    assert len(set(drawn)) == 1000
    again = Random(7).random
    assert [member_name("p", again) for _ in range(1000)] == drawn


def test_one_draw_makes_a_name_and_reaches_every_character() -> None:
    assert member_name("p", iter([0.0]).__next__) == "p-bbbbbbbb"
    assert member_name("p", iter([0.9999999999999999]).__next__) == "p-99999999"
    random = Random(7).random
    names = [member_name("p", random)[2:] for _ in range(2000)]
    assert all(set(place) == set(ALPHABET) for place in zip(*names, strict=True))


def test_a_new_field_of_the_blueprint_must_be_copied_and_compared() -> None:
    shared = set(SandboxSpec.__struct_fields__) & set(SandboxTemplateSpec.__struct_fields__)
    assert shared == {"pod_template", "volume_claim_templates", "service"}, "see blank_member, follows, blueprint_hash"
