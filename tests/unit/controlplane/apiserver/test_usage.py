"""Measurements as documents of the metrics API, and that these are described as they are served."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from sandpool.controlplane.apiserver.discovery import aggregated, resource_list
from sandpool.controlplane.apiserver.handlers.usage import of_node, of_pod, seen
from sandpool.controlplane.apiserver.openapi.document import group_document
from sandpool.controlplane.apiserver.request import parse_request
from sandpool.controlplane.apiserver.routes import Routes
from sandpool.model.usage import GROUP, MEASURED, VERSION, Used

AT = datetime(2026, 1, 1, tzinfo=UTC)
ROUTES = Routes(measured=MEASURED)
POD = msgspec.json.encode(
    {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}, "annotations": {"secret": "x"}},
        "spec": {"nodeName": "here", "containers": [{"name": "one"}, {"name": "two"}]},
    }
)


def read(value: bytes) -> Any:
    return msgspec.json.decode(value)


def test_a_pod_is_measured_as_a_whole() -> None:
    assert read(of_pod(seen(POD), Used(0.25, 3 * 1024 * 1024, AT, 2.5))) == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "p", "namespace": "n", "labels": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z"
        },
        "timestamp": "2026-01-01T00:00:00Z",
        "window": "2.500s",
        "containers": [
            {"name": "one", "usage": {"cpu": "250m", "memory": "3Mi"}},
            {"name": "two", "usage": {"cpu": "0", "memory": "0"}},
        ],
    }  # fmt: skip


def test_a_node_uses_what_its_pods_use() -> None:
    node = seen(msgspec.json.encode({"metadata": {"name": "here"}, "spec": {}}))
    used = read(of_node(node, [Used(0.25, 1024, AT, 2.5), Used(0.001, 1, AT, 0.5)], AT))
    assert used["usage"] == {"cpu": "251m", "memory": "1025"}
    assert used["window"] == "2.500s"
    assert read(of_node(node, [], AT))["usage"] == {"cpu": "0", "memory": "0"}


def test_it_is_discovered_and_described_as_it_is_served() -> None:
    plain = {one["name"]: one for one in resource_list(ROUTES, GROUP, VERSION)["resources"]}
    assert {name: one["verbs"] for name, one in plain.items()} == {"nodes": ["get", "list"], "pods": ["get", "list"]}
    assert (plain["nodes"]["namespaced"], plain["pods"]["namespaced"]) == (False, True)
    assert GROUP in [item["metadata"]["name"] for item in aggregated(ROUTES, False, "apidiscovery.k8s.io/v2")["items"]]
    document = group_document(ROUTES, GROUP, VERSION)
    schemas = document["components"]["schemas"]
    assert {"PodMetrics", "PodMetricsList", "NodeMetrics", "NodeMetricsList"} <= {n.split(".")[-1] for n in schemas}
    assert len(document["paths"]) == 6
    for path, operations in document["paths"].items():
        assert operations.keys() <= {"get", "parameters"}, path
        info = parse_request("GET", path.replace("{namespace}", "n").replace("{name}", "x"), {}, ROUTES)
        assert not info.plural or (info.route is not None and info.route.measured), path


def test_pods_are_not_taken_for_their_measurements() -> None:
    info = parse_request("GET", "/api/v1/namespaces/n/pods/p", {}, ROUTES)
    assert info.route is not None
    assert not info.route.measured
