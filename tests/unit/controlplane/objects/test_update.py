"""PUT: preconditions, what each subresource may touch, generation, and writes that change nothing."""

from __future__ import annotations

import pytest

from sandpool.controlplane.objects.change import differs
from sandpool.kube.errors import BadRequest, Conflict, Invalid, NotFound
from sandpool.model import kinds
from support.api.local_objects import Bench, claim, config_map, pod, sandbox


async def test_custom_resources_need_a_revision(b: Bench) -> None:
    await b.create(kinds.SANDBOXES, sandbox())
    with pytest.raises(Invalid) as caught:
        await b.put(kinds.SANDBOXES, "x", sandbox())
    assert caught.value.message == (
        'sandboxes.agents.x-k8s.io "x" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update'
    )
    assert [(c.field, c.reason) for c in caught.value.causes] == [("metadata.resourceVersion", "FieldValueInvalid")]


async def test_core_kinds_overwrite_without_one(b: Bench) -> None:
    made = await b.create(kinds.CONFIG_MAPS, config_map())
    put = await b.put(kinds.CONFIG_MAPS, "c", {"metadata": {"name": "c"}, "data": {"new": "1"}})
    assert put["data"] == {"new": "1"}
    assert put["metadata"]["uid"] == made["metadata"]["uid"]
    assert put["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


async def test_leases_do_not(b: Bench) -> None:
    await b.create(kinds.LEASES, {"metadata": {"name": "l"}})
    with pytest.raises(Invalid, match=r"must be specified for an update"):
        await b.put(kinds.LEASES, "l", {"metadata": {"name": "l"}})


async def test_stale_revision(b: Bench) -> None:
    made = await b.create(kinds.SANDBOXES, sandbox())
    await b.patch(kinds.SANDBOXES, "x", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Conflict) as caught:
        await b.put(kinds.SANDBOXES, "x", made)
    assert caught.value.message == (
        'Operation cannot be fulfilled on sandboxes.agents.x-k8s.io "x": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert caught.value.details == {"name": "x", "group": "agents.x-k8s.io", "kind": "sandboxes"}


async def test_another_uid(b: Bench) -> None:
    made = await b.create(kinds.CONFIG_MAPS, config_map())
    uid = made["metadata"]["uid"]
    with pytest.raises(Conflict, match=f"Precondition failed: UID in precondition: old, UID in object meta: {uid}$"):
        await b.put(kinds.CONFIG_MAPS, "c", config_map(uid="old"))


async def test_unreadable_revision(b: Bench) -> None:
    await b.create(kinds.CONFIG_MAPS, config_map())
    for text in ("abc", "-1", "1.5", "9" * 30):
        with pytest.raises(BadRequest, match=r"resourceVersion: Invalid value"):
            await b.put(kinds.CONFIG_MAPS, "c", config_map(resourceVersion=text))


async def test_names_must_agree(b: Bench) -> None:
    await b.create(kinds.CONFIG_MAPS, config_map())
    with pytest.raises(BadRequest, match=r"^the name of the object \(d\) does not match the name on the URL \(c\)$"):
        await b.put(kinds.CONFIG_MAPS, "c", config_map("d"))
    with pytest.raises(BadRequest, match=r"^the name of the object \(c based on URL\) was undeterminable"):
        await b.put(kinds.CONFIG_MAPS, "c", {"data": {}})
    with pytest.raises(BadRequest, match=r"does not match the namespace sent on the request"):
        await b.put(kinds.CONFIG_MAPS, "c", config_map(namespace="other"))


@pytest.mark.parametrize(
    ("resource", "body", "creates"),
    [
        (kinds.CONFIG_MAPS, config_map("n"), False),
        (kinds.CLAIMS, claim("n", resourceVersion="1"), False),
        (kinds.SECRETS, {"metadata": {"name": "n"}}, False),
        (kinds.NETWORK_POLICIES, {"metadata": {"name": "n"}, "spec": {"podSelector": {}}}, False),
        (kinds.LEASES, {"metadata": {"name": "n"}}, True),
        (kinds.SERVICES, {"metadata": {"name": "n"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}, True),
        (kinds.EVENTS, {"metadata": {"name": "n"}, "involvedObject": {"namespace": "default"}}, True),
        (kinds.RUNTIME_CLASSES, {"metadata": {"name": "n"}, "handler": "h"}, True),
    ],
    ids=lambda value: getattr(value, "plural", ""),
)
async def test_put_of_an_absent_name(b: Bench, resource, body, creates) -> None:  # type: ignore[no-untyped-def]
    if creates:
        assert (await b.put(resource, "n", body))["metadata"]["uid"]
    else:
        with pytest.raises(NotFound, match=f'^{resource.group_resource} "n" not found$'):
            await b.put(resource, "n", body)


async def test_put_that_creates_takes_any_revision_but_no_uid(b: Bench) -> None:
    with pytest.raises(Conflict, match=r"UID in precondition: gone, UID in object meta: $"):
        await b.put(kinds.LEASES, "l", {"metadata": {"name": "l", "uid": "gone"}})
    made = await b.put(kinds.LEASES, "l", {"metadata": {"name": "l", "resourceVersion": "5"}})
    assert made["metadata"]["resourceVersion"] == str(b.store.revision)


async def test_object_write_leaves_status_alone(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    bound = await b.patch(kinds.CLAIMS, "x", {"status": {"sandbox": {"name": "s"}}}, "status")
    put = await b.put(
        kinds.CLAIMS,
        "x",
        {**bound, "status": {"sandbox": {"name": "other"}}, "metadata": {**bound["metadata"], "labels": {"a": "b"}}},
    )
    assert put["status"] == {"sandbox": {"name": "s"}}
    assert put["metadata"]["labels"] == {"a": "b"}


async def test_status_write_of_a_custom_resource_leaves_all_else_alone(b: Bench) -> None:
    made = await b.create(kinds.CLAIMS, claim(labels={"a": "b"}))
    changed = {
        **made,
        "metadata": {**made["metadata"], "labels": {"z": "z"}, "finalizers": ["a.b/c"]},
        "spec": {"warmPoolRef": {"name": "other"}},
        "status": {"sandbox": {"name": "s"}},
    }
    put = await b.put(kinds.CLAIMS, "x", changed, "status")
    assert put["status"] == {"sandbox": {"name": "s"}}
    assert put["spec"] == made["spec"]
    expected = {**made["metadata"], "resourceVersion": put["metadata"]["resourceVersion"]}
    assert put["metadata"] == expected


async def test_status_write_of_a_pod_may_carry_labels_but_no_owners(b: Bench) -> None:
    await b.create(kinds.PODS, pod())
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    patched = await b.patch(
        kinds.PODS,
        "p",
        {"metadata": {"labels": {"a": "b"}, "ownerReferences": [owner]}, "status": {"phase": "Running"}},
        "status",
    )
    assert patched["metadata"]["labels"] == {"a": "b"}
    assert "ownerReferences" not in patched["metadata"]
    assert patched["status"]["phase"] == "Running"
    assert patched["metadata"]["generation"] == 1


async def test_kind_without_status_subresource(b: Bench) -> None:
    await b.create(kinds.CONFIG_MAPS, config_map())
    with pytest.raises(NotFound, match=r"^the server could not find the requested resource$"):
        await b.patch(kinds.CONFIG_MAPS, "c", {"status": {}}, "status")


async def test_generation_counts_what_is_wanted(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())

    async def generation_after(patch: dict, subresource: str = "") -> int:  # type: ignore[type-arg]
        made: int = (await b.patch(kinds.CLAIMS, "x", patch, subresource))["metadata"]["generation"]
        return made

    assert await generation_after({"metadata": {"labels": {"a": "b"}}}) == 1
    assert await generation_after({"status": {"sandbox": {"name": "s"}}}, "status") == 1
    assert await generation_after({"metadata": {"generation": 99}}) == 1
    assert await generation_after({"spec": {"additionalPodMetadata": {"labels": {"c": "d"}}}}) == 2
    assert await generation_after({"spec": {"additionalPodMetadata": None}}) == 3
    assert await generation_after({"spec": {"additionalPodMetadata": None}}) == 3


async def test_core_kinds_without_generation(b: Bench) -> None:
    made = await b.create(kinds.CONFIG_MAPS, config_map())
    assert "generation" not in made["metadata"]
    patched = await b.patch(kinds.CONFIG_MAPS, "c", {"data": {"x": "y"}})
    assert "generation" not in patched["metadata"]


async def test_network_policies_count_too(b: Bench) -> None:
    await b.create(kinds.NETWORK_POLICIES, {"metadata": {"name": "n"}, "spec": {"podSelector": {}}})
    patched = await b.patch(kinds.NETWORK_POLICIES, "n", {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}})
    assert patched["metadata"]["generation"] == 2


async def test_no_difference_stores_nothing(b: Bench) -> None:
    made = await b.create(kinds.CLAIMS, claim(labels={"a": "b"}))
    revision = b.store.revision
    for again in (
        await b.put(kinds.CLAIMS, "x", made),
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"labels": {"a": "b"}}}),
        await b.patch(kinds.CLAIMS, "x", [{"op": "test", "path": "/metadata/name", "value": "x"}]),
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}),
    ):
        assert again == made
    assert b.store.revision == revision


def test_one_and_true_are_different() -> None:
    """Python calls them equal; a write that turns one into the other is a change."""
    assert not differs({"a": {"b": [1, "x"]}}, {"a": {"b": [1, "x"]}})
    assert not differs({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}})
    assert differs({"a": {"b": 1}}, {"a": {"b": True}})
    assert differs({"a": {"b": 1}}, {"a": {"b": 1.0}})
    assert differs({"a": 1}, {"b": 1})
    assert differs({"a": None}, {})


async def test_namespace_finalizers_change_only_through_finalize(b: Bench) -> None:
    made = await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert (await b.patch(kinds.NAMESPACES, "t", {"spec": {"finalizers": None}}))["spec"] == made["spec"]
    emptied = await b.put(kinds.NAMESPACES, "t", {"metadata": {"name": "t"}, "spec": {"finalizers": []}}, "finalize")
    assert not emptied["spec"].get("finalizers")
    assert not b.absent(kinds.NAMESPACES, "t")
