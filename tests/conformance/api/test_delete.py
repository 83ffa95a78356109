"""Deletion: preconditions, finalizers, propagation, and what the owner's end does to dependents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.api.stream import PATIENCE, said, take
from conformance.bodies import core, metadata, pod, sandbox
from sandpool.kube.api import Api, EventType, Preconditions, Propagation
from sandpool.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from sandpool.model.kinds import CONFIG_MAPS, NAMESPACES, PODS, SANDBOXES
from sandpool.model.metadata import Revision, Uid
from sandpool.model.patches import merge_patch
from sandpool.model.sandbox import Sandbox
from support.api.implementations import Implementation


async def test_delete(api: Api, ns: str) -> None:
    await api.create(SANDBOXES, sandbox("s"), ns)
    assert await api.delete(SANDBOXES, "s", ns) is None
    with pytest.raises(NotFound):
        await api.get(SANDBOXES, "s", ns)
    with pytest.raises(NotFound) as caught:
        await api.delete(SANDBOXES, "s", ns)
    assert caught.value.message == 'sandboxes.agents.x-k8s.io "s" not found'


async def test_preconditions(api: Api, ns: str) -> None:
    made = await api.create(SANDBOXES, sandbox("s"), ns)
    moved = await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {"a": "b"}}}), ns)
    uid, now, before = made.metadata.uid, moved.metadata.revision, made.metadata.revision
    for preconditions in (
        Preconditions(uid=Uid("other")),
        Preconditions(revision=before),
        Preconditions(uid=uid, revision=before),
        Preconditions(uid=Uid("other"), revision=now),
        Preconditions(revision=Revision(now + 1)),
    ):
        with pytest.raises(Conflict) as caught:
            await api.delete(SANDBOXES, "s", ns, preconditions=preconditions)
        assert (caught.value.code, caught.value.word) == (409, "Conflict")
        assert await api.get(SANDBOXES, "s", ns) == moved
    assert await api.delete(SANDBOXES, "s", ns, preconditions=Preconditions(uid=uid, revision=now)) is None


async def test_preconditions_of_an_object_made_anew(api: Api, ns: str) -> None:
    old = await api.create(SANDBOXES, sandbox("s"), ns)
    await api.delete(SANDBOXES, "s", ns)
    new = await api.create(SANDBOXES, sandbox("s"), ns)
    with pytest.raises(Conflict):
        await api.delete(SANDBOXES, "s", ns, preconditions=Preconditions(uid=old.metadata.uid))
    assert await api.get(SANDBOXES, "s", ns) == new


async def test_delete_races_a_patch_with_preconditions(api: Api, ns: str) -> None:
    """Either the delete came first and the patch found nothing, or the patch came first and the delete was refused."""
    for i in range(5):
        made = await api.create(SANDBOXES, sandbox(f"s{i}"), ns)
        delete = api.delete(SANDBOXES, f"s{i}", ns, preconditions=Preconditions(revision=made.metadata.revision))
        patch = api.patch(SANDBOXES, f"s{i}", merge_patch({"metadata": {"labels": {"a": "b"}}}), ns)
        deleted, patched = await asyncio.gather(delete, patch, return_exceptions=True)
        assert (deleted is None, isinstance(deleted, Conflict)) in ((True, False), (False, True)), deleted
        assert isinstance(patched, NotFound if deleted is None else Sandbox), patched


async def test_finalizers_hold_an_object(api: Api, ns: str) -> None:
    held = await api.create(
        SANDBOXES, sandbox(metadata=metadata("s", finalizers=["example.com/a", "example.com/b"])), ns
    )
    marked = await api.delete(SANDBOXES, "s", ns)
    assert marked is not None
    assert marked.metadata.leaving
    assert marked.metadata.deletion_grace_period_seconds == 0
    assert marked.metadata.generation == held.metadata.generation + 1
    assert await api.get(SANDBOXES, "s", ns) == marked
    assert await api.delete(SANDBOXES, "s", ns) == marked  # again: nothing new
    with pytest.raises(AlreadyExists) as caught:
        await api.create(SANDBOXES, sandbox("s"), ns)
    assert caught.value.message == 'object is being deleted: sandboxes.agents.x-k8s.io "s" already exists'
    more = {"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}}
    with pytest.raises(Invalid) as refused:
        await api.patch(SANDBOXES, "s", merge_patch(more), ns)
    assert {(c.reason, c.field) for c in refused.value.causes} == {("FieldValueForbidden", "metadata.finalizers")}
    fewer = await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"finalizers": ["example.com/b"]}}), ns)
    assert fewer.metadata.deletion_timestamp == marked.metadata.deletion_timestamp
    last = await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"finalizers": None}}), ns)
    assert last.metadata.finalizers == ()
    with pytest.raises(NotFound):
        await api.get(SANDBOXES, "s", ns)


async def test_watchers_see_a_held_delete_as_a_change_first(api: Api, ns: str) -> None:
    made = await api.create(SANDBOXES, sandbox(metadata=metadata("s", finalizers=["example.com/a"])), ns)
    async with api.watch(SANDBOXES, ns, since=made.metadata.revision) as events:
        await api.delete(SANDBOXES, "s", ns)
        await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"finalizers": None}}), ns)
        first, second = await take(events, 2)
    assert (first.type, second.type) == (EventType.MODIFIED, EventType.DELETED)
    assert first.object is not None
    assert second.object is not None
    assert first.object.metadata.leaving
    assert second.object.metadata.revision == second.revision > first.revision


async def test_a_leaving_object_can_still_change(api: Api, ns: str) -> None:
    await api.create(SANDBOXES, sandbox(metadata=metadata("s", finalizers=["example.com/a"])), ns)
    await api.delete(SANDBOXES, "s", ns)
    reported = await api.patch_status(SANDBOXES, "s", merge_patch({"status": {"nodeName": "n"}}), ns)
    assert (reported.metadata.leaving, reported.status.node_name) == (True, "n")
    kept = await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"deletionTimestamp": None}}), ns)
    assert kept.metadata.leaving
    await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"finalizers": None}}), ns)


def owned_by(owner: Any, **more: Any) -> dict[str, Any]:
    reference = {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
    }
    return {**reference, **more}


async def gone(api: Api, resource: Any, name: str, ns: str) -> None:
    """Waits for the end of an object by watching, as anybody would."""
    listed = await api.list(resource, ns, fields=f"metadata.name={name}")
    if not listed.items:
        return
    async with (
        asyncio.timeout(PATIENCE * 5),
        api.watch(resource, ns, fields=f"metadata.name={name}", since=listed.revision) as events,
    ):
        async for event in events:
            if event.type is EventType.DELETED:
                return
    raise AssertionError(f"the watch ended before {name} was gone")


async def test_background_deletion_collects_dependents(cluster: Implementation, api: Api, ns: str) -> None:
    owner = await api.create(SANDBOXES, sandbox("owner"), ns)
    await api.create(CONFIG_MAPS, core("ConfigMap", metadata=metadata("child", ownerReferences=[owned_by(owner)])), ns)
    await api.create(CONFIG_MAPS, core("ConfigMap", metadata=metadata("free")), ns)
    assert await api.delete(SANDBOXES, "owner", ns, propagation=Propagation.BACKGROUND) is None
    if cluster.collects:
        await gone(api, CONFIG_MAPS, "child", ns)
    assert (await api.get(CONFIG_MAPS, "free", ns)).metadata.name == "free"


async def test_foreground_deletion_waits_for_dependents(cluster: Implementation, api: Api, ns: str) -> None:
    owner = await api.create(SANDBOXES, sandbox("owner"), ns)
    child = metadata("child", ownerReferences=[owned_by(owner, blockOwnerDeletion=True)], finalizers=["example.com/a"])
    await api.create(CONFIG_MAPS, core("ConfigMap", metadata=child), ns)
    marked = await api.delete(SANDBOXES, "owner", ns, propagation=Propagation.FOREGROUND)
    assert marked is not None
    assert marked.metadata.leaving
    assert marked.metadata.finalizers == ("foregroundDeletion",)
    if not cluster.collects:
        return
    async with asyncio.timeout(PATIENCE * 2), api.watch(CONFIG_MAPS, ns, initial=True) as events:
        async for event in events:
            if event.object is not None and event.object.metadata.leaving:
                break
    assert (await api.get(SANDBOXES, "owner", ns)).metadata.finalizers == ("foregroundDeletion",)
    await api.patch(CONFIG_MAPS, "child", merge_patch({"metadata": {"finalizers": None}}), ns)
    await gone(api, CONFIG_MAPS, "child", ns)
    await gone(api, SANDBOXES, "owner", ns)


async def test_orphans_are_left_alone(cluster: Implementation, api: Api, ns: str) -> None:
    owner = await api.create(SANDBOXES, sandbox("owner"), ns)
    await api.create(CONFIG_MAPS, core("ConfigMap", metadata=metadata("child", ownerReferences=[owned_by(owner)])), ns)
    marked = await api.delete(SANDBOXES, "owner", ns, propagation=Propagation.ORPHAN)
    assert marked is not None
    assert marked.metadata.finalizers == ("orphan",)
    if cluster.collects:
        await gone(api, SANDBOXES, "owner", ns)
        assert (await api.get(CONFIG_MAPS, "child", ns)).metadata.owner_references == ()


async def test_a_dependent_stays_while_one_owner_lives(cluster: Implementation, api: Api, ns: str) -> None:
    if not cluster.collects:
        pytest.skip("nobody collects here")
    first = await api.create(SANDBOXES, sandbox("first"), ns)
    second = await api.create(SANDBOXES, sandbox("second"), ns)
    owners = [owned_by(first), owned_by(second)]
    await api.create(CONFIG_MAPS, core("ConfigMap", metadata=metadata("shared", ownerReferences=owners)), ns)
    await api.create(CONFIG_MAPS, core("ConfigMap", metadata=metadata("single", ownerReferences=owners[:1])), ns)
    await api.delete(SANDBOXES, "first", ns)
    await gone(api, CONFIG_MAPS, "single", ns)
    assert (await api.get(CONFIG_MAPS, "shared", ns)).metadata.name == "shared"


async def test_an_owner_uid_that_never_was_is_absent(cluster: Implementation, api: Api, ns: str) -> None:
    """Although its name lives on."""
    if not cluster.collects:
        pytest.skip("nobody collects here")
    owner = await api.create(SANDBOXES, sandbox("owner"), ns)
    stale = owned_by(owner) | {"uid": "00000000-0000-0000-0000-000000000001"}
    await api.create(CONFIG_MAPS, core("ConfigMap", metadata=metadata("child", ownerReferences=[stale])), ns)
    await gone(api, CONFIG_MAPS, "child", ns)
    assert await api.get(SANDBOXES, "owner", ns) == owner


async def test_an_owner_in_a_version_that_is_not_served_is_not_looked_for(
    cluster: Implementation, api: Api, ns: str
) -> None:
    """Neither found nor missed: whoever stops serving a version first rewrites the references that name it."""
    if not cluster.collects:
        pytest.skip("nobody collects here")
    owner = await api.create(SANDBOXES, sandbox("owner"), ns)
    old = owned_by(owner, apiVersion="agents.x-k8s.io/v1alpha1")
    for name, reference in (("old", old), ("new", owned_by(owner))):
        await api.create(CONFIG_MAPS, core("ConfigMap", metadata=metadata(name, ownerReferences=[reference])), ns)
    await api.delete(SANDBOXES, "owner", ns)
    await gone(api, CONFIG_MAPS, "new", ns)
    assert (await api.get(CONFIG_MAPS, "old", ns)).metadata.name == "old"
    await api.patch(CONFIG_MAPS, "old", merge_patch({"metadata": {"ownerReferences": [owned_by(owner)]}}), ns)
    await gone(api, CONFIG_MAPS, "old", ns)


async def test_namespace_deletion_takes_everything_along(cluster: Implementation, api: Api, ns: str) -> None:
    await api.create(SANDBOXES, sandbox("a"), ns)
    await api.create(PODS, pod("p"), ns)
    await api.create(SANDBOXES, sandbox(metadata=metadata("held", finalizers=["example.com/a"])), ns)
    marked = await api.delete(NAMESPACES, ns)
    assert marked is not None
    assert marked.status.phase == "Terminating"
    with pytest.raises(Forbidden) as caught:
        await api.create(SANDBOXES, sandbox("late"), ns)
    assert (caught.value.code, caught.value.word) == (403, "Forbidden")
    assert [(c.reason, c.field) for c in caught.value.causes] == [("NamespaceTerminating", "metadata.namespace")]
    assert f"unable to create new content in namespace {ns} because it is being terminated" in caught.value.message
    if not cluster.collects:
        return
    await gone(api, SANDBOXES, "a", ns)
    await api.patch(SANDBOXES, "held", merge_patch({"metadata": {"finalizers": None}}), ns)
    await gone(api, NAMESPACES, ns, "")
    assert (await api.list(SANDBOXES, ns)).items == ()
    assert (await api.list(PODS, ns)).items == ()
    await api.create(NAMESPACES, {"metadata": {"name": ns}})


async def test_pods_go_at_once_or_keep_their_grace(api: Api, ns: str) -> None:
    """A pod that no node has seen needs no goodbye; one on a node stays until its node says that it is over."""
    await api.create(PODS, pod("unbound"), ns)
    await api.delete(PODS, "unbound", ns, grace=30)
    with pytest.raises(NotFound):
        await api.get(PODS, "unbound", ns)
    await api.create(PODS, pod("bound", nodeName="n"), ns)
    async with api.watch(PODS, ns, since=(await api.list(PODS, ns)).revision) as events:
        marked = await api.delete(PODS, "bound", ns, grace=7)
        assert marked is not None
        assert (marked.metadata.leaving, marked.metadata.deletion_grace_period_seconds) == (True, 7)
        await api.delete(PODS, "bound", ns, grace=0)
        seen = await take(events, 2)
    assert said(seen) in (
        [("MODIFIED", "bound"), ("DELETED", "bound")],
        [("MODIFIED", "bound"), ("MODIFIED", "bound")],  # a real server marks it once more before it removes it
    )
    with pytest.raises(NotFound):
        await api.get(PODS, "bound", ns)
