"""What handing out a sandbox stands on: the transfer and the binding, each won exactly once, and never a conflict."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.bodies import claim, metadata, sandbox
from sandpool.kube.api import Api
from sandpool.kube.errors import ApiError, Conflict, Invalid, NotFound
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.metadata import OwnerReference, Uid
from sandpool.model.patches import Patch, json_patch, merge_patch
from sandpool.model.sandbox import Sandbox

POOL = {
    "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
    "kind": "SandboxWarmPool",
    "name": "pool",
    "uid": "pool-uid",
}
CLAIM = {**POOL, "kind": "SandboxClaim"}
LABEL = "agents.x-k8s.io~1warm-pool-sandbox"


async def pooled(api: Api, ns: str, name: str = "warm") -> Sandbox:
    """A member of a pool, with an owner that does not control it in front of the one that does."""
    watcher = {**POOL, "kind": "Watcher", "name": "w", "uid": "watcher-uid"}
    owners = [watcher, {**POOL, "controller": True, "blockOwnerDeletion": True}]
    labels = {"agents.x-k8s.io/warm-pool-sandbox": "59733166"}
    return await api.create(SANDBOXES, sandbox(metadata=metadata(name, ownerReferences=owners, labels=labels)), ns)


def transfer(member: Sandbox, taker: str, *, owner: str = "pool-uid", index: int = 1) -> Patch:
    path = f"/metadata/ownerReferences/{index}"
    return json_patch(
        [
            {"op": "test", "path": "/metadata/uid", "value": member.metadata.uid},
            {"op": "test", "path": f"{path}/uid", "value": owner},
            {
                "op": "replace",
                "path": path,
                "value": {**CLAIM, "name": taker, "uid": f"{taker}-uid", "controller": True},
            },
            {"op": "add", "path": f"/metadata/labels/{LABEL}", "value": ""},
            {"op": "remove", "path": f"/metadata/labels/{LABEL}"},
            {"op": "add", "path": "/metadata/labels/agents.x-k8s.io~1claim-uid", "value": f"{taker}-uid"},
        ]
    )


async def attempt(work: Any) -> Any:
    """The result, or the error that came instead."""
    try:
        return await work
    except ApiError as error:
        return error


def assert_lost(error: object) -> None:
    """How a JSON patch that cannot be applied is refused: by code and reason, and with no causes."""
    assert isinstance(error, Invalid), error
    assert (error.code, error.word, error.causes) == (422, "Invalid", ())
    assert error.message == "the server rejected our request due to an error in our request"


async def test_transfer_makes_the_claim_the_owner(api: Api, ns: str) -> None:
    member = await pooled(api, ns)
    taken = await api.patch(SANDBOXES, "warm", transfer(member, "one"), ns)
    assert taken.metadata.controller == OwnerReference(
        api_version=CLAIM["apiVersion"], kind="SandboxClaim", name="one", uid=Uid("one-uid"), controller=True
    )
    assert [owner.uid for owner in taken.metadata.owner_references] == ["watcher-uid", "one-uid"]
    assert taken.metadata.labels == {"agents.x-k8s.io/claim-uid": "one-uid"}
    assert taken.metadata.uid == member.metadata.uid
    assert taken.metadata.revision > member.metadata.revision
    assert taken.metadata.generation == member.metadata.generation
    assert await api.get(SANDBOXES, "warm", ns) == taken


async def test_transfer_is_won_once_while_the_status_moves(api: Api, ns: str) -> None:
    member = await pooled(api, ns)
    takers = [attempt(api.patch(SANDBOXES, "warm", transfer(member, f"t{i}"), ns)) for i in range(20)]
    moves = [
        attempt(api.patch_status(SANDBOXES, "warm", merge_patch({"status": {"nodeName": f"n{i}"}}), ns))
        for i in range(50)
    ]
    mixed = [work for i in range(50) for work in (*moves[i : i + 1], *takers[i : i + 1])]
    results = dict(zip(mixed, await asyncio.gather(*mixed), strict=True))
    won = [results[taker] for taker in takers if isinstance(results[taker], Sandbox)]
    assert len(won) == 1
    for taker in takers:
        if not isinstance(results[taker], Sandbox):
            assert_lost(results[taker])
    assert [result for result in (results[move] for move in moves) if not isinstance(result, Sandbox)] == []
    now = await api.get(SANDBOXES, "warm", ns)
    assert now.metadata.controller == won[0].metadata.controller


async def test_transfer_of_another_object_of_the_name_fails(api: Api, ns: str) -> None:
    old = await pooled(api, ns)
    await api.delete(SANDBOXES, "warm", ns)
    new = await pooled(api, ns)
    assert new.metadata.uid != old.metadata.uid
    assert_lost(await attempt(api.patch(SANDBOXES, "warm", transfer(old, "one"), ns)))
    assert await api.get(SANDBOXES, "warm", ns) == new


async def test_transfer_by_the_wrong_owner_changes_nothing(api: Api, ns: str) -> None:
    member = await pooled(api, ns)
    assert_lost(await attempt(api.patch(SANDBOXES, "warm", transfer(member, "one", owner="other"), ns)))
    assert_lost(await attempt(api.patch(SANDBOXES, "warm", transfer(member, "one", index=0), ns)))
    assert_lost(await attempt(api.patch(SANDBOXES, "warm", transfer(member, "one", index=2), ns)))
    assert await api.get(SANDBOXES, "warm", ns) == member


async def test_transfer_of_an_absent_sandbox(api: Api, ns: str) -> None:
    member = await pooled(api, ns)
    await api.delete(SANDBOXES, "warm", ns)
    with pytest.raises(NotFound) as caught:
        await api.patch(SANDBOXES, "warm", transfer(member, "one"), ns)
    assert caught.value.message == 'sandboxes.agents.x-k8s.io "warm" not found'
    assert caught.value.details == {"name": "warm", "group": "agents.x-k8s.io", "kind": "sandboxes"}


async def test_transfer_of_a_leaving_sandbox_shows_that_it_leaves(api: Api, ns: str) -> None:
    body = sandbox(
        metadata=metadata("warm", finalizers=["example.com/hold"], ownerReferences=[{**POOL, "controller": True}])
    )
    member = await api.create(SANDBOXES, body | {"metadata": {**body["metadata"], "labels": {"a": "b"}}}, ns)
    await api.delete(SANDBOXES, "warm", ns)
    taken = await api.patch(SANDBOXES, "warm", transfer(member, "one", index=0), ns)
    assert taken.metadata.leaving


async def test_transfer_with_a_bad_label_is_our_bug_and_has_causes(api: Api, ns: str) -> None:
    await pooled(api, ns)
    with pytest.raises(Invalid) as caught:
        await api.patch(
            SANDBOXES, "warm", json_patch([{"op": "add", "path": "/metadata/labels/a", "value": "b c"}]), ns
        )
    assert {(cause.reason, cause.field) for cause in caught.value.causes} == {("FieldValueInvalid", "metadata.labels")}


def binding(uid: str, name: str, path: str = "/status") -> Patch:
    value: Any = {"name": name} if path == "/status/sandbox" else {"sandbox": {"name": name}}
    return json_patch(
        [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": path, "value": None},
            {"op": "add", "path": path, "value": value},
        ]
    )


async def test_binding_is_won_once_while_annotations_move(api: Api, ns: str) -> None:
    made = await api.create(CLAIMS, claim("c"), ns)
    binders = [attempt(api.patch_status(CLAIMS, "c", binding(made.metadata.uid, f"s{i}"), ns)) for i in range(30)]
    notes = [
        attempt(api.patch(CLAIMS, "c", merge_patch({"metadata": {"annotations": {f"a{i}": "x"}}}), ns))
        for i in range(10)
    ]
    mixed = [work for i in range(30) for work in (*binders[i : i + 1], *notes[i : i + 1])]
    results = dict(zip(mixed, await asyncio.gather(*mixed), strict=True))
    won = [results[binder] for binder in binders if not isinstance(results[binder], ApiError)]
    assert len(won) == 1
    for binder in binders:
        if isinstance(results[binder], ApiError):
            assert_lost(results[binder])
    assert [results[note] for note in notes if isinstance(results[note], ApiError)] == []
    now = await api.get(CLAIMS, "c", ns)
    assert now.status.sandbox == won[0].status.sandbox
    assert set(now.metadata.annotations) == {f"a{i}" for i in range(10)}


async def test_binding_beside_conditions(api: Api, ns: str) -> None:
    made = await api.create(CLAIMS, claim("c"), ns)
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Waiting",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    await api.patch_status(CLAIMS, "c", merge_patch({"status": {"conditions": [condition]}}), ns)
    assert_lost(await attempt(api.patch_status(CLAIMS, "c", binding(made.metadata.uid, "s"), ns)))
    bound = await api.patch_status(CLAIMS, "c", binding(made.metadata.uid, "s", "/status/sandbox"), ns)
    assert bound.status.sandbox is not None
    assert bound.status.sandbox.name == "s"
    assert [c.reason for c in bound.status.conditions] == ["Waiting"]
    assert_lost(await attempt(api.patch_status(CLAIMS, "c", binding(made.metadata.uid, "t", "/status/sandbox"), ns)))


async def test_binding_below_an_absent_status_cannot_be_tested(api: Api, ns: str) -> None:
    made = await api.create(CLAIMS, claim("c"), ns)
    assert_lost(await attempt(api.patch_status(CLAIMS, "c", binding(made.metadata.uid, "s", "/status/sandbox"), ns)))


async def test_binding_of_a_claim_made_anew(api: Api, ns: str) -> None:
    old = await api.create(CLAIMS, claim("c"), ns)
    await api.delete(CLAIMS, "c", ns)
    new = await api.create(CLAIMS, claim("c"), ns)
    assert_lost(await attempt(api.patch_status(CLAIMS, "c", binding(old.metadata.uid, "s"), ns)))
    assert await api.get(CLAIMS, "c", ns) == new


async def test_binding_that_breaks_the_schema_has_causes(api: Api, ns: str) -> None:
    await api.create(CLAIMS, claim("c"), ns)
    with pytest.raises(Invalid) as caught:
        await api.patch_status(
            CLAIMS, "c", json_patch([{"op": "add", "path": "/status", "value": {"sandbox": {"name": 1}}}]), ns
        )
    assert [(c.reason, c.field) for c in caught.value.causes] == [("FieldValueTypeInvalid", "status.sandbox.name")]
    assert caught.value.details == {"name": "c", "group": "extensions.agents.x-k8s.io", "kind": "SandboxClaim"}


async def test_uid_in_a_merge_patch(api: Api, ns: str) -> None:
    """Of the object itself it must be the object's; in a patch of the status a server ignores it."""
    made = await api.create(CLAIMS, claim("c"), ns)
    body: dict[str, Any] = {"metadata": {"uid": "other"}, "status": {"sandbox": {"name": "s"}}}
    bound = await api.patch_status(CLAIMS, "c", merge_patch(body), ns)
    assert bound.metadata.uid == made.metadata.uid
    assert bound.status.sandbox is not None
    with pytest.raises(Invalid) as caught:
        await api.patch(CLAIMS, "c", merge_patch({"metadata": {"uid": "other", "labels": {"a": "b"}}}), ns)
    assert {(c.reason, c.field) for c in caught.value.causes} == {("FieldValueInvalid", "metadata.uid")}
    good = {"metadata": {"uid": made.metadata.uid, "labels": {"a": "b"}}}
    assert (await api.patch(CLAIMS, "c", merge_patch(good), ns)).metadata.labels == {"a": "b"}


