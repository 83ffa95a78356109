from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.sandbox.options import Options
from sandpool.model.labels import (
    ADOPTABLE,
    CLAIM_UID,
    CREATED_BY,
    POD_NAME,
    PROPAGATED_ANNOTATIONS,
    PROPAGATED_LABELS,
    SAFE_TO_EVICT,
    SANDBOX_NAME_HASH,
    TEMPLATE_REF_HASH,
    WARM_POOL,
)
from sandpool.model.patches import apply_merge_patch
from unit.controllers.sandbox.views import (
    CLAIM,
    FOREIGN,
    GONE,
    IDENTITY,
    MADE_FROM,
    OURS,
    POOL,
    PREDECESSOR,
    TRACKING,
    body,
    message,
    owner_object,
    pending,
    plan_of,
    pod,
    said,
    sandbox,
    service,
    templates,
    verbs,
    verdict,
    view_of,
    volume_claim,
)

SUSPENDED = {"operatingMode": "Suspended"}
QUIET = Options(evictable_members=False)
FREE = {**TRACKING, ADOPTABLE: "true"}


def made(box: Any, *objects: Any, options: Options = Options()) -> dict[str, Any]:
    """The metadata of a new pod."""
    metadata: dict[str, Any] = body(plan_of(box, *objects, options=options), "Pod")["metadata"]
    return metadata


def patched(
    present: Any, box: Any, *objects: Any, options: Options = Options()
) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of a pod after the plan's patch."""
    metadata = body(plan_of(box, present, *objects, options=options), "Pod")["metadata"]
    meta = present.metadata
    return (
        apply_merge_patch(meta.labels, metadata.get("labels", {})),
        apply_merge_patch(meta.annotations, metadata.get("annotations", {})),
    )


# Making one


def test_a_minimal_sandbox_gets_a_pod_and_nothing_else() -> None:
    plan = plan_of(sandbox())
    assert verbs(plan) == ["create Pod box"]
    pod_body = body(plan, "Pod")
    owner = {**OURS, "blockOwnerDeletion": True}
    assert pod_body["metadata"] == {
        "name": "box", "namespace": "default", "labels": IDENTITY, "ownerReferences": [owner],
        "annotations": MADE_FROM,
    }  # fmt: skip
    assert pod_body["spec"] == {"containers": [{"name": "main", "image": "python"}]}


def test_everything_at_once() -> None:
    given = {"labels": {"app": "x"}, "annotations": {"note": "y"}}
    box = sandbox(spec={"service": True, **templates("data")}, template=given)
    plan = plan_of(box)
    assert verbs(plan) == ["create PersistentVolumeClaim data-box", "create Pod box", "create Service box"]
    metadata = body(plan, "Pod")["metadata"]
    assert metadata["labels"] == {"app": "x", **IDENTITY}
    assert metadata["annotations"] == {
        "note": "y", PROPAGATED_LABELS: "app", PROPAGATED_ANNOTATIONS: "note", **MADE_FROM,
    }  # fmt: skip
    assert body(plan, "Pod")["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-box"}}
    ]


def test_keys_of_the_system_in_a_template_are_dropped() -> None:
    reserved = {SANDBOX_NAME_HASH: "x", "extensions.agents.x-k8s.io/y": "z", WARM_POOL: "w", TEMPLATE_REF_HASH: "t"}
    notes = {POD_NAME: "p", "opentelemetry.io/trace-context": "{}"}
    metadata = made(sandbox(template={"labels": reserved, "annotations": notes}))
    assert metadata["labels"] == IDENTITY
    assert metadata["annotations"] == MADE_FROM


def test_labels_of_a_sandbox_without_extension_owner_are_not_copied() -> None:
    labels = {WARM_POOL: "w", TEMPLATE_REF_HASH: "t", "agents.x-k8s.io/launch-type": "warm"}
    assert made(sandbox(labels=labels))["labels"] == IDENTITY
    assert made(sandbox(labels=labels, owner=FOREIGN))["labels"] == IDENTITY


def test_a_pool_implies_its_labels() -> None:
    box = sandbox(labels={WARM_POOL: "w", TEMPLATE_REF_HASH: "t", CLAIM_UID: "no"}, owner=POOL)
    labels = made(box, owner_object(POOL)[1])["labels"]
    assert labels == {**IDENTITY, WARM_POOL: "w", TEMPLATE_REF_HASH: "t"}


