"""DELETE: preconditions, finalizers, propagation, grace periods, namespaces, collections."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.controlplane.objects.collection import delete_each
from sandpool.controlplane.objects.options import DeleteOptions, ListQuery
from sandpool.kube.api import Preconditions, Propagation
from sandpool.kube.errors import Conflict, Forbidden, Invalid, NotFound
from sandpool.model import kinds
from sandpool.model.metadata import Revision, Uid
from support.api.local_objects import Bench, claim, config_map, pod, read, sandbox


async def test_without_finalizers_it_goes_at_once(b: Bench) -> None:
    made = await b.create(kinds.CLAIMS, claim())
    deleted = await b.delete(kinds.CLAIMS, "x")
    assert deleted.finished
    last = read(deleted.record)
    assert last["metadata"] == {**made["metadata"], "resourceVersion": str(b.store.revision)}
    with pytest.raises(NotFound):
        await b.delete(kinds.CLAIMS, "x")


async def test_wrong_uid(b: Bench) -> None:
    uid = (await b.create(kinds.SANDBOXES, sandbox()))["metadata"]["uid"]
    with pytest.raises(Conflict) as caught:
        await b.delete(kinds.SANDBOXES, "x", preconditions=Preconditions(uid=Uid("old")))
    assert caught.value.message == (
        'Operation cannot be fulfilled on Sandbox.agents.x-k8s.io "x": the UID in the precondition (old) does not match the '
        f"UID in record ({uid}). The object might have been deleted and then recreated"
    )
    assert caught.value.details == {"name": "x", "group": "agents.x-k8s.io", "kind": "Sandbox"}


async def test_stale_revision(b: Bench) -> None:
    made = await b.create(kinds.SANDBOXES, sandbox())
    await b.patch(kinds.SANDBOXES, "x", {"metadata": {"labels": {"a": "b"}}})
    asked = Revision(int(made["metadata"]["resourceVersion"]))
    with pytest.raises(Conflict, match=rf"the ResourceVersion in the precondition \({asked}\) does not match"):
        await b.delete(kinds.SANDBOXES, "x", preconditions=Preconditions(revision=asked))
    assert not b.absent(kinds.SANDBOXES, "x")


async def test_preconditions_of_an_absent_object(b: Bench) -> None:
    with pytest.raises(NotFound):
        await b.delete(kinds.SANDBOXES, "x", preconditions=Preconditions(uid=Uid("u")))


async def test_finalizers_hold_it(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim(finalizers=["a.b/c", "d.e/f"]))
    b.advance(5)
    deleted = await b.delete(kinds.CLAIMS, "x")
    assert not deleted.finished
    marked = read(deleted.record)["metadata"]
    assert marked["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    assert marked["deletionGracePeriodSeconds"] == 0
    assert marked["generation"] == 2

    b.advance(5)
    again = await b.delete(kinds.CLAIMS, "x")
    assert again.record.revision == deleted.record.revision

    await b.patch(kinds.CLAIMS, "x", {"metadata": {"finalizers": ["a.b/c"]}})
    assert not b.absent(kinds.CLAIMS, "x")
    answer = await b.patch(kinds.CLAIMS, "x", {"metadata": {"finalizers": None}})
    assert b.absent(kinds.CLAIMS, "x")
    # The answer keeps the revision that the object had, so that the DELETED event is newer.
    assert int(answer["metadata"]["resourceVersion"]) < b.store.revision
    assert "finalizers" not in answer["metadata"]


async def test_no_new_finalizers_while_leaving(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim(finalizers=["a.b/c"]))
    await b.delete(kinds.CLAIMS, "x")
    with pytest.raises(Invalid) as caught:
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"finalizers": ["a.b/c", "x.y/z"]}})
    cause = caught.value.causes[0]
    assert (cause.reason, cause.field) == ("FieldValueForbidden", "metadata.finalizers")
    assert cause.message == (
        'Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"x.y/z"}'
    )


async def test_leaving_is_final(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim(finalizers=["a.b/c"]))
    marked = read((await b.delete(kinds.CLAIMS, "x")).record)
    patched = await b.patch(
        kinds.CLAIMS,
        "x",
        {"metadata": {"deletionTimestamp": None, "deletionGracePeriodSeconds": None, "labels": {"a": "b"}}},
    )
    assert patched["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    assert patched["metadata"]["deletionGracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    ("propagation", "finalizer"),
    [(Propagation.FOREGROUND, "foregroundDeletion"), (Propagation.ORPHAN, "orphan")],
)
async def test_propagation_is_a_finalizer(b: Bench, propagation: Propagation, finalizer: str) -> None:
    await b.create(kinds.CLAIMS, claim())
    deleted = await b.delete(kinds.CLAIMS, "x", propagation=propagation)
    assert not deleted.finished
    assert read(deleted.record)["metadata"]["finalizers"] == [finalizer]
    assert (await b.delete(kinds.CLAIMS, "x")).record.revision == deleted.record.revision
    assert (await b.delete(kinds.CLAIMS, "x", propagation=Propagation.BACKGROUND)).finished
    assert b.absent(kinds.CLAIMS, "x")


async def test_dry_run(b: Bench) -> None:
    made = await b.create(kinds.CLAIMS, claim())
    assert (await b.delete(kinds.CLAIMS, "x", dry_run=True)).finished
    foreground = await b.delete(kinds.CLAIMS, "x", dry_run=True, propagation=Propagation.FOREGROUND)
    assert read(foreground.record)["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert b.get(kinds.CLAIMS, "x") == made


async def test_pod_without_a_node_goes_at_once(b: Bench) -> None:
    await b.create(kinds.PODS, pod())
    assert (await b.delete(kinds.PODS, "p")).finished


async def test_pod_on_a_node_has_its_grace(b: Bench) -> None:
    await b.create(kinds.PODS, pod(node="n"))
    first = await b.delete(kinds.PODS, "p")
    assert not first.finished
    metadata = read(first.record)["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 30
    assert metadata["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    assert metadata["generation"] == 2

    assert (await b.delete(kinds.PODS, "p")).record.revision == first.record.revision
    assert (await b.delete(kinds.PODS, "p", grace=60)).record.revision == first.record.revision

    b.advance(2)
    sooner = read((await b.delete(kinds.PODS, "p", grace=5)).record)["metadata"]
    assert sooner["deletionGracePeriodSeconds"] == 5
    assert sooner["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    assert sooner["generation"] == 2

    assert (await b.delete(kinds.PODS, "p", grace=0)).finished
    assert b.absent(kinds.PODS, "p")


async def test_pod_with_an_elapsed_grace_is_still_the_kubelets(b: Bench) -> None:
    await b.create(kinds.PODS, pod(node="n"))
    await b.delete(kinds.PODS, "p")
    b.advance(20)
    late = await b.delete(kinds.PODS, "p", grace=5)
    assert not late.finished
    metadata = read(late.record)["metadata"]
    assert (metadata["deletionGracePeriodSeconds"], metadata["deletionTimestamp"]) == (1, "2026-01-01T00:00:20Z")


async def test_finished_pod_needs_no_grace(b: Bench) -> None:
    await b.create(kinds.PODS, pod(node="n"))
    await b.patch(kinds.PODS, "p", {"status": {"phase": "Succeeded"}}, "status")
    assert (await b.delete(kinds.PODS, "p")).finished


async def test_pod_without_grace_but_with_a_finalizer(b: Bench) -> None:
    await b.create(kinds.PODS, pod(node="n", finalizers=["a.b/c"]))
    marked = await b.delete(kinds.PODS, "p", grace=0)
    assert not marked.finished
    await b.patch(kinds.PODS, "p", {"metadata": {"finalizers": None}})
    assert b.absent(kinds.PODS, "p")


async def test_pod_in_its_grace_outlives_its_last_finalizer(b: Bench) -> None:
    await b.create(kinds.PODS, pod(node="n", finalizers=["a.b/c"]))
    await b.delete(kinds.PODS, "p")
    await b.patch(kinds.PODS, "p", {"metadata": {"finalizers": None}})
    assert not b.absent(kinds.PODS, "p")
    assert (await b.delete(kinds.PODS, "p", grace=0)).finished


async def test_namespace_is_marked_until_finalized(b: Bench) -> None:
    made = await b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
    deleted = await b.delete(kinds.NAMESPACES, "t")
    assert not deleted.finished
    document = read(deleted.record)
    assert document["status"]["phase"] == "Terminating"
    assert document["metadata"]["deletionTimestamp"]
    assert "deletionGracePeriodSeconds" not in document["metadata"]
    assert (await b.delete(kinds.NAMESPACES, "t")).record.revision == deleted.record.revision
    with pytest.raises(Conflict, match=r"Precondition failed: UID in precondition: x"):
        await b.delete(kinds.NAMESPACES, "t", preconditions=Preconditions(uid=Uid("x")))
    assert document["metadata"]["uid"] == made["metadata"]["uid"]
    await b.put(kinds.NAMESPACES, "t", {"metadata": {"name": "t"}, "spec": {"finalizers": []}}, "finalize")
    assert b.absent(kinds.NAMESPACES, "t")


async def test_namespaces_that_stay(b: Bench) -> None:
    with pytest.raises(Forbidden, match=r'^namespaces "default" is forbidden: this namespace may not be deleted$'):
        await b.delete(kinds.NAMESPACES, "default")


async def test_collection(b: Bench) -> None:
    for index in range(6):
        await b.create(kinds.CONFIG_MAPS, config_map(f"c{index}", labels={"even": str(index % 2 == 0).lower()}))
    await b.create(kinds.CONFIG_MAPS, config_map("held", labels={"even": "true"}, finalizers=["a.b/c"]))
    await b.delete_listed(kinds.CONFIG_MAPS, ListQuery(labels="even=true"))
    assert b.names_of(kinds.CONFIG_MAPS) == ["c1", "c3", "c5", "held"]
    assert "deletionTimestamp" in b.get(kinds.CONFIG_MAPS, "held")["metadata"]
    dry = DeleteOptions(dry_run=True)
    await b.delete_listed(kinds.CONFIG_MAPS, ListQuery(), dry)
    assert b.names_of(kinds.CONFIG_MAPS) == ["c1", "c3", "c5", "held"]
    await b.delete_listed(kinds.CONFIG_MAPS, ListQuery(limit=2))
    assert b.names_of(kinds.CONFIG_MAPS) == ["c5", "held"]


async def test_large_objects_are_deleted_one_turn_after_the_other(b: Bench) -> None:
    for index in range(10):
        await b.create(kinds.CONFIG_MAPS, {**config_map(f"c{index}"), "data": {"x": "x" * 30_000}})
    left: list[int] = []

    async def turn(size: int) -> None:
        left.append(len(b.names_of(kinds.CONFIG_MAPS)))

    records = b.objects.list(kinds.CONFIG_MAPS, "default").records
    await delete_each(b.objects, kinds.CONFIG_MAPS, records, DeleteOptions(), turn)
    assert left == [10, 8, 6, 4, 2]
    assert not b.names_of(kinds.CONFIG_MAPS)


async def test_one_of_two_deletes_at_once_finds_nothing(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    outcomes = await asyncio.gather(b.delete(kinds.CLAIMS, "x"), b.delete(kinds.CLAIMS, "x"), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes].count(NotFound) == 1


async def test_delete_and_patch_at_once(b: Bench) -> None:
    """Whoever is decided first: the delete with the old revision meets a conflict, the patch after a delete a 404."""
    made = await b.create(kinds.CLAIMS, claim())
    seen = Preconditions(revision=Revision(int(made["metadata"]["resourceVersion"])))
    outcomes = await asyncio.gather(
        b.patch(kinds.CLAIMS, "x", {"metadata": {"labels": {"a": "b"}}}),
        b.delete(kinds.CLAIMS, "x", preconditions=seen),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], Conflict)
    made = b.get(kinds.CLAIMS, "x")
    outcomes = await asyncio.gather(  # type: ignore[assignment]
        b.delete(kinds.CLAIMS, "x"),
        b.patch(kinds.CLAIMS, "x", {"metadata": {"labels": {"a": "c"}}}),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], NotFound)
