from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.sandbox.service import service_ports
from sandpool.controllers.sandbox.steps import Change
from sandpool.model.kinds import SERVICES
from sandpool.model.labels import ADOPTABLE
from unit.controllers.sandbox.views import (
    FOREIGN,
    GONE,
    IDENTITY,
    OURS,
    PREDECESSOR,
    TRACKING,
    body,
    plan_of,
    pod,
    sandbox,
    service,
    verbs,
    verdict,
)

WANTED = {"service": True}
PORTS = [{"name": "main", "image": "x", "ports": [{"containerPort": 80, "name": "http"}]}]
HTTP = {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 80}


def steps(box: Any, *objects: Any) -> list[str]:
    return [verb for verb in verbs(plan_of(box, pod(), *objects)) if "Service" in verb]


def sent(box: Any, *objects: Any) -> dict[str, Any]:
    return body(plan_of(box, pod(), *objects), "Service")


def ports_of(containers: list[dict[str, Any]], **pod_spec: Any) -> list[tuple[str, int, str]]:
    ports = service_ports(sandbox(containers=containers, pod_spec=pod_spec))
    assert all(port["targetPort"] == port["port"] for port in ports)
    return [(port["name"], port["port"], port["protocol"]) for port in ports]


def container(*ports: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "x", "ports": list(ports), **more}


def test_no_ports_are_no_ports() -> None:
    assert ports_of([{"name": "c", "image": "x"}]) == []
    assert "ports" not in sent(sandbox(spec=WANTED))["spec"]


def test_made_headless_with_the_tracking_selector() -> None:
    made = sent(sandbox(spec=WANTED))
    assert made["spec"] == {"clusterIP": "None", "selector": IDENTITY}
    assert made["metadata"] == {
        "name": "box", "namespace": "default", "labels": TRACKING,
        "ownerReferences": [{**OURS, "blockOwnerDeletion": True}],
    }  # fmt: skip


def test_made_with_the_ports_of_the_containers() -> None:
    assert sent(sandbox(spec=WANTED, containers=PORTS))["spec"]["ports"] == [HTTP]


def test_native_sidecars_count_and_init_containers_do_not() -> None:
    sidecar = container({"containerPort": 90}, restartPolicy="Always")
    init = container({"containerPort": 91})
    assert ports_of([container({"containerPort": 80})], initContainers=[init, sidecar]) == [
        ("p-80-tcp", 80, "TCP"),
        ("p-90-tcp", 90, "TCP"),
    ]


def test_sorted_once_each_zero_skipped_and_named_by_the_first_name() -> None:
    first = container({"containerPort": 443}, {"containerPort": 0}, {"containerPort": 53, "protocol": "UDP"})
    second = container({"containerPort": 443, "name": "https"}, {"containerPort": 53})
    assert ports_of([first, second]) == [("p-53-tcp", 53, "TCP"), ("p-53-udp", 53, "UDP"), ("https", 443, "TCP")]


def test_of_two_ports_of_one_name_the_first_keeps_it() -> None:
    ports = [container({"containerPort": 81, "name": "web"}), container({"containerPort": 80, "name": "web"})]
    assert ports_of(ports) == [("p-80-tcp", 80, "TCP"), ("web", 81, "TCP")]


def test_a_made_up_name_gives_way() -> None:
    ports = [container({"containerPort": 80}, {"containerPort": 90, "name": "p-80-tcp"})]
    assert ports_of(ports) == [("p-80-tcp-2", 80, "TCP"), ("p-80-tcp", 90, "TCP")]


def test_ours_is_kept() -> None:
    assert steps(sandbox(spec=WANTED, containers=PORTS), service(ports=[HTTP])) == []


def test_selector_and_label_are_repaired() -> None:
    patch = sent(sandbox(spec=WANTED), service(selector={"app": "x"}, labels={"mine": "1"}))
    assert patch["metadata"] == {"uid": "service-box", "labels": TRACKING}
    assert patch["spec"] == {"selector": {"app": None, **IDENTITY}}


def test_a_new_selector_waits_for_the_label_of_the_pod_and_nothing_else_does() -> None:
    def gated(*objects: Any) -> list[bool]:
        found = plan_of(sandbox(spec=WANTED, containers=PORTS), pod(), *objects).steps
        return [step.gated for step in found if isinstance(step, Change) and step.resource == SERVICES]

    assert gated(service(ports=[HTTP], selector=TRACKING)) == [True]
    assert gated(service(ports=[{**HTTP, "port": 81}])) == [False]