def test_a_claim_implies_its_uid_and_template() -> None:
    box = sandbox(labels={WARM_POOL: "w", TEMPLATE_REF_HASH: "t"}, owner=CLAIM)
    labels = made(box, owner_object(CLAIM)[1])["labels"]
    assert labels == {**IDENTITY, TEMPLATE_REF_HASH: "t", CLAIM_UID: "uid-claim"}


@pytest.mark.parametrize(("given", "normal"), [("go-client", "go-client"), ("somebody", "unknown")])
def test_the_creator_is_normalised(given: str, normal: str) -> None:
    assert made(sandbox(labels={CREATED_BY: given}))["labels"][CREATED_BY] == normal


def test_members_may_be_evicted_until_they_are_claimed() -> None:
    member = sandbox(owner=POOL)
    assert made(member, owner_object(POOL)[1])["annotations"] == {
        SAFE_TO_EVICT: "true", PROPAGATED_ANNOTATIONS: SAFE_TO_EVICT, **MADE_FROM,
    }  # fmt: skip
    assert made(member, owner_object(POOL)[1], options=QUIET)["annotations"] == MADE_FROM
    kept = sandbox(owner=POOL, template={"annotations": {SAFE_TO_EVICT: "false"}})
    assert made(kept, owner_object(POOL)[1])["annotations"][SAFE_TO_EVICT] == "false"
    marked = pod(annotations={SAFE_TO_EVICT: "true", PROPAGATED_ANNOTATIONS: SAFE_TO_EVICT})
    _, annotations = patched(marked, sandbox(owner=CLAIM), owner_object(CLAIM)[1])
    assert annotations == {PROPAGATED_ANNOTATIONS: ""}


# Keeping one


def test_a_pod_that_is_right_is_left_alone() -> None:
    box = sandbox(template={"labels": {"app": "x"}})
    right = pod(labels={**IDENTITY, "app": "x"}, annotations={PROPAGATED_LABELS: "app", "cni": "z"})
    assert plan_of(box, right).steps == ()


def test_what_left_the_template_leaves_the_pod() -> None:
    present = pod(
        labels={**IDENTITY, "old": "1", "injected": "2", "app": "before"},
        annotations={"gone": "1", "cni": "2", PROPAGATED_LABELS: "app,old", PROPAGATED_ANNOTATIONS: "gone"},
    )
    labels, annotations = patched(present, sandbox(template={"labels": {"app": "x"}, "annotations": {"new": "y"}}))
    assert labels == {**IDENTITY, "injected": "2", "app": "x"}
    assert annotations == {"cni": "2", "new": "y", PROPAGATED_LABELS: "app", PROPAGATED_ANNOTATIONS: "new"}


def test_keys_leave_in_the_order_of_the_record_whatever_the_process() -> None:
    former = [f"key-{number}" for number in range(20)]
    present = pod(labels={**IDENTITY, **dict.fromkeys(former, "1")}, annotations={PROPAGATED_LABELS: ",".join(former)})
    assert list(body(plan_of(sandbox(), present), "Pod")["metadata"]["labels"]) == former


def test_keys_of_the_system_that_were_copied_once_are_scrubbed() -> None:
    record = f"{SANDBOX_NAME_HASH},agents.x-k8s.io/odd"
    present = pod(
        labels={**IDENTITY, "agents.x-k8s.io/odd": "1"},
        annotations={
            POD_NAME: "x",
            PROPAGATED_LABELS: record,
            PROPAGATED_ANNOTATIONS: f"{POD_NAME},{PROPAGATED_LABELS}",
        },
    )
    labels, annotations = patched(present, sandbox())
    assert labels == IDENTITY
    assert annotations == {PROPAGATED_LABELS: "", PROPAGATED_ANNOTATIONS: ""}


def test_a_change_of_owner_reaches_a_running_pod() -> None:
    member = pod(labels={**IDENTITY, WARM_POOL: "w", TEMPLATE_REF_HASH: "t"})
    box = sandbox(labels={TEMPLATE_REF_HASH: "t"}, owner=CLAIM)
    labels, _ = patched(member, box, owner_object(CLAIM)[1])
    assert labels == {**IDENTITY, TEMPLATE_REF_HASH: "t", CLAIM_UID: "uid-claim"}


