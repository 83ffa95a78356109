"""POST: identity, names, namespaces, and what a body may not bring along."""

from __future__ import annotations

import pytest

from sandpool.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from sandpool.model import kinds
from support.api.local_objects import Bench, claim, config_map, pod


async def test_server_decides_identity(b: Bench) -> None:
    made = await b.create(
        kinds.CLAIMS,
        {
            **claim(
                "x", uid="mine", generation=7, deletionTimestamp="2020-01-01T00:00:00Z", deletionGracePeriodSeconds=3
            ),
            "status": {"sandbox": {"name": "stolen"}},
        },
    )
    metadata = made["metadata"]
    assert metadata["uid"] != "mine"
    assert metadata["generation"] == 1
    assert metadata["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert metadata["namespace"] == "default"
    assert metadata["resourceVersion"] == str(b.store.revision)
    assert "deletionTimestamp" not in metadata
    assert "deletionGracePeriodSeconds" not in metadata
    assert "status" not in made
    assert list(made)[:3] == ["apiVersion", "kind", "metadata"]
    assert made == b.get(kinds.CLAIMS, "x")


async def test_body_is_not_changed(b: Bench) -> None:
    body = claim("x", managedFields=[{"manager": "kubectl"}])
    before = repr(body)
    made = await b.create(kinds.CLAIMS, body)
    assert repr(body) == before
    assert "managedFields" not in made["metadata"]


async def test_same_name_twice(b: Bench) -> None:
    await b.create(kinds.SANDBOXES, {**pod("x"), "spec": {"podTemplate": {"spec": pod()["spec"]}}})
    with pytest.raises(AlreadyExists) as caught:
        await b.create(kinds.SANDBOXES, {**pod("x"), "spec": {"podTemplate": {"spec": pod()["spec"]}}})
    assert caught.value.message == 'sandboxes.agents.x-k8s.io "x" already exists'
    assert caught.value.details == {"name": "x", "group": "agents.x-k8s.io", "kind": "sandboxes"}


async def test_name_of_a_leaving_object(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim("x", finalizers=["a.b/c"]))
    await b.delete(kinds.CLAIMS, "x")
    with pytest.raises(
        AlreadyExists, match=r'^object is being deleted: sandboxclaims\.extensions.* "x" already exists$'
    ):
        await b.create(kinds.CLAIMS, claim("x"))


async def test_generated_name_avoids_what_is_there(b: Bench) -> None:
    b.names = ["aaaaa", "aaaaa", "bbbbb"]
    body = {"metadata": {"generateName": "c-"}, "data": {}}
    assert (await b.create(kinds.CONFIG_MAPS, body))["metadata"]["name"] == "c-aaaaa"
    second = (await b.create(kinds.CONFIG_MAPS, body))["metadata"]
    assert (second["name"], second["generateName"]) == ("c-bbbbb", "c-")


async def test_generated_name_is_cut_to_what_a_label_holds(b: Bench) -> None:
    b.names = ["aaaaa"]
    made = await b.create(kinds.CONFIG_MAPS, {"metadata": {"generateName": "c" * 70}})
    assert made["metadata"]["name"] == "c" * 58 + "aaaaa"


async def test_generated_names_run_out(b: Bench) -> None:
    b.names = ["aaaaa"] * 9
    await b.create(kinds.CONFIG_MAPS, {"metadata": {"generateName": "c-"}})
    with pytest.raises(AlreadyExists, match=r"was not able to generate a unique name"):
        await b.create(kinds.CONFIG_MAPS, {"metadata": {"generateName": "c-"}})


async def test_no_name_at_all(b: Bench) -> None:
    with pytest.raises(Invalid) as caught:
        await b.create(kinds.CLAIMS, {"spec": {"warmPoolRef": {"name": "p"}}})
    assert [(c.field, c.reason) for c in caught.value.causes] == [("metadata.name", "FieldValueRequired")]


async def test_resource_version_must_be_empty(b: Bench) -> None:
    with pytest.raises(BadRequest, match=r"resourceVersion should not be set on objects to be created"):
        await b.create(kinds.CONFIG_MAPS, config_map(resourceVersion="5"))
    assert b.absent(kinds.CONFIG_MAPS, "c")


async def test_another_namespace_in_the_body(b: Bench) -> None:
    with pytest.raises(BadRequest) as caught:
        await b.create(kinds.CONFIG_MAPS, config_map(namespace="other"))
    assert caught.value.message == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )


