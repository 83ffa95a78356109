"""What one pod, or one Sandbox, may ask of this machine: up to the bound it is stored, beyond it is refused and the field is named."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controlplane.admission.admit import admit
from sandpool.controlplane.admission.kinds import pod
from sandpool.kube.errors import Invalid
from sandpool.model import core, kinds
from sandpool.model.resource import Resource

Body = dict[str, Any]


def containers(count: int, **fields: Any) -> list[Body]:
    return [{"name": f"c{number}", "image": "x:1", **fields} for number in range(count)]


def volumes(count: int) -> list[Body]:
    return [{"name": f"v{number}", "emptyDir": {}} for number in range(count)]


def one(field: str, entries: list[Body], **spec: Any) -> Body:
    return {"containers": containers(1, **{field: entries}), **spec}


def projected(count: int) -> list[Body]:
    return [{"name": "v", "projected": {"sources": [{"secret": {"name": f"s{n}"}} for n in range(count)]}}]


BOUNDS: dict[str, tuple[int, Any]] = {
    "spec.containers": (pod.CONTAINERS, lambda n: {"containers": containers(n)}),
    "spec.initContainers": (
        pod.CONTAINERS,
        lambda n: {"containers": [{"name": "main", "image": "x:1"}], "initContainers": containers(n - 1)},
    ),
    "spec.volumes": (pod.VOLUMES, lambda n: {"containers": containers(1), "volumes": volumes(n)}),
    "spec.imagePullSecrets": (
        pod.PULL_SECRETS,
        lambda n: {"containers": containers(1), "imagePullSecrets": [{"name": f"s{k}"} for k in range(n)]},
    ),
    "spec.volumes[0].projected.sources": (
        pod.SOURCES,
        lambda n: {"containers": containers(1), "volumes": projected(n)},
    ),
    "spec.containers[0].env": (
        pod.OF_CONTAINER["env"],
        lambda n: one("env", [{"name": f"E{k}", "value": ""} for k in range(n)]),
    ),
    "spec.containers[0].envFrom": (
        pod.OF_CONTAINER["envFrom"],
        lambda n: one("envFrom", [{"secretRef": {"name": "s"}}] * n),
    ),
    "spec.containers[0].volumeMounts": (
        pod.OF_CONTAINER["volumeMounts"],
        lambda n: one("volumeMounts", [{"name": "v0", "mountPath": f"/{k}"} for k in range(n)], volumes=volumes(1)),
    ),
    "spec.containers[0].resources.limits": (
        pod.RESOURCES,
        lambda n: {"containers": containers(1, resources={"limits": {f"x.y/r{k}": "1" for k in range(n)}})},
    ),
    "spec.containers[0].ports": (
        pod.OF_CONTAINER["ports"],
        lambda n: one("ports", [{"containerPort": k + 1} for k in range(n)]),
    ),
}


def stored(resource: Resource[Any], version: str, spec: Body) -> Body:
    body = {"apiVersion": version, "kind": resource.kind, "metadata": {"name": "a", "namespace": "here"}, "spec": spec}
    return admit(resource, body, None).body


@pytest.mark.parametrize("field", BOUNDS)
def test_a_pod(field: str) -> None:
    most, spec = BOUNDS[field]
    stored(kinds.PODS, "v1", spec(most))
    with pytest.raises(Invalid, match=f"must have at most {most} items") as refused:
        stored(kinds.PODS, "v1", spec(most + 1))
    assert [(cause.field, cause.reason) for cause in refused.value.causes] == [(field, "FieldValueTooMany")]


@pytest.mark.parametrize("field", BOUNDS)
def test_a_sandbox_is_refused_before_anything_is_made_for_it(field: str) -> None:
    most, spec = BOUNDS[field]
    version = "agents.x-k8s.io/v1beta1"
    stored(kinds.SANDBOXES, version, {"podTemplate": {"spec": spec(most)}})
    with pytest.raises(Invalid, match=f"must have at most {most} items") as refused:
        stored(kinds.SANDBOXES, version, {"podTemplate": {"spec": spec(most + 1)}})
    assert [cause.field for cause in refused.value.causes] == [field.replace("spec.", "spec.podTemplate.spec.", 1)]


def test_claim_templates_of_a_sandbox() -> None:
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}

    def spec(count: int) -> Body:
        claims = [{"metadata": {"name": f"d{number}"}, **claim} for number in range(count)]
        return {"podTemplate": {"spec": {"containers": containers(1)}}, "volumeClaimTemplates": claims}

    stored(kinds.SANDBOXES, "agents.x-k8s.io/v1beta1", spec(pod.VOLUMES))
    with pytest.raises(Invalid, match=r"spec.volumeClaimTemplates: Too many: 257"):
        stored(kinds.SANDBOXES, "agents.x-k8s.io/v1beta1", spec(pod.VOLUMES + 1))


def test_one_that_was_stored_before_there_was_a_bound_can_be_changed() -> None:
    old = stored(kinds.PODS, "v1", {"containers": containers(1)})
    old = {**old, "spec": {**old["spec"], "containers": containers(pod.CONTAINERS + 1, imagePullPolicy="Always")}}
    tolerations = [{"key": "a", "operator": "Exists"}]
    changed = admit(kinds.PODS, {**old, "spec": {**old["spec"], "tolerations": tolerations}}, old).body
    assert changed["spec"]["tolerations"] == tolerations


def test_a_network_policy() -> None:
    def spec(count: int) -> Body:
        to = [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"] * (count - 3)}}]
        return {"podSelector": {}, "egress": [{"to": to, "ports": [{"port": 443}]}]}

    stored(kinds.NETWORK_POLICIES, "networking.k8s.io/v1", spec(core.POLICY_ENTRIES))
    with pytest.raises(Invalid, match=r"spec.egress: Too many: 1025: must have at most 1024 items"):
        stored(kinds.NETWORK_POLICIES, "networking.k8s.io/v1", spec(core.POLICY_ENTRIES + 1))


def test_the_selector_of_a_network_policy() -> None:
    def spec(labels: int, values: int) -> Body:
        expression = {"key": "a", "operator": "In", "values": [f"v{number}" for number in range(values)]}
        matched = {f"k{number}": "v" for number in range(labels)}
        return {"podSelector": {"matchLabels": matched, "matchExpressions": [expression]}}

    stored(kinds.NETWORK_POLICIES, "networking.k8s.io/v1", spec(500, core.POLICY_ENTRIES - 501))
    for labels, values in ((1, core.POLICY_ENTRIES), (core.POLICY_ENTRIES, 1)):
        with pytest.raises(Invalid, match=r"spec.podSelector: Too many: 102[56]: must have at most 1024 items"):
            stored(kinds.NETWORK_POLICIES, "networking.k8s.io/v1", spec(labels, values))


def test_tolerations_are_compared_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with each took seconds for a patch of some bytes."""
    read: list[Any] = []
    text = pod.canonical
    monkeypatch.setattr(pod, "canonical", lambda value: read.append(value) or text(value))
    many = [{"key": f"k{number}", "operator": "Exists"} for number in range(500)]
    old = stored(kinds.PODS, "v1", {"containers": containers(1), "tolerations": many})
    spec = {**old["spec"], "tolerations": [*(dict(reversed(one.items())) for one in many), {"operator": "Exists"}]}
    assert len(admit(kinds.PODS, {**old, "spec": spec}, old).body["spec"]["tolerations"]) == 501
    assert len(read) == 1001
    with pytest.raises(Invalid, match="existing toleration can not be modified"):
        admit(kinds.PODS, {**old, "spec": {**old["spec"], "tolerations": many[1:]}}, old)
