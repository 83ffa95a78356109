"""The official Python client, unmodified, claims a sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.api.manifests import POOL, TEMPLATE
from support.product.cluster import Cluster, claim, running_cluster

kubernetes = pytest.importorskip("kubernetes")

EXTENSIONS = ("extensions.agents.x-k8s.io", "v1beta1", "default")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster") / "data") as cluster:
        yield cluster


def ready(item: dict[str, Any]) -> bool:
    conditions = item.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def watched(api: Any, plural: str, name: str) -> dict[str, Any]:
    """The object once it is Ready, told by a watch as clients do it."""
    watch = kubernetes.watch.Watch()
    for event in watch.stream(
        api.list_namespaced_custom_object,
        *EXTENSIONS,
        plural,
        field_selector=f"metadata.name={name}",
        timeout_seconds=60,
    ):
        if ready(event["object"]):
            watch.stop()
            found: dict[str, Any] = event["object"]
            return found
    raise AssertionError(f"{plural} {name} did not become Ready")


def test_a_claim_becomes_ready_and_is_given_back(client: object) -> None:
    api, core = kubernetes.client.CustomObjectsApi(client), kubernetes.client.CoreV1Api(client)
    api.create_namespaced_custom_object(*EXTENSIONS, "sandboxtemplates", yaml.safe_load(TEMPLATE))
    api.create_namespaced_custom_object(*EXTENSIONS, "sandboxwarmpools", yaml.safe_load(POOL))
    watched(api, "sandboxwarmpools", "python")
    api.create_namespaced_custom_object(*EXTENSIONS, "sandboxclaims", claim("mine"))
    found = watched(api, "sandboxclaims", "mine")
    box = found["status"]["sandbox"]
    pod = core.read_namespaced_pod(box["name"], "default")
    assert (pod.status.phase, pod.status.pod_ip) == ("Running", box["podIPs"][0])
    api.delete_namespaced_custom_object(*EXTENSIONS, "sandboxclaims", "mine")
    gone = kubernetes.watch.Watch()
    revision = pod.metadata.resource_version
    for event in gone.stream(
        core.list_namespaced_pod,
        "default",
        field_selector=f"metadata.name={box['name']}",
        resource_version=revision,
        timeout_seconds=60,
    ):
        if event["type"] == "DELETED":
            return
    raise AssertionError(f"pod {box['name']} did not go")
