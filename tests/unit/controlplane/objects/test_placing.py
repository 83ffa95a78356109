"""New pods get the node that takes them in the write that creates them; all others are left to whoever binds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sandpool.controlplane.objects.options import WriteOptions
from sandpool.kube.errors import Forbidden
from sandpool.model import kinds, times
from sandpool.model.binding import NODE_LEASES, TAKES_PODS
from support.api.local_objects import Bench, read

Body = dict[str, Any]


def a_node(name: str = "here", takes: str = "true", **parts: Any) -> Body:
    return {"metadata": {"name": name, "labels": {"zone": "a"}, "annotations": {TAKES_PODS: takes}}, **parts}


async def register(b: Bench, node: Body) -> None:
    """With a lease, as a kubelet does."""
    if b.store.get("core/namespaces/kube-node-lease") is None:
        await b.create(kinds.NAMESPACES, {"metadata": {"name": NODE_LEASES}})
    await b.create(kinds.NODES, node)
    spec = {"renewTime": times.micro(b.now), "leaseDurationSeconds": 40}
    await b.create(kinds.LEASES, {"metadata": {"name": node["metadata"]["name"]}, "spec": spec}, NODE_LEASES)


def a_pod(name: str = "p", **spec: Any) -> Body:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def node_of(pod: Body) -> str:
    found: str = pod["spec"].get("nodeName", "")
    return found


async def test_a_pod_is_created_on_the_node_that_takes_it(b: Bench) -> None:
    await register(b, a_node())
    before = b.store.revision
    pod = await b.create(kinds.PODS, a_pod())
    assert b.store.revision == before + 1, "one write"
    assert node_of(pod) == "here"
    assert pod["metadata"]["generation"] == 1
    (said,) = pod["status"]["conditions"]
    assert (said["type"], said["status"]) == ("PodScheduled", "True")
    assert said["lastTransitionTime"] == pod["metadata"]["creationTimestamp"]
    assert pod["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        ({"nodeSelector": {"zone": "a"}}, "here"),
        ({"nodeSelector": {"zone": "b"}}, ""),
        ({"nodeName": "there"}, "there"),
        ({"schedulingGates": [{"name": "wait"}]}, ""),
        ({"schedulerName": "mine"}, ""),
        ({"runtimeClassName": "strong"}, "here"),
        ({"runtimeClassName": "gvisor"}, "here"),
        ({"runtimeClassName": "weak"}, ""),
    ],
)
async def test_what_a_pod_asks_for(b: Bench, spec: Body, node: str) -> None:
    for name, handler in (("strong", "gvisor"), ("weak", "other"), ("gvisor", "gvisor")):
        await b.create(kinds.RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": handler})
    await register(b, a_node(status={"runtimeHandlers": [{"name": "gvisor"}]}))
    pod = await b.create(kinds.PODS, a_pod(**spec))
    assert node_of(pod) == node
    assert bool(pod["status"].get("conditions")) == (node == "here")


@pytest.mark.parametrize("node", [a_node(takes="false"), {"metadata": {"name": "here"}}])
async def test_a_node_that_does_not_say_so_is_given_nothing(b: Bench, node: Body) -> None:
    await register(b, node)
    pod = await b.create(kinds.PODS, a_pod())
    assert (node_of(pod), "conditions" in pod["status"]) == ("", False)


async def test_no_node_no_place(b: Bench) -> None:
    assert node_of(await b.create(kinds.PODS, a_pod())) == ""


async def test_what_becomes_of_the_node_counts_at_once(b: Bench) -> None:
    await register(b, a_node())
    assert node_of(await b.create(kinds.PODS, a_pod("first"))) == "here"
    await b.patch(kinds.NODES, "here", {"spec": {"unschedulable": True}})
    assert node_of(await b.create(kinds.PODS, a_pod("cordoned"))) == ""
    await register(b, a_node("other"))
    assert node_of(await b.create(kinds.PODS, a_pod("elsewhere"))) == "other"
    await b.patch(kinds.NODES, "here", {"spec": {"unschedulable": None}})
    await b.delete(kinds.NODES, "other")
    assert node_of(await b.create(kinds.PODS, a_pod("back"))) == "here"
    await b.delete(kinds.NODES, "here")
    assert node_of(await b.create(kinds.PODS, a_pod("gone"))) == ""


async def test_a_node_that_nobody_looks_after_is_given_nothing(b: Bench) -> None:
    await register(b, a_node())
    b.now += timedelta(seconds=39)
    assert node_of(await b.create(kinds.PODS, a_pod("lives"))) == "here"
    b.now += timedelta(seconds=2)
    assert node_of(await b.create(kinds.PODS, a_pod("late"))) == ""
    await b.patch(kinds.LEASES, "here", {"spec": {"renewTime": times.micro(b.now)}}, namespace=NODE_LEASES)
    assert node_of(await b.create(kinds.PODS, a_pod("back"))) == "here"
    await b.delete(kinds.LEASES, "here", NODE_LEASES)
    assert node_of(await b.create(kinds.PODS, a_pod("none"))) == ""


async def test_a_dry_run_shows_what_would_be(b: Bench) -> None:
    await register(b, a_node())
    written = await b.objects.create(kinds.PODS, "default", a_pod(), WriteOptions(dry_run=True))
    assert node_of(read(written.record)) == "here"
    assert b.names_of(kinds.PODS) == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"runtimeClassName": "nowhere"}, 'RuntimeClass "nowhere" not found'),
        ({"overhead": {"cpu": "-4"}}, "Pod Overhead set without corresponding RuntimeClass defined Overhead"),
        (
            {"runtimeClassName": "plain", "overhead": {"cpu": "1"}},
            "Pod Overhead set without corresponding RuntimeClass",
        ),
        ({"runtimeClassName": "dear", "overhead": {"cpu": "1m"}}, "doesn't match RuntimeClass's defined Overhead"),
    ],
)
async def test_a_runtime_and_its_price_are_for_a_class_to_say(b: Bench, spec: Body, words: str) -> None:
    await b.create(kinds.RUNTIME_CLASSES, {"metadata": {"name": "plain"}, "handler": "h"})
    dear = {"metadata": {"name": "dear"}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}}}
    await b.create(kinds.RUNTIME_CLASSES, dear)
    with pytest.raises(Forbidden) as caught:
        await b.create(kinds.PODS, a_pod(**spec))
    assert str(caught.value).startswith('pods "p" is forbidden: pod rejected: ')
    assert words in str(caught.value)
    assert b.names_of(kinds.PODS) == []
    await b.create(kinds.PODS, a_pod(runtimeClassName="dear", overhead={"cpu": "250m"}))
