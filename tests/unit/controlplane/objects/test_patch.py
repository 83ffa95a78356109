"""PATCH: three dialects, their failures, and preconditions inside the body."""

from __future__ import annotations

import asyncio
import random

import pytest

from sandpool.kube.errors import BadRequest, Conflict, Invalid, NotFound, RequestTooLarge, UnsupportedMedia
from sandpool.model import kinds
from sandpool.model.patches import Patch, PatchType
from support.api.local_objects import Bench, claim, config_map, pod, sandbox

UNAPPLICABLE = "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/uid", "value": "another"},
        {"op": "remove", "path": "/metadata/labels"},
        {"op": "replace", "path": "/metadata/labels/a", "value": "b"},
        {"op": "add", "path": "/metadata/labels/a", "value": "b"},
        {"op": "fly", "path": "/metadata/name"},
    ],
    ids=lambda operation: operation["op"],
)
async def test_unapplicable_json_patch(b: Bench, operation) -> None:  # type: ignore[no-untyped-def]
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(Invalid) as caught:
        await b.patch(kinds.CLAIMS, "x", [operation])
    assert caught.value.message == UNAPPLICABLE
    assert caught.value.causes == ()
    assert (caught.value.code, caught.value.word) == (422, "Invalid")


async def test_schema_violation_has_causes(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(Invalid) as caught:
        await b.patch(kinds.CLAIMS, "x", [{"op": "remove", "path": "/spec/warmPoolRef/name"}])
    assert caught.value.causes


@pytest.mark.parametrize("body", [{}, "x", None, [1], [{"op": 5}]], ids=repr)
async def test_not_a_json_patch(b: Bench, body) -> None:  # type: ignore[no-untyped-def]
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(BadRequest, match=r"^error decoding patch"):
        await b.patch(kinds.CLAIMS, "x", Patch(PatchType.JSON, body))


async def test_not_a_merge_patch(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(BadRequest):
        await b.patch(kinds.CLAIMS, "x", Patch(PatchType.MERGE, []))


async def test_too_many_operations(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(RequestTooLarge, match=r"maximum operations in a JSON patch is 10000, got 10001"):
        await b.patch(kinds.CLAIMS, "x", [{"op": "test", "path": "/kind", "value": "SandboxClaim"}] * 10_001)


async def test_strategic_for_core_kinds_only(b: Bench) -> None:
    await b.create(kinds.PODS, pod())
    strategic = Patch(PatchType.STRATEGIC, {"spec": {"containers": [{"name": "main", "image": "other"}]}})
    patched = await b.patch(kinds.PODS, "p", strategic)
    assert [c["image"] for c in patched["spec"]["containers"]] == ["other"]
    await b.create(kinds.SANDBOXES, sandbox())
    with pytest.raises(UnsupportedMedia, match=r"accepted media types include: application/json-patch"):
        await b.patch(kinds.SANDBOXES, "x", Patch(PatchType.STRATEGIC, {}))


async def test_revision_in_the_patch_is_a_precondition(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(Conflict, match=r"the object has been modified"):
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}})
    with pytest.raises(Conflict, match=r"the object has been modified"):
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"resourceVersion": "1"}, "status": {}}, "status")
    with pytest.raises(Invalid, match=r"must be specified for an update"):
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"resourceVersion": None}})


async def test_uid_in_the_patch(b: Bench) -> None:
    """A real server refuses another uid in a patch of the object as a change of an immutable field, and does not even
    look at it in a patch of the status."""
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(Invalid) as caught:
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"uid": "another", "labels": {"a": "b"}}})
    assert {(c.field, c.reason) for c in caught.value.causes} == {("metadata.uid", "FieldValueInvalid")}
    assert "labels" not in b.get(kinds.CLAIMS, "x")["metadata"]
    bound = await b.patch(
        kinds.CLAIMS, "x", {"metadata": {"uid": "another"}, "status": {"sandbox": {"name": "s"}}}, "status"
    )
    assert bound["status"] == {"sandbox": {"name": "s"}}


async def test_identity_cannot_be_patched(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(BadRequest, match=r"^the name of the object \(y\) does not match"):
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"name": "y"}})
    with pytest.raises(BadRequest, match=r"does not match the namespace sent on the request"):
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"namespace": "other"}})
    with pytest.raises(BadRequest, match=r"was undeterminable: name must be provided"):
        await b.patch(kinds.CLAIMS, "x", {"metadata": None})
    with pytest.raises(Invalid) as caught:
        await b.patch(kinds.CLAIMS, "x", {"kind": "Wrong"})
    assert caught.value.message == (
        'Wrong.extensions.agents.x-k8s.io "x" is invalid: kind: Invalid value: "Wrong": must be SandboxClaim'
    )
    with pytest.raises(Invalid, match=r'^SandboxClaim.wrong "x" is invalid: apiVersion'):
        await b.patch(kinds.CLAIMS, "x", {"apiVersion": "wrong/v1"})
    with pytest.raises(Invalid, match=r"deletionTimestamp"):
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})


