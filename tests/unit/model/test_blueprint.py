"""Secure defaults, and whether a sandbox is still what its template would make."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from sandpool.model import blueprint as module
from sandpool.model.blueprint import (
    blueprint_hash,
    follows,
    hardened,
    pod_spec_hash,
    pod_template_hash,
    secure_pod_spec,
)
from sandpool.model.sandbox import SandboxSpec
from sandpool.model.template import SandboxTemplateSpec

POD = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"memory": "1Gi"}}}]}
CLAIM = {"metadata": {"name": "d"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}


def template(pod: dict[str, Any] = POD, **spec: Any) -> SandboxTemplateSpec:
    return msgspec.convert(
        {"podTemplate": {"spec": msgspec.Raw(msgspec.json.encode(pod)), **spec.pop("podTemplate", {})}, **_raw(spec)},
        SandboxTemplateSpec,
    )


def sandbox(pod: dict[str, Any], **spec: Any) -> SandboxSpec:
    return msgspec.convert({"podTemplate": {"spec": msgspec.Raw(msgspec.json.encode(pod))}, **_raw(spec)}, SandboxSpec)


def _raw(spec: dict[str, Any]) -> dict[str, Any]:
    claims = spec.get("volumeClaimTemplates")
    if claims is None:
        return spec
    encoded = [{**claim, "spec": msgspec.Raw(msgspec.json.encode(claim["spec"]))} for claim in claims]
    return {**spec, "volumeClaimTemplates": encoded}


@pytest.mark.parametrize(
    ("spec", "pod", "added"),
    [
        pytest.param(
            {},
            POD,
            {
                "automountServiceAccountToken": False,
                "dnsPolicy": "None",
                "dnsConfig": {"nameservers": ["8.8.8.8", "1.1.1.1"]},
            },
            id="all of it",
        ),
        pytest.param({}, {**POD, "dnsPolicy": "Default"}, {"automountServiceAccountToken": False}, id="own DNS"),
        pytest.param(
            {"networkPolicy": {}}, POD, {"automountServiceAccountToken": False}, id="own rules decide about DNS"
        ),
        pytest.param(
            {"networkPolicyManagement": "Unmanaged"}, POD, {"automountServiceAccountToken": False}, id="unmanaged"
        ),
        pytest.param(
            {"networkPolicy": {}}, {**POD, "automountServiceAccountToken": True}, {}, id="an explicit token is kept"
        ),
    ],
)
def test_secure_defaults(spec: dict[str, Any], pod: dict[str, Any], added: dict[str, Any]) -> None:
    assert secure_pod_spec(template(pod, **spec)) == hardened({**pod, **added})


def made_from(spec: SandboxTemplateSpec, **more: Any) -> SandboxSpec:
    return sandbox(secure_pod_spec(spec), **more)


def test_a_new_sandbox_follows_its_template() -> None:
    spec = template(volumeClaimTemplates=[CLAIM], service=True)
    assert follows(made_from(spec, volumeClaimTemplates=[CLAIM], service=True), spec)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"pod": {"containers": [{"name": "c", "image": "other"}]}}, id="image"),
        pytest.param({"pod": {**POD, "dnsPolicy": "ClusterFirst"}}, id="dns policy"),
        pytest.param({"service": False}, id="service toggled"),
        pytest.param({"service": None}, id="service unset"),
        pytest.param({"volumeClaimTemplates": []}, id="claim removed"),
        pytest.param({"volumeClaimTemplates": [CLAIM, {**CLAIM, "metadata": {"name": "e"}}]}, id="claim added"),
        pytest.param({"volumeClaimTemplates": [{**CLAIM, "metadata": {"name": "e"}}]}, id="claim renamed"),
        pytest.param({"volumeClaimTemplates": [{**CLAIM, "spec": {}}]}, id="claim changed"),
        pytest.param({"networkPolicy": {}}, id="the secure default changes"),
    ],
)
def test_a_change_that_makes_sandboxes_stale(change: dict[str, Any]) -> None:
    old: dict[str, Any] = {"volumeClaimTemplates": [CLAIM], "service": True}
    member = made_from(template(**old), **old)
    assert not follows(member, template(**{**old, **change}))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"podTemplate": {"metadata": {"labels": {"new": "label"}}}}, id="pod labels"),
        pytest.param(
            {"volumeClaimTemplates": [{**CLAIM, "metadata": {"name": "d", "labels": {"a": "b"}}}]}, id="claim labels"
        ),
        pytest.param({"envVarsInjectionPolicy": "Allowed"}, id="policy"),
        pytest.param({"pod": {**POD, "volumes": [], "nodeSelector": {}}}, id="empty is absent"),
        pytest.param(
            {"pod": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"memory": "1024Mi"}}}]}},
            id="the same quantity",
        ),
    ],
)
def test_a_change_that_does_not(change: dict[str, Any]) -> None:
    old: dict[str, Any] = {"volumeClaimTemplates": [CLAIM]}
    member = made_from(template(**old), **old)
    assert follows(member, template(**{**old, **change}))


def test_the_order_of_claims_matters() -> None:
    two = [CLAIM, {**CLAIM, "metadata": {"name": "e"}}]
    assert not follows(
        made_from(template(), volumeClaimTemplates=two), template(volumeClaimTemplates=list(reversed(two)))
    )


def test_the_hash_names_the_content_not_the_writing() -> None:
    one = template({"containers": [{"name": "c", "image": "i"}], "dnsPolicy": "None"})
    other = template({"dnsPolicy": "None", "containers": [{"image": "i", "name": "c"}]})
    assert blueprint_hash(one) == blueprint_hash(other)
    assert len(blueprint_hash(one)) == 8
    assert pod_template_hash(one.pod_template) == pod_template_hash(other.pod_template)
    hashes = {
        blueprint_hash(spec)
        for spec in (
            one,
            template(),
            template(service=True),
            template(service=False),
            template(volumeClaimTemplates=[CLAIM]),
            template(podTemplate={"metadata": {"labels": {"a": "b"}}}),
        )
    }
    assert len(hashes) == 6
    assert blueprint_hash(template(envVarsInjectionPolicy="Allowed")) == blueprint_hash(template())


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"volumes": []}, {}, True),
        ({"resources": {"limits": {"cpu": "1000m"}}}, {"resources": {"limits": {"cpu": "1"}}}, True),
        ({"image": "a"}, {"image": "b"}, False),
        ({"command": ["a", "b"]}, {"command": ["b", "a"]}, False),
        ({"emptyDir": {}}, {}, False),
    ],
)
def test_the_hash_of_a_pod_spec_names_what_it_means(one: Any, other: Any, equal: bool) -> None:
    hashes = [pod_spec_hash(msgspec.Raw(msgspec.json.encode(spec))) for spec in (one, other)]
    assert (hashes[0] == hashes[1]) is equal
    assert all(len(value) == 16 for value in hashes)


def test_members_of_one_make_are_compared_once() -> None:
    """A template edit asks about each member of its pools at once, and nobody else is served meanwhile."""
    old, new = template(), template({"containers": [{"name": "c", "image": "newer"}]})
    before = module.same_pod.cache_info().misses
    assert not any(follows(made_from(old), new) for _ in range(1000))
    assert all(follows(made_from(new), new) for _ in range(1000))
    assert module.same_pod.cache_info().misses - before <= 2


def test_walls_are_part_of_what_is_compared() -> None:
    member = made_from(template())
    assert follows(member, template())
    assert not follows(member, template(networkPolicyManagement="Unmanaged"))


def test_of_large_specs_nothing_is_kept_but_what_was_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant that changed its template of a megabyte again and again filled the memory with what it had been."""
    hashed: list[str] = []
    monkeypatch.setattr(module, "name_hash", lambda text: hashed.append(text) or "")
    tracemalloc.start()
    try:
        for number in range(20):
            pod = {"containers": [{"name": "c", "image": f"{number}", "args": ["x" * 1_000_000]}]}
            new = template(pod)
            member = sandbox(secure_pod_spec(new))
            assert follows(member, new)
            assert follows(member, new)
            assert pod_spec_hash(new.pod_template.spec) == pod_spec_hash(msgspec.Raw(msgspec.json.encode(pod)))
            assert blueprint_hash(new) == blueprint_hash(template(pod)) != blueprint_hash(template())
            assert len(pod_template_hash(new.pod_template)) == 8
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 12_000_000, "those of the last one"
    assert max(map(len, hashed)) < 20_000, "each byte is looked at by itself"
