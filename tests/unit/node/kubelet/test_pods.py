"""Pods of one template are kept as one spec, and statuses that share what is equal."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec

from sandpool.model.codec import decode
from sandpool.model.labels import TEMPLATE_REF_HASH
from sandpool.node.kubelet.pods import NODE_PODS, NodePod, PodTransform

TIME = "2026-01-01T00:00:00Z"


def a_pod(
    name: str,
    template: str | None = "t",
    image: str = "python",
    labels: dict[str, str] | None = None,
    **status: Any,
) -> NodePod:
    labels = {**({} if template is None else {TEMPLATE_REF_HASH: template}), **(labels or {})}
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": image}]},
        "status": {"phase": "Pending", **status},
    }
    return decode(NODE_PODS, msgspec.json.encode(body))


def running(name: str, at: str = TIME, **more: Any) -> NodePod:
    return a_pod(
        name,
        startTime=at,
        podIP=f"ip of {name}",
        conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": at}],
        containerStatuses=[{"name": "main", "state": {"running": {"startedAt": at}}, "containerID": name}],
        **more,
    )


def test_what_is_equal_is_one_object() -> None:
    keep = PodTransform()
    one, other = keep(running("p")), keep(running("q"))
    assert other == running("q"), "it says the same as before"
    assert one.spec is other.spec
    assert one.status["conditions"] is other.status["conditions"]
    mine, its = one.status["containerStatuses"][0], other.status["containerStatuses"][0]
    assert mine["state"] is its["state"]
    assert (mine["containerID"], its["containerID"]) == ("p", "q")


def test_what_differs_is_kept() -> None:
    keep = PodTransform()
    keep(running("p"))
    for pod in (
        running("later", "2026-01-01T00:00:09Z"),
        running("more", reason="Evicted"),
        a_pod("new"),
        a_pod("unlike", image="node"),
        a_pod("alone", None),
        a_pod("two", startTime=TIME, containerStatuses=[{"name": "a"}, {"name": "b"}]),
    ):
        assert keep(pod) == pod


def test_the_newest_is_the_example() -> None:
    keep = PodTransform()
    keep(running("p"))
    later = keep(running("q", "2026-01-01T00:00:09Z"))
    keep(a_pod("new"))
    assert keep(running("r", "2026-01-01T00:00:09Z")).status["conditions"] is later.status["conditions"]


def test_pods_of_no_template_are_left_alone() -> None:
    pod = a_pod("p", None)
    assert PodTransform()(pod) is pod


def test_it_does_not_grow_for_ever() -> None:
    keep = PodTransform()
    for number in range(3_000):
        keep(a_pod("p", str(number)))
    assert len(keep.examples) <= 1024


def test_examples_of_large_pods_are_bounded_by_bytes() -> None:
    """A tenant chooses the mark: it made and deleted large pods, and a thousand of them stayed."""
    keep = PodTransform()
    tracemalloc.start()
    try:
        for number in range(40):
            keep(a_pod("a", f"{number}", image="x" * 1_000_000))
            keep(a_pod("a", f"more {number}", labels={"x": "x" * 1_000_000}))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 8_000_000