async def test_metadata_of_another_shape(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    for metadata in ("a", [], {"name": 5}, {"labels": {"a": 1}}, {"finalizers": "a"}, {"resourceVersion": 5}):  # type: ignore[var-annotated]
        with pytest.raises(Invalid, match=r"patch: Invalid value"):
            await b.patch(kinds.CLAIMS, "x", {"metadata": metadata})


async def test_outcome_that_is_no_object(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(Invalid):
        await b.patch(kinds.CLAIMS, "x", [{"op": "replace", "path": "", "value": []}])


async def test_absent_object(b: Bench) -> None:
    with pytest.raises(NotFound, match=r'^sandboxclaims.extensions.agents.x-k8s.io "x" not found$'):
        await b.patch(kinds.CLAIMS, "x", {"metadata": {"uid": "u"}})


async def test_no_object_grows_without_end(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    await b.patch(kinds.CLAIMS, "x", {"status": {"conditions": []}}, "status")
    before = b.get(kinds.CLAIMS, "x")
    condition = {
        "type": "Big",
        "status": "True",
        "reason": "Big",
        "message": "x" * 30_000,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    conditions = [{**condition, "type": f"Big{index}"} for index in range(110)]
    with pytest.raises(RequestTooLarge, match=r"^Request entity too large: limit is 3145728$"):
        await b.patch(kinds.CLAIMS, "x", {"status": {"conditions": conditions}}, "status")
    assert b.get(kinds.CLAIMS, "x") == before
    await b.patch(kinds.CLAIMS, "x", {"metadata": {"labels": {"still": "works"}}})


async def test_dry_run(b: Bench) -> None:
    made = await b.create(kinds.CLAIMS, claim())
    patched = await b.patch(kinds.CLAIMS, "x", {"spec": {"warmPoolRef": {"name": "other"}}}, dry_run=True)
    assert patched["spec"]["warmPoolRef"]["name"] == "other"
    assert patched["metadata"]["generation"] == 2
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert b.get(kinds.CLAIMS, "x") == made


async def test_stored_documents_are_never_changed_in_place(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim(labels={"a": "b"}))
    record = b.objects.get(kinds.CLAIMS, "default", "x")
    value = bytes(record.value)
    await b.patch(kinds.CLAIMS, "x", {"metadata": {"labels": {"a": "c"}}})
    assert record.value == value


async def test_no_update_is_lost(b: Bench) -> None:
    """Many writers of one object at once: every label arrives, and nobody meets a conflict."""
    await b.create(kinds.CONFIG_MAPS, config_map())
    writers = [b.patch(kinds.CONFIG_MAPS, "c", {"metadata": {"labels": {f"l{index}": "1"}}}) for index in range(100)]
    await asyncio.gather(*writers)
    assert len(b.get(kinds.CONFIG_MAPS, "c")["metadata"]["labels"]) == 100


async def test_one_taker_of_many(b: Bench) -> None:
    """The lock that claims stand on: of many transfers of one sandbox one wins, whatever happens to its status."""
    await b.create(kinds.SANDBOXES, sandbox(labels={"owner": "pool"}))

    async def take(index: int) -> int:
        test = {"op": "test", "path": "/metadata/labels/owner", "value": "pool"}
        replace = {"op": "replace", "path": "/metadata/labels/owner", "value": f"claim-{index}"}
        try:
            await b.patch(kinds.SANDBOXES, "x", [test, replace])
        except Invalid as error:
            return 1000 if error.causes else 0  # causes would mean that our patch was wrong, not that it came late
        return 1

    async def report(index: int) -> int:
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "R",
            "message": str(index),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await b.patch(kinds.SANDBOXES, "x", {"status": {"conditions": [condition]}}, "status")
        return 0

    work = [take(index) for index in range(20)] + [report(index) for index in range(50)]
    random.Random(7).shuffle(work)
    assert sum(await asyncio.gather(*work)) == 1


async def test_one_binder_of_many(b: Bench) -> None:
    await b.create(kinds.CLAIMS, claim())
    uid = b.get(kinds.CLAIMS, "x")["metadata"]["uid"]

    async def bind(index: int) -> int:
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/status", "value": None},
            {"op": "add", "path": "/status", "value": {"sandbox": {"name": f"s{index}"}}},
        ]
        try:
            await b.patch(kinds.CLAIMS, "x", patch, "status")
        except Invalid as error:
            return 1000 if error.causes else 0  # causes would mean that our patch was wrong, not that it came late
        return 1

    assert sum(await asyncio.gather(*(bind(index) for index in range(30)))) == 1