async def test_stale_resource_version_in_a_patch(api: Api, ns: str) -> None:
    made = await api.create(CLAIMS, claim("c"), ns)
    moved = await api.patch(CLAIMS, "c", merge_patch({"metadata": {"labels": {"a": "b"}}}), ns)
    for patch in (
        merge_patch({"metadata": {"resourceVersion": made.metadata.resource_version, "labels": {"a": "c"}}}),
        json_patch([{"op": "replace", "path": "/metadata/resourceVersion", "value": made.metadata.resource_version}]),
    ):
        with pytest.raises(Conflict) as caught:
            await api.patch(CLAIMS, "c", patch, ns)
        assert caught.value.message == (
            'Operation cannot be fulfilled on sandboxclaims.extensions.agents.x-k8s.io "c": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
        assert caught.value.details == {"name": "c", "group": "extensions.agents.x-k8s.io", "kind": "sandboxclaims"}
    status = {"metadata": {"resourceVersion": made.metadata.resource_version}, "status": {"sandbox": {"name": "s"}}}
    with pytest.raises(Conflict):
        await api.patch_status(CLAIMS, "c", merge_patch(status), ns)
    assert await api.get(CLAIMS, "c", ns) == moved
    current = {"metadata": {"resourceVersion": moved.metadata.resource_version, "labels": {"a": "c"}}}
    assert (await api.patch(CLAIMS, "c", merge_patch(current), ns)).metadata.labels == {"a": "c"}
