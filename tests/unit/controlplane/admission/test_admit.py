"""What an admitted object shares with what was sent and what was there, and what only the server decides."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controlplane.admission.admit import FieldValidation, admit
from sandpool.controlplane.admission.causes import Refusal
from sandpool.kube.errors import BadRequest, Invalid
from sandpool.model import kinds

SYSTEM = {"uid": "u", "resourceVersion": "7", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z"}
BOX: dict[str, Any] = {
    "apiVersion": "agents.x-k8s.io/v1beta1",
    "kind": "Sandbox",
    "metadata": {"name": "box", "namespace": "here", "labels": {"a": "b"}},
    "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "x"}]}}},
}


def stored(**more: Any) -> dict[str, Any]:
    body = admit(kinds.SANDBOXES, BOX, None).body
    return {**body, "metadata": {**body["metadata"], **SYSTEM}, **more}


def with_metadata(body: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], **changes}}


def test_a_patch_of_metadata_leaves_everything_else_the_same_object() -> None:
    old = stored(status={"podIPs": ["10.0.0.1"]})
    new = with_metadata(old, annotations={"k": "v"})
    body = admit(kinds.SANDBOXES, new, old).body
    assert body is new
    assert body["spec"] is old["spec"]


def test_what_was_stored_is_not_checked_again() -> None:
    old = stored(spec={"podTemplate": "nonsense that an older version let in"})
    assert admit(kinds.SANDBOXES, with_metadata(old, labels={"x": "y"}), old).body["spec"] is old["spec"]


def test_system_fields_are_those_of_the_stored_object() -> None:
    old = with_metadata(stored(), deletionTimestamp="2026-02-02T00:00:00Z", deletionGracePeriodSeconds=5)
    new = {**old, "metadata": {"name": "box", "namespace": "here", "generation": 99, "resourceVersion": "7"}}
    assert admit(kinds.SANDBOXES, new, old).body["metadata"] == {
        **{name: value for name, value in old["metadata"].items() if name != "labels"}
    }


def test_an_object_that_is_leaving_gets_no_new_finalizers() -> None:
    old = with_metadata(stored(), deletionTimestamp="2026-02-02T00:00:00Z", finalizers=["a.b/c"])
    with pytest.raises(Invalid) as refused:
        admit(kinds.SANDBOXES, with_metadata(old, finalizers=["a.b/c", "a.b/d"]), old)
    assert refused.value.causes[0].message == (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"a.b/d"}'
    )


@pytest.mark.parametrize("field", ["name", "namespace", "uid"])
def test_identity_is_immutable(field: str) -> None:
    old = stored()
    with pytest.raises(Invalid) as refused:
        admit(kinds.SANDBOXES, with_metadata(old, **{field: "other"}), old)
    assert {(c.field, c.message) for c in refused.value.causes} == {
        (f"metadata.{field}", 'Invalid value: "other": field is immutable')
    }


def test_a_status_update_takes_only_the_status() -> None:
    old = stored()
    new = {**with_metadata(old, labels={"bad": "b c"}), "spec": 5, "status": {"podIPs": ["10.0.0.1"]}}
    body = admit(kinds.SANDBOXES, new, old, subresource="status").body
    assert body == {**old, "status": {"podIPs": ["10.0.0.1"]}}
    assert body["spec"] is old["spec"]
    assert admit(kinds.SANDBOXES, old, body, subresource="status").body == old


def test_an_update_keeps_the_status() -> None:
    old = stored(status={"podIPs": ["10.0.0.1"]})
    assert admit(kinds.SANDBOXES, {**old, "status": {"podIPs": []}}, old).body["status"] is old["status"]
    without = {name: value for name, value in old.items() if name != "status"}
    assert admit(kinds.SANDBOXES, without, old).body["status"] is old["status"]


def test_annotations_have_a_size() -> None:
    fits = with_metadata(BOX, annotations={"k": "v" * (256 * 1024 - 1)})
    assert admit(kinds.SANDBOXES, fits, None)
    with pytest.raises(Invalid, match=r"metadata\.annotations: Too long: may not be more than 262144 bytes"):
        admit(kinds.SANDBOXES, with_metadata(BOX, annotations={"k": "é" * (128 * 1024)}), None)


def test_repeated_owners_are_kept_once_with_a_warning() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1"}
    admitted = admit(kinds.SANDBOXES, with_metadata(BOX, ownerReferences=[owner, dict(owner)]), None)
    assert admitted.body["metadata"]["ownerReferences"] == [owner]
    assert admitted.warnings[0].endswith("duplicate UID(s) observed: 1")


def test_a_refusal_carries_the_warnings() -> None:
    bad = {**BOX, "spec": {**BOX["spec"], "operatingMode": "Off", "tint": 1}}
    with pytest.raises(Refusal) as refused:
        admit(kinds.SANDBOXES, bad, None)
    assert refused.value.warnings == ('unknown field "spec.tint"',)


def test_strict_refuses_before_anything_else() -> None:
    bad = {**BOX, "spec": {**BOX["spec"], "operatingMode": "Off", "tint": 1}}
    with pytest.raises(BadRequest, match=r'strict decoding error: unknown field "spec\.tint"'):
        admit(kinds.SANDBOXES, bad, None, validation=FieldValidation.STRICT)


def test_secrets_and_maps_have_a_size() -> None:
    meta = {"name": "s", "namespace": "here"}
    with pytest.raises(Invalid, match="data: Too long: may not be more than 1048576 bytes"):
        admit(kinds.SECRETS, {"metadata": meta, "stringData": {"k": "x" * (1024 * 1024 + 1)}}, None)
    assert admit(kinds.SECRETS, {"metadata": meta, "stringData": {"k": "x" * 1024 * 1024}}, None)
    with pytest.raises(Invalid, match="Too long: may not be more than 1048576 bytes"):
        admit(kinds.CONFIG_MAPS, {"metadata": meta, "data": {"k": "x" * (1024 * 1024 + 1)}}, None)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}, "Guaranteed"),
    ],
)
def test_pods_get_their_class(resources: dict[str, Any], expected: str) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "here"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]},
    }
    assert admit(kinds.PODS, pod, None).body["status"] == {"phase": "Pending", "qosClass": expected}