def test_owner_labels_come_to_a_running_pod() -> None:
    box = sandbox(labels={WARM_POOL: "w", TEMPLATE_REF_HASH: "t"}, owner=POOL)
    labels, _ = patched(pod(), box, owner_object(POOL)[1], options=QUIET)
    assert labels == {**IDENTITY, WARM_POOL: "w", TEMPLATE_REF_HASH: "t"}


def test_owner_labels_go_with_the_owner() -> None:
    present = pod(labels={**IDENTITY, WARM_POOL: "w", TEMPLATE_REF_HASH: "t"})
    labels, _ = patched(present, sandbox(labels={WARM_POOL: "w", TEMPLATE_REF_HASH: "t"}))
    assert labels == IDENTITY


def test_a_template_label_goes_when_the_sandbox_lacks_it() -> None:
    present = pod(labels={**IDENTITY, TEMPLATE_REF_HASH: "t"})
    labels, _ = patched(present, sandbox(owner=POOL), owner_object(POOL)[1], options=QUIET)
    assert labels == IDENTITY


def test_labels_of_an_owner_that_is_going_away_stay() -> None:
    present = pod(labels={**IDENTITY, WARM_POOL: "w"})
    assert plan_of(sandbox(labels={WARM_POOL: "w"}, owner=POOL), present, options=QUIET).steps == ()


def test_the_creator_follows() -> None:
    present = pod(labels={**IDENTITY, CREATED_BY: "go-client"})
    assert patched(present, sandbox(labels={CREATED_BY: "python-client"}))[0][CREATED_BY] == "python-client"
    assert CREATED_BY not in patched(present, sandbox())[0]


def test_patches_are_of_one_very_pod() -> None:
    assert body(plan_of(sandbox(), pod(labels={})), "Pod")["metadata"] == {"uid": "pod-box", "labels": IDENTITY}


# Taking one over


def test_an_adoptable_pod_is_taken_over() -> None:
    box = sandbox(template={"labels": {"app": "x"}, "annotations": {"note": "y"}})
    free = pod(owner=None, labels={ADOPTABLE: "true"}, annotations={})
    plan = plan_of(box, free)
    assert verbs(plan) == ["patch Pod box"]
    change = body(plan, "Pod")
    assert set(change) == {"metadata"}, "the spec is not ours"
    metadata = change["metadata"]
    assert metadata["ownerReferences"] == [{**OURS, "blockOwnerDeletion": True}]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("pod-box", "7")
    labels, annotations = patched(free, box)
    assert labels == {**IDENTITY, "app": "x"}
    assert annotations == {"note": "y", PROPAGATED_LABELS: "app", PROPAGATED_ANNOTATIONS: "note"}


def test_the_tracking_label_alone_allows_it() -> None:
    plan = plan_of(sandbox(), pod(owner=None, labels=TRACKING))
    assert body(plan, "Pod")["metadata"]["ownerReferences"] == [{**OURS, "blockOwnerDeletion": True}]


def test_an_adopted_pod_gives_its_addresses() -> None:
    assert verdict(sandbox(annotations={POD_NAME: "other"}), pod("other")).pod_ips == ("10.0.0.1",)


def test_the_annotation_leads_to_an_adoptable_pod() -> None:
    plan = plan_of(sandbox(annotations={POD_NAME: "other"}), pod("other", owner=None, labels=FREE))
    assert verbs(plan) == ["patch Pod other"], "the annotation stays"


def test_a_pod_of_somebody_else_is_refused() -> None:
    plan = plan_of(sandbox(), pod(owner=FOREIGN))
    assert plan.steps == ()
    assert plan.refused == ("Pod box belongs to ReplicaSet web; rename the sandbox or delete that pod",)


def test_a_pod_of_nobody_is_refused_without_leave() -> None:
    plan = plan_of(sandbox(), pod(owner=None, labels={}))
    assert plan.steps == ()
    assert "adoptable=true" in plan.refused[0]


