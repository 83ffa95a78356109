"""What objects use of a quota, by the rules of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controlplane.objects.quota.ledger import Limits, beyond, excess, limits_of
from sandpool.controlplane.objects.quota.usage import Usage, names_used_by, unspecified, usage_of
from sandpool.model import kinds
from sandpool.model.core import ResourceQuotaSpec, ScopeRequirement
from sandpool.model.quantities import parse
from sandpool.model.resource import Resource

Body = dict[str, Any]


def container(name: str = "main", requests: Body | None = None, limits: Body | None = None, **more: Any) -> Body:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def a_pod(*containers: Body, phase: str = "Running", **spec: Any) -> Body:
    return {"spec": {"containers": list(containers or [container()]), **spec}, "status": {"phase": phase}}


def amounts(resource: Resource[Any], body: Body) -> dict[str, str]:
    return {name: str(amount) for name, amount in usage_of(resource, body).amounts.items()}


def test_a_pod_uses_what_its_containers_ask_for_together() -> None:
    body = a_pod(
        container("a", {"cpu": "500m", "memory": "1Gi"}, {"cpu": "1", "ephemeral-storage": "1Gi"}),
        container("b", {"cpu": "250m"}, {"cpu": "1"}),
    )
    assert amounts(kinds.PODS, body) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "750m",
        "requests.cpu": "750m",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "limits.cpu": "2",
        "limits.ephemeral-storage": "1Gi",
    }


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_one_that_has_ended_is_only_an_object(phase: str) -> None:
    assert amounts(kinds.PODS, a_pod(container(requests={"cpu": "1"}), phase=phase)) == {"count/pods": "1"}


def test_one_that_is_being_deleted_counts_until_it_is_gone() -> None:
    body = {**a_pod(), "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}}
    assert amounts(kinds.PODS, body)["pods"] == "1"


@pytest.mark.parametrize(
    ("init", "cpu"),
    [
        ([container("i", limits={"cpu": "3"})], "3"),
        ([container("i", limits={"cpu": "500m"})], "1"),
        ([container("s", limits={"cpu": "1"}, restartPolicy="Always")], "2"),
        ([container("s", limits={"cpu": "1"}, restartPolicy="Always"), container("i", limits={"cpu": "3"})], "4"),
        ([container("i", limits={"cpu": "3"}), container("s", limits={"cpu": "1"}, restartPolicy="Always")], "3"),
    ],
)
def test_init_containers_and_sidecars(init: list[Body], cpu: str) -> None:
    assert amounts(kinds.PODS, a_pod(container(limits={"cpu": "1"}), initContainers=init))["limits.cpu"] == cpu


def test_what_a_pod_says_as_a_whole_makes_its_containers_no_cheaper() -> None:
    body = a_pod(container(limits={"cpu": "4"}), resources={"limits": {"cpu": "1m", "memory": "1Gi"}})
    assert amounts(kinds.PODS, body)["limits.cpu"] == "4"
    assert amounts(kinds.PODS, body)["limits.memory"] == "1Gi"
    assert unspecified(["limits.memory"], body) == "must specify limits.memory for: main"


def test_what_is_not_said_is_named_with_its_containers() -> None:
    body = a_pod(
        container("b"),
        container("a", limits={"cpu": "1"}),
        initContainers=[container("c", {"cpu": "1"}, {"memory": "1"})],
    )
    names = ["limits.cpu", "cpu", "pods", "limits.ephemeral-storage", "count/pods"]
    assert unspecified(names, body) == "must specify cpu for: a,b; limits.cpu for: b,c"
    assert unspecified(["pods"], body) == ""


def test_services_and_volume_claims() -> None:
    ports = [{"port": 1}, {"port": 2, "nodePort": 30000}]
    for kind, more, nodes in (("ClusterIP", {}, "0"), ("NodePort", {}, "2"), ("LoadBalancer", {}, "2")):  # type: ignore[var-annotated]
        found = amounts(kinds.SERVICES, {"spec": {"type": kind, "ports": ports, **more}})
        balancers = str(int(kind == "LoadBalancer"))
        assert found == {
            "count/services": "1",
            "services": "1",
            "services.nodeports": nodes,
            "services.loadbalancers": balancers,
        }
    own = {"spec": {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": False}}
    assert amounts(kinds.SERVICES, own)["services.nodeports"] == "1"
    claim = {"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1.5"}}}}
    assert amounts(kinds.PERSISTENT_VOLUME_CLAIMS, claim) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "2",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "fast.storageclass.storage.k8s.io/requests.storage": "2",
    }


@pytest.mark.parametrize("resource", [kind for kind in kinds.ALL if kind.namespaced], ids=lambda kind: kind.plural)
def test_every_kind_can_be_counted_but_events(resource: Resource[Any]) -> None:
    name = f"count/{resource.group_resource}"
    counted = names_used_by(resource, [name, "count/other", "odd"])
    assert counted == (() if resource is kinds.EVENTS else (name,))
    assert str(usage_of(resource, {}).amounts[name]) == "1"


def test_names_of_old_and_of_extended_resources() -> None:
    assert names_used_by(kinds.SECRETS, ["secrets", "configmaps"]) == ("secrets",)
    assert names_used_by(kinds.PODS, ["requests.example.com/gpu", "requests.storage", "requests.hugepages-2Mi"]) == (
        "requests.example.com/gpu",
        "requests.hugepages-2Mi",
    )
    found = usage_of(kinds.PODS, a_pod(container(requests={"example.com/gpu": "2", "hugepages-2Mi": "4Mi"}))).amounts
    assert {"requests.example.com/gpu", "hugepages-2Mi", "requests.hugepages-2Mi"} <= set(found)


def scoped(name: str, operator: str = "Exists", *values: str) -> Limits:
    return Limits("q", {"pods": parse(1)}, (ScopeRequirement(name, operator, values),))


@pytest.mark.parametrize(
    ("limits", "pod", "covered"),
    [
        (scoped("Terminating"), {"activeDeadlineSeconds": 1}, True),
        (scoped("Terminating"), {}, False),
        (scoped("NotTerminating"), {}, True),
        (scoped("BestEffort"), {}, True),
        (scoped("NotBestEffort"), {}, False),
        (scoped("PriorityClass"), {}, False),
        (scoped("PriorityClass", "In", "high"), {"priorityClassName": "high"}, True),
        (scoped("PriorityClass", "NotIn", "high"), {"priorityClassName": "high"}, False),
        (scoped("PriorityClass", "NotIn", "high"), {}, True),
        (scoped("PriorityClass", "DoesNotExist"), {}, True),
        (scoped("CrossNamespacePodAffinity"), {}, False),
    ],
)
def test_scopes(limits: Limits, pod: Body, covered: bool) -> None:
    assert limits.covers(usage_of(kinds.PODS, a_pod(**pod))) is covered
    assert limits.names_for(kinds.SECRETS) == (), "a quota with scopes is about pods"


def test_a_status_that_lies_about_its_quality_changes_no_scope() -> None:
    body = a_pod()
    body["status"]["qosClass"] = "Guaranteed"
    assert usage_of(kinds.PODS, body).best_effort


def test_only_what_is_too_much_is_told() -> None:
    limits = limits_of("few", ResourceQuotaSpec({"pods": 2, "limits.cpu": "1500m", "secrets": 0}))
    used = {"pods": parse(1), "limits.cpu": parse("1")}
    asked = {"pods": parse(1), "limits.cpu": parse("600m"), "cpu": parse(9)}
    assert excess(limits, used, asked) == (
        "exceeded quota: few, requested: limits.cpu=600m, used: limits.cpu=1, limited: limits.cpu=1500m"
    )
    assert excess(limits, used, {"pods": parse(1), "limits.cpu": parse("500m")}) == ""
    assert excess(limits, {"pods": parse(9)}, {"secrets": parse(0)}) == "", "what asks for nothing is let through"


def test_what_is_used_more_than_before() -> None:
    before, after = Usage({"a": parse(3), "b": parse(1)}), Usage({"a": parse(2), "b": parse(4), "c": parse(1)})
    assert {name: str(amount) for name, amount in beyond(after, before).items()} == {"b": "3", "c": "1"}
