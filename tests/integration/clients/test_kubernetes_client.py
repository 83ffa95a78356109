"""The official Python client, unmodified, against a real `sandpool up`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from support.api.manifests import POD
from support.product.cluster import Cluster, claim, running_cluster

kubernetes = pytest.importorskip("kubernetes")

GROUP, VERSION, NAMESPACE, PLURAL = "extensions.agents.x-k8s.io", "v1beta1", "default", "sandboxclaims"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster") / "data", "--backend", "none") as cluster:
        yield cluster


def test_custom_objects(client: object) -> None:
    api = kubernetes.client.CustomObjectsApi(client)
    created = api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, claim("sdk"))
    assert created["metadata"]["uid"]
    with pytest.raises(kubernetes.client.ApiException) as clash:
        api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, claim("sdk"))
    assert clash.value.status == 409
    patched = api.patch_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, PLURAL, "sdk", {"metadata": {"labels": {"a": "b"}}}
    )
    assert patched["metadata"]["labels"] == {"a": "b"}
    listed = api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, label_selector="a=b")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["sdk"]
    with pytest.raises(kubernetes.client.ApiException) as other:
        api.delete_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, "sdk", body={"preconditions": {"uid": "another"}}
        )
    assert other.value.status == 409
    api.delete_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, PLURAL, "sdk", body={"preconditions": {"uid": created["metadata"]["uid"]}}
    )
    with pytest.raises(kubernetes.client.ApiException) as gone:
        api.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, "sdk")
    assert gone.value.status == 404


def test_watch_from_a_revision_sees_what_happened_before_the_watch_began(client: object) -> None:
    api = kubernetes.client.CustomObjectsApi(client)
    created = api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, claim("seen"))
    for value in ("1", "2"):
        api.patch_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, "seen", {"metadata": {"labels": {"step": value}}}
        )
    api.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, "seen")
    seen = []
    for event in kubernetes.watch.Watch().stream(
        api.list_namespaced_custom_object,
        GROUP,
        VERSION,
        NAMESPACE,
        PLURAL,
        field_selector="metadata.name=seen",
        resource_version=created["metadata"]["resourceVersion"],
        timeout_seconds=20,
    ):
        seen.append((event["type"], event["object"]["metadata"].get("labels", {}).get("step")))
        if event["type"] == "DELETED":
            break
    assert seen == [("MODIFIED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


def test_core_kinds_are_typed(client: object) -> None:
    core = kubernetes.client.CoreV1Api(client)
    core.create_namespaced_pod("default", yaml.safe_load(POD))
    pod = core.read_namespaced_pod("lonely", "default")
    assert pod.spec.containers[0].image == "nginx"
    assert pod.status.phase == "Pending"
    core.delete_namespaced_pod("lonely", "default")
    assert "default" in {item.metadata.name for item in core.list_namespace().items}
    review = kubernetes.client.AuthorizationV1Api(client).create_self_subject_access_review(
        {"spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}}
    )
    assert review.status.allowed is True