def test_ports_are_repaired() -> None:
    assert sent(sandbox(spec=WANTED, containers=PORTS), service(ports=[{**HTTP, "port": 81}]))["spec"] == {
        "ports": [HTTP]
    }


def test_fields_of_a_port_that_are_not_ours_cause_no_write() -> None:
    assert steps(sandbox(spec=WANTED, containers=PORTS), service(ports=[{**HTTP, "appProtocol": "h2c"}])) == []


def test_a_service_of_somebody_else_is_refused() -> None:
    plan = plan_of(sandbox(spec=WANTED), pod(), service(owner=FOREIGN))
    assert plan.steps == ()
    assert plan.refused == ("Service box belongs to ReplicaSet web; rename the sandbox",)


@pytest.mark.parametrize("labels", [{ADOPTABLE: "true"}, TRACKING])
def test_taken_over_with_leave(labels: dict[str, str]) -> None:
    patch = sent(sandbox(spec=WANTED, containers=PORTS), service(owner=None, labels=labels, selector={"app": "x"}))
    assert patch["metadata"]["ownerReferences"] == [{**OURS, "blockOwnerDeletion": True}]
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"] == {"selector": {"app": None, **IDENTITY}, "ports": [HTTP]}


def test_taking_over_clears_ports_that_nobody_wants() -> None:
    assert sent(sandbox(spec=WANTED), service(owner=None, ports=[HTTP]))["spec"] == {"ports": None}


def test_a_service_with_an_address_cannot_become_headless() -> None:
    plan = plan_of(sandbox(spec=WANTED), pod(), service(owner=None, cluster_ip="10.1.1.1"))
    assert plan.steps == ()
    assert "not headless" in plan.refused[0]


def test_unset_makes_none() -> None:
    assert steps(sandbox()) == []


def test_unset_keeps_ours_and_leaves_its_ports() -> None:
    box = sandbox(containers=PORTS)
    assert steps(box, service()) == []
    assert sent(box, service(selector={}))["spec"] == {"selector": IDENTITY}
    assert verdict(box, pod(), service()).service == "box"


def test_unset_ignores_one_of_nobody() -> None:
    box = sandbox()
    assert steps(box, service(owner=None)) == []
    assert verdict(box, pod(), service(owner=None)).service == ""


def test_false_removes_ours() -> None:
    box = sandbox(spec={"service": False})
    assert steps(box, service()) == ["delete Service box"]
    assert verdict(box, pod(), service()).service == ""


@pytest.mark.parametrize("owner", [None, FOREIGN])
def test_false_spares_others(owner: Any) -> None:
    plan = plan_of(sandbox(spec={"service": False}), pod(), service(owner=owner))
    assert (plan.steps, plan.refused) == ((), ())


def test_one_of_nobody_is_refused_without_leave() -> None:
    plan = plan_of(sandbox(spec=WANTED), pod(), service(owner=None, labels={}))
    assert plan.steps == ()
    assert "adoptable=true" in plan.refused[0]


def test_a_departing_one_and_one_of_an_earlier_incarnation_are_waited_for() -> None:
    assert plan_of(sandbox(spec=WANTED), pod(), service(deletionTimestamp=GONE)).steps == ()
    plan = plan_of(sandbox(spec=WANTED), pod(), service(owner=PREDECESSOR))
    assert (plan.steps, plan.refused) == ((), ())


def test_a_name_that_no_service_can_have_is_refused_with_the_way_out() -> None:
    plan = plan_of(sandbox(name="0box", spec=WANTED))
    assert verbs(plan) == ["create Pod 0box"]
    assert "no Service can be called 0box" in plan.refused[0]


def test_with_several_pods_a_service_is_not_made_but_one_that_is_unwanted_goes() -> None:
    strays = pod("one"), pod("two")
    assert [verb for verb in verbs(plan_of(sandbox(spec=WANTED), *strays)) if "Service" in verb] == []
    unwanted = plan_of(sandbox(spec={"service": False}), *strays, service())
    assert [type(step).__name__ for step in unwanted.steps] == ["Delete"]