def test_an_annotation_that_leads_to_somebody_else_is_dropped() -> None:
    plan = plan_of(sandbox(annotations={POD_NAME: "other", "keep": "me"}), pod("other", owner=FOREIGN))
    assert verbs(plan) == ["create Pod box", "patch Sandbox box"]
    assert body(plan, "Sandbox")["metadata"] == {"uid": "uid-box", "annotations": {POD_NAME: None}}
    assert plan.refused == ()


def test_an_annotation_that_leads_nowhere_is_dropped() -> None:
    assert verbs(plan_of(sandbox(annotations={POD_NAME: "gone"}))) == ["create Pod box", "patch Sandbox box"]


def test_an_owned_survivor_counts() -> None:
    plan = plan_of(sandbox(annotations={POD_NAME: "gone"}), pod("survivor"))
    assert verbs(plan) == ["patch Sandbox box"]
    assert body(plan, "Sandbox")["metadata"]["annotations"] == {POD_NAME: "survivor"}


def test_an_owned_survivor_beats_an_adoptable_pod() -> None:
    box = sandbox(annotations={POD_NAME: "other"})
    plan = plan_of(box, pod("survivor"), pod("other", owner=None, labels=FREE))
    assert verbs(plan) == ["patch Sandbox box"]


def test_only_the_owner_uid_makes_a_pod_ours() -> None:
    earlier, free = pod("a", owner=PREDECESSOR), pod("b", owner=None)
    assert view_of(sandbox(), earlier, free).owned == ()
    assert verbs(plan_of(sandbox(), earlier, free)) == ["create Pod box"]


def test_a_departing_pod_is_waited_for() -> None:
    assert plan_of(sandbox(), pod(deletionTimestamp=GONE, labels={})).steps == ()


def test_the_pod_of_an_earlier_incarnation_is_waited_for() -> None:
    plan = plan_of(sandbox(), pod(owner=PREDECESSOR))
    assert (plan.steps, plan.refused) == ((), ())


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_kept(phase: str) -> None:
    assert plan_of(sandbox(), pod(phase=phase)).steps == ()


def test_two_pods_of_other_names_are_not_ours_to_choose_from() -> None:
    plan = plan_of(sandbox(spec={"service": True}), pod("one"), pod("two"))
    assert plan.steps == ()
    assert plan.refused == ()
    assert said(verdict(sandbox(), pod("one"), pod("two")), "Ready") == ("False", "MultiplePods")


# Suspending


def test_suspension_deletes_the_pod_by_uid() -> None:
    plan = plan_of(sandbox(spec=SUSPENDED), pod())
    assert verbs(plan) == ["delete Pod box"]
    (step,) = plan.steps
    assert step.preconditions.uid == "pod-box"  # type: ignore[union-attr]


def test_suspension_waits_for_a_pod_that_is_going() -> None:
    assert plan_of(sandbox(spec=SUSPENDED), pod(deletionTimestamp=GONE)).steps == ()


def test_suspension_without_a_pod_has_nothing_to_do() -> None:
    assert plan_of(sandbox(spec=SUSPENDED)).steps == ()


@pytest.mark.parametrize("owner", [FOREIGN, None])
def test_suspension_spares_others_and_forgets_the_annotation(owner: Any) -> None:
    plan = plan_of(sandbox(spec=SUSPENDED, annotations={POD_NAME: "other", "keep": "me"}), pod("other", owner=owner))
    assert verbs(plan) == ["patch Sandbox box"]
    assert body(plan, "Sandbox")["metadata"]["annotations"] == {POD_NAME: None}


def test_suspension_keeps_the_annotation_while_the_pod_goes() -> None:
    box = sandbox(spec=SUSPENDED, annotations={POD_NAME: "other"})
    assert verbs(plan_of(box, pod("other"))) == ["delete Pod other"]


def test_suspension_keeps_service_and_storage() -> None:
    box = sandbox(spec={**SUSPENDED, "service": True, **templates("data")})
    assert plan_of(box, service(), volume_claim()).steps == ()
    assert verbs(plan_of(box)) == ["create PersistentVolumeClaim data-box", "create Service box"]


def test_a_pod_on_its_way_needs_nothing() -> None:
    assert plan_of(sandbox(), pending()).steps == ()
    assert "Pending" in message(verdict(sandbox(), pending()))