async def test_namespace_of_a_cluster_scoped_object_is_dropped(b: Bench) -> None:
    made = await b.create(kinds.NODES, {"metadata": {"name": "n", "namespace": "default"}})
    assert "namespace" not in made["metadata"]


async def test_namespace_must_exist(b: Bench) -> None:
    with pytest.raises(NotFound) as caught:
        await b.create(kinds.CONFIG_MAPS, config_map(), namespace="nope")
    assert caught.value.message == 'namespaces "nope" not found'
    assert caught.value.details == {"name": "nope", "kind": "namespaces"}


async def test_terminating_namespace_takes_nothing_new(b: Bench) -> None:
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
    await b.create(kinds.CONFIG_MAPS, config_map("before"), namespace="t")
    await b.delete(kinds.NAMESPACES, "t")
    with pytest.raises(Forbidden) as caught:
        await b.create(kinds.CONFIG_MAPS, config_map("after"), namespace="t")
    assert caught.value.message == (
        'configmaps "after" is forbidden: unable to create new content in namespace t because it is being terminated'
    )
    (cause,) = caught.value.causes
    assert (cause.reason, cause.message, cause.field) == (
        "NamespaceTerminating",
        "namespace t is being terminated",
        "metadata.namespace",
    )
    with pytest.raises(Forbidden, match=r'^configmaps "some-" is forbidden'):
        await b.create(kinds.CONFIG_MAPS, {"metadata": {"generateName": "some-"}}, namespace="t")
    changed = await b.patch(kinds.CONFIG_MAPS, "before", {"data": {"still": "changes"}}, namespace="t")
    assert changed["data"]["still"] == "changes"


async def test_a_recreated_namespace_takes_objects_again(b: Bench) -> None:
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
    await b.delete(kinds.NAMESPACES, "t")
    await b.put(kinds.NAMESPACES, "t", {"metadata": {"name": "t"}, "spec": {"finalizers": []}}, "finalize")
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
    await b.create(kinds.CONFIG_MAPS, config_map(), namespace="t")


async def test_other_kind_and_version(b: Bench) -> None:
    with pytest.raises(BadRequest, match=r"^the API version in the data \(v1\) does not match the expected"):
        await b.create(kinds.CLAIMS, {**claim(), "apiVersion": "v1"})
    with pytest.raises(BadRequest, match=r'^Pod in version "v1" cannot be handled as a ConfigMap'):
        await b.create(kinds.CONFIG_MAPS, {**config_map(), "apiVersion": "v1", "kind": "Pod"})


async def test_unreadable_metadata_is_told_as_a_server_tells_it(b: Bench) -> None:
    with pytest.raises(BadRequest, match=r"cannot be handled as a SandboxClaim: json: cannot unmarshal string"):
        await b.create(kinds.CLAIMS, {"metadata": "x", "spec": {}})
    with pytest.raises(BadRequest, match=r"cannot be handled as a SandboxClaim: json: cannot unmarshal number"):
        await b.create(kinds.CLAIMS, {"metadata": {"name": 5}, "spec": {"warmPoolRef": {"name": "p"}}})


async def test_dry_run_stores_nothing(b: Bench) -> None:
    revision = b.store.revision
    made = await b.create(kinds.CLAIMS, claim(), dry_run=True)
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    assert b.store.revision == revision
    assert b.absent(kinds.CLAIMS, "x")


async def test_new_pod_is_pending(b: Bench) -> None:
    made = await b.create(kinds.PODS, {**pod(), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    assert made["metadata"]["generation"] == 1


async def test_owner_named_twice_is_kept_once(b: Bench) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    other = {**owner, "controller": True}
    written = await b.objects.create(kinds.CONFIG_MAPS, "default", config_map(ownerReferences=[owner, other, owner]))
    assert b.get(kinds.CONFIG_MAPS, "c")["metadata"]["ownerReferences"] == [owner, other]
    (warning,) = written.warnings
    assert warning.startswith(".metadata.ownerReferences contains duplicate entries; API server dedups")
    assert warning.endswith("duplicate UID(s) observed: u")


async def test_times_of_the_client_are_read_before_they_are_dropped(b: Bench) -> None:
    made = await b.create(kinds.CONFIG_MAPS, config_map("a", creationTimestamp="2001-01-01T00:00:00Z"))
    assert made["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    with pytest.raises(BadRequest):
        await b.create(kinds.CONFIG_MAPS, config_map("b", creationTimestamp="yesterday"))
