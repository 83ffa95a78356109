from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controllers.claim.transfer import pointer, transfer
from sandpool.loop.errors import Terminal
from sandpool.model import labels
from sandpool.model.codec import convert, to_json
from sandpool.model.kinds import SANDBOXES
from sandpool.model.names import name_hash
from sandpool.model.patches import Patch, PatchError, apply_json_patch
from sandpool.model.sandbox import PodMetadata, Sandbox
from support.simulated.claim_parts import MEMBER_LABELS, POOL, a_claim, a_member, a_template

WATCHER = {"apiVersion": "example.com/v1", "kind": "Watcher", "name": "w", "uid": "watcher-uid"}
EXTRA = {"labels": {"sandbox.users.io/x": "y"}}


def applied(patch: Patch, to: Sandbox) -> Sandbox:
    return convert(SANDBOXES, apply_json_patch(to_json(to), patch.body))


def test_owner_labels_and_nothing_else() -> None:
    member = a_member()
    taken = applied(transfer(member, a_claim()), member)
    owner = taken.metadata.controller
    assert owner is not None
    assert (owner.kind, owner.name, owner.uid, owner.block_owner_deletion) == ("SandboxClaim", "c", "claim-uid", True)
    assert len(taken.metadata.owner_references) == 1
    assert taken.metadata.labels == {
        labels.TEMPLATE_REF_HASH: name_hash("t"),
        labels.LAUNCH_TYPE: "warm",
        labels.CLAIM_UID: "claim-uid",
    }
    assert taken.metadata.annotations == member.metadata.annotations
    assert taken.spec == member.spec


def test_the_spec_is_not_even_mentioned() -> None:
    paths = [operation["path"] for operation in transfer(a_member(), a_claim()).body]
    assert not [path for path in paths if path.startswith("/spec")]
    assert not [path for path in paths if path.startswith("/status") or "resourceVersion" in path], (
        "what others move on is not tested"
    )


def test_the_tests_come_first_and_the_rest_cannot_fail() -> None:
    """Whatever labels a member has or lacks by now, only the tests decide."""
    operations = transfer(a_member(), a_claim(additionalPodMetadata=EXTRA)).body
    kinds = [operation["op"] for operation in operations]
    assert kinds[:2] == ["test", "test"]
    assert "test" not in kinds[2:]
    bare = a_member(labels={"other": "label"})
    assert applied(transfer(a_member(), a_claim()), bare).metadata.labels["other"] == "label"


def test_the_owner_is_tested_at_its_real_place_and_others_stay() -> None:
    member = a_member(owners=[WATCHER, POOL])
    patch = transfer(member, a_claim())
    assert {"op": "test", "path": "/metadata/ownerReferences/1/uid", "value": "pool-uid"} in patch.body
    assert [owner.uid for owner in applied(patch, member).metadata.owner_references] == ["watcher-uid", "claim-uid"]


@pytest.mark.parametrize(
    "meanwhile",
    [
        a_member(uid="another-uid"),
        a_member(owners=[{**POOL, "uid": "another-pool"}]),
        a_member(owners=[{**POOL, "kind": "SandboxClaim", "uid": "another-claim"}]),
        a_member(owners=[WATCHER, POOL]),
    ],
)
def test_another_object_or_owner_fails(meanwhile: Sandbox) -> None:
    with pytest.raises(PatchError):
        applied(transfer(a_member(), a_claim()), meanwhile)


def test_taken_once() -> None:
    member = a_member()
    patch = transfer(member, a_claim())
    with pytest.raises(PatchError):
        applied(patch, applied(patch, member))


def test_a_sandbox_without_owner_is_never_taken() -> None:
    with pytest.raises(ValueError, match="no controlling owner"):
        transfer(a_member(owners=[WATCHER]), a_claim())


def test_wrong_pod_name_is_corrected_and_foreign_annotations_are_kept() -> None:
    member = a_member(annotations={labels.POD_NAME: "stale", "note": "mine"})
    taken = applied(transfer(member, a_claim()), member)
    assert taken.metadata.annotations == {labels.POD_NAME: "warm", "note": "mine"}


def test_absent_annotations_are_made_but_none_overwritten() -> None:
    member = a_member(annotations={})
    patch = transfer(member, a_claim())
    assert applied(patch, member).metadata.annotations == {labels.POD_NAME: "warm"}
    with pytest.raises(PatchError):
        applied(patch, a_member(annotations={"came": "meanwhile"}))


def test_trace_context_travels() -> None:
    member = a_member()
    taken = applied(transfer(member, a_claim(meta={"annotations": {labels.TRACE_CONTEXT: "{}"}})), member)
    assert taken.metadata.annotations[labels.TRACE_CONTEXT] == "{}"


def test_creator_is_the_claims_or_nobody() -> None:
    member = a_member()
    theirs = applied(transfer(member, a_claim(meta={"labels": {labels.CREATED_BY: "go-client"}})), member)
    assert theirs.metadata.labels[labels.CREATED_BY] == "go-client"
    assert labels.CREATED_BY not in applied(transfer(member, a_claim()), member).metadata.labels


def pod_metadata(member: Sandbox, template: Any = None, **wanted: Any) -> PodMetadata:
    claim = a_claim(additionalPodMetadata=wanted)
    found = applied(transfer(member, claim, template), member).spec.pod_template.metadata
    assert found is not None
    return found


def test_additional_metadata_is_added_to_what_the_member_was_made_with() -> None:
    member = a_member(pod_meta={"labels": {"team": "x", **MEMBER_LABELS}, "annotations": {"n": "1"}})
    newer = a_template(meta={"labels": {"team": "newer"}})
    found = pod_metadata(member, newer, **EXTRA, annotations={"m": "2"})
    assert found.labels["team"] == "x", "not the template of today on a spec of yesterday"
    assert found.labels["sandbox.users.io/x"] == "y"
    assert found.annotations == {"n": "1", "m": "2"}
    assert not {labels.WARM_POOL, labels.TEMPLATE_HASH, labels.POD_TEMPLATE_HASH} & set(found.labels)


def test_additional_metadata_on_a_pod_without_any() -> None:
    assert pod_metadata(a_member(), **EXTRA).labels == {"sandbox.users.io/x": "y"}


def test_additional_metadata_may_not_change_the_members_own() -> None:
    with pytest.raises(Terminal):
        pod_metadata(a_member(pod_meta={"labels": {"sandbox.users.io/x": "z"}}), **EXTRA)


@pytest.mark.parametrize(
    ("present", "template", "wanted", "expected"),
    [
        ("true", {}, {}, None),  # the pool's own mark
        ("true", None, {}, None),
        ("false", {}, {}, "false"),
        ("false", None, {}, "false"),
        ("true", {"annotations": {labels.SAFE_TO_EVICT: "true"}}, {}, "true"),
        ("true", {}, {labels.SAFE_TO_EVICT: "true"}, "true"),
    ],
)
def test_eviction(present: str, template: Any, wanted: dict[str, str], expected: str | None) -> None:
    member = a_member(pod_meta={"annotations": {labels.SAFE_TO_EVICT: present}})
    source = None if template is None else a_template(meta=template)
    found = pod_metadata(member, source, **EXTRA, annotations=wanted)
    assert found.annotations.get(labels.SAFE_TO_EVICT) == expected


@pytest.mark.parametrize(
    ("present", "template", "edits"),
    [
        ("true", {}, True),
        ("true", None, True),
        ("false", {}, False),
        ("true", {"annotations": {labels.SAFE_TO_EVICT: "true"}}, False),
    ],
)
def test_a_member_that_says_itself_that_it_may_be_evicted(present: str, template: Any, edits: bool) -> None:
    """As other implementations make them. The pod of a claim must not be evicted only because it was idle once."""
    member = a_member(pod_meta={"labels": {"team": "x"}, "annotations": {labels.SAFE_TO_EVICT: present, "n": "1"}})
    patch = transfer(member, a_claim(), None if template is None else a_template(meta=template))
    assert any(operation["path"].startswith("/spec") for operation in patch.body) is edits
    found = applied(patch, member).spec.pod_template.metadata
    assert found is not None
    assert found.labels == {"team": "x"}
    assert found.annotations == ({"n": "1"} if edits else {labels.SAFE_TO_EVICT: present, "n": "1"})


NAMES = st.sampled_from(["", "controller", "go-client"])


@given(
    present=st.sets(st.sampled_from([*MEMBER_LABELS, labels.CLAIM_UID, "other"]), min_size=1),
    creator=NAMES,
    annotations=st.sampled_from([{}, {labels.POD_NAME: "warm"}, {labels.POD_NAME: "stale", "note": "mine"}]),
    wanted=st.sampled_from([{}, EXTRA]),
    trace=st.booleans(),
)
def test_pinned_does_the_same_to_that_very_state_in_fewer_operations(
    present: set[str], creator: str, annotations: dict[str, str], wanted: dict[str, Any], trace: bool
) -> None:
    member = a_member(labels={key: MEMBER_LABELS.get(key, "x") for key in present}, annotations=annotations)
    notes = {labels.TRACE_CONTEXT: "{}"} if trace else {}
    mine = {labels.CREATED_BY: creator} if creator else {}
    claim = a_claim(meta={"labels": mine, "annotations": notes}, additionalPodMetadata=wanted)
    usual, pinned = transfer(member, claim), transfer(member, claim, pinned=True)
    assert applied(pinned, member) == applied(usual, member)
    assert len(pinned.body) < len(usual.body)
    assert [one for one in pinned.body if one["op"] == "test"] == [one for one in usual.body if one["op"] == "test"]


def test_pinned_removes_only_what_there_is() -> None:
    member = a_member(labels={labels.WARM_POOL: "x", labels.LAUNCH_TYPE: "warm"})
    removed = [one["path"] for one in transfer(member, a_claim(), pinned=True).body if one["op"] == "remove"]
    assert removed == [pointer("metadata", "labels", labels.WARM_POOL)]


def test_pointer() -> None:
    assert pointer("a", "b/c", "d~e") == "/a/b~1c/d~0e"
