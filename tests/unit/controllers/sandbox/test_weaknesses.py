"""Known weaknesses of controllers for this API, each shown not to be here. Those that need time or faults are shown in
tests/integration/controllers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from sandpool.controllers.sandbox.status import Trouble, events_of
from sandpool.controllers.sandbox.triggers import concerns
from sandpool.loop.events import Kind
from sandpool.model.conditions import MAX_MESSAGE, find
from sandpool.model.crds import crd
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import (
    ADOPTABLE,
    POD_NAME,
    POD_SPEC_HASH,
    PROPAGATED_ANNOTATIONS,
    SAFE_TO_EVICT,
    SANDBOX_NAME_HASH,
    SANDBOX_UID,
    TEMPLATE_REF_HASH,
    TRACE_CONTEXT,
    WARM_POOL,
)
from sandpool.model.pod import Pod, PodStatus
from sandpool.model.sandbox import SandboxStatus
from sandpool.model.times import seconds
from unit.controllers.sandbox.views import (
    CLAIM,
    FOREIGN,
    GONE,
    HASH,
    IDENTITY,
    MADE_FROM,
    NOW,
    POOL,
    TRACKING,
    UID,
    body,
    ended,
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
    volume_claim,
)

EVICTABLE = {SAFE_TO_EVICT: "true", PROPAGATED_ANNOTATIONS: SAFE_TO_EVICT}
IS_READY = ("True", "DependenciesReady")
SAME_HASH = ("black-viper-eel1", "white-seal-pink0")
SUSPENDED = {"operatingMode": "Suspended"}
OVER = {"shutdownTime": seconds(NOW - timedelta(seconds=1))}


def test_w1_no_pod_mounts_storage_of_somebody_else() -> None:
    ambiguous = sandbox(name="c", spec=templates("a-b"))
    other = volume_claim("a-b-c", owner={**FOREIGN, "kind": "Sandbox", "name": "b-c"})
    plan = plan_of(ambiguous, other)
    assert plan.steps == ()
    assert plan.refused


def test_w2_a_foreign_service_matters_only_to_who_asks_for_one() -> None:
    plan = plan_of(sandbox(), pod(), service(owner=FOREIGN))
    assert (plan.steps, plan.refused) == ((), ())
    assert said(verdict(sandbox(), pod(), service(owner=FOREIGN)), "Ready") == IS_READY


def test_w5_a_departing_pod_is_not_ready_and_has_no_address() -> None:
    status = verdict(sandbox(), pod(deletionTimestamp=GONE))
    assert said(status, "Ready") == ("False", "DependenciesNotReady")
    assert "going away" in message(status)
    assert (status.pod_ips, status.node_name) == ((), "")


def test_w6_every_delete_names_its_object() -> None:
    for plan in (
        plan_of(sandbox(spec=SUSPENDED), pod()),
        plan_of(sandbox(spec={**OVER, "shutdownPolicy": "Delete"}), pod(), service()),
        plan_of(sandbox(spec={"service": False}), pod(), service()),
    ):
        assert plan.steps
        for step in plan.steps:
            uid = {"pods": "pod-box", "services": "service-box", "sandboxes": "uid-box"}[step.resource.plural]
            assert step.preconditions.uid == uid  # type: ignore[union-attr]


def test_w7_a_lost_tracking_label_is_put_back() -> None:
    assert body(plan_of(sandbox(), pod(labels={})), "Pod")["metadata"]["labels"] == IDENTITY


def test_w9_an_annotation_cannot_wedge_a_sandbox() -> None:
    plan = plan_of(sandbox(annotations={POD_NAME: "other"}), pod("other", owner=None, labels={}))
    assert verbs(plan) == ["create Pod box", "patch Sandbox box"]
    assert plan.refused == ()


OTHER_SPEC = [{"name": "main", "image": "python", "env": [{"name": "A", "value": "b"}]}]


def test_w10_a_pod_that_was_made_from_another_spec_is_told_and_left_alone() -> None:
    changed = sandbox(containers=OTHER_SPEC)
    present = pod(annotations=MADE_FROM)
    assert plan_of(changed, present).steps == ()
    status = verdict(changed, present)
    assert said(status, "PodUpToDate") == ("False", "PodOutdated")
    assert "delete this one, or suspend and resume" in message(status, "PodUpToDate")
    assert said(status, "Ready") == IS_READY
    assert [(one.kind, one.reason) for one in events_of(SandboxStatus(), status)] == [(Kind.NORMAL, "PodOutdated")]
    assert events_of(status, status) == []
    back = verdict(sandbox(status=status), present)
    assert said(back, "PodUpToDate") is None, "a change that is taken back is none"


@pytest.mark.parametrize(
    "present",
    [pod(), pod(annotations=MADE_FROM, deletionTimestamp=GONE), pod(owner=FOREIGN, annotations=MADE_FROM), pod("x")],
    ids=["of another maker", "going", "of somebody else", "of another name and maker"],
)
def test_w10_nothing_is_told_of_pods_that_nobody_can_judge(present: Pod) -> None:
    assert said(verdict(sandbox(containers=OTHER_SPEC), present), "PodUpToDate") is None


def test_w10_how_a_spec_is_written_makes_no_difference() -> None:
    limits = {"resources": {"limits": {"cpu": "1000m"}}}
    made_from = body(plan_of(sandbox(containers=[{"name": "main", **limits}])), "Pod")["metadata"]["annotations"]
    same = sandbox(containers=[{"env": [], "resources": {"limits": {"cpu": "1"}}, "name": "main"}])
    assert said(verdict(same, pod(annotations=made_from)), "PodUpToDate") is None


def test_w10_a_template_cannot_forge_the_record() -> None:
    forged = sandbox(template={"annotations": {POD_SPEC_HASH: "x"}})
    assert body(plan_of(forged), "Pod")["metadata"]["annotations"] == MADE_FROM


def test_w10_the_end_forgets_it() -> None:
    status = verdict(sandbox(containers=OTHER_SPEC), pod(annotations=MADE_FROM))
    assert said(ended(sandbox(status=status)), "PodUpToDate") is None


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_w11_a_pod_that_has_ended_is_kept_and_told(phase: str) -> None:
    present = pod(phase=phase)
    assert plan_of(sandbox(), present).steps == ()
    assert said(verdict(sandbox(), present), "Finished") == ("True", f"Pod{phase}")


def test_w11_an_eviction_says_why_and_what_to_do() -> None:
    evicted = msgspec.structs.replace(
        pod(phase="Failed"), status=PodStatus(phase="Failed", reason="Evicted", message="The node was low on memory.")
    )
    before = verdict(sandbox(), pod())
    status = verdict(sandbox(status=before), evicted)
    assert "(Evicted: The node was low on memory.); it is kept: delete it" in message(status)
    (told,) = events_of(before, status)
    assert (told.kind, told.reason, told.message) == (Kind.WARNING, "PodFailed", message(status))


def test_w12a_the_service_selects_by_something_that_is_unique() -> None:
    one, other = (sandbox(name=name, spec={"service": True}) for name in SAME_HASH)
    selectors = [body(plan_of(box), "Service")["spec"]["selector"] for box in (one, other)]
    labels = [body(plan_of(box), "Pod")["metadata"]["labels"] for box in (one, other)]
    assert selectors[0][SANDBOX_NAME_HASH] == selectors[1][SANDBOX_NAME_HASH], "as the contract has it"
    for selector, own, foreign in zip(selectors, labels, reversed(labels), strict=True):
        assert selector.items() <= own.items()
        assert not selector.items() <= foreign.items()


def test_w12a_a_template_cannot_claim_to_be_another_sandbox() -> None:
    forged = sandbox(template={"labels": {SANDBOX_UID: "another"}})
    assert body(plan_of(forged), "Pod")["metadata"]["labels"] == IDENTITY
    stolen = pod(labels={**IDENTITY, SANDBOX_UID: "another"})
    assert body(plan_of(sandbox(), stolen), "Pod")["metadata"]["labels"] == {SANDBOX_UID: UID}


def test_w12a_a_pod_of_an_earlier_version_is_labelled_before_the_selector_narrows() -> None:
    box = sandbox(spec={"service": True})
    plan = plan_of(box, pod(labels=TRACKING), service(selector=TRACKING))
    assert verbs(plan) == ["patch Pod box", "patch Service box"]
    assert verdict(box, pod()).selector == f"{SANDBOX_NAME_HASH}={HASH}", "what readers know stays"


@pytest.mark.parametrize("owner", [{**POOL, "uid": "forged"}, {**CLAIM, "name": "other"}])
def test_w12b_an_owner_that_does_not_exist_implies_nothing(owner: dict[str, Any]) -> None:
    forged = sandbox(labels={TEMPLATE_REF_HASH: "t", WARM_POOL: "w"}, owner=owner)
    alive = (owner_object(POOL)[1], owner_object(CLAIM)[1])
    assert plan_of(forged, *alive).steps == (), "nor is there a pod, which would run outside the owner's NetworkPolicy"
    assert f"Waiting for {owner['kind']}" in message(verdict(forged, *alive))
    assert plan_of(forged, *alive, pod(annotations=EVICTABLE if owner["kind"] == POOL["kind"] else {})).steps == ()


def test_w12b_an_owner_of_a_kind_that_cannot_be_looked_up_implies_nothing() -> None:
    box = sandbox(labels={TEMPLATE_REF_HASH: "t"}, owner={**POOL, "kind": "Other"})
    assert body(plan_of(box), "Pod")["metadata"]["labels"] == IDENTITY


def test_w12c_taking_over_is_pinned_once_and_keeps_other_owners() -> None:
    other = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n"}
    free = pod(owner=None, labels={ADOPTABLE: "true"}, ownerReferences=[other])
    metadata = body(plan_of(sandbox(), free), "Pod")["metadata"]
    assert metadata["resourceVersion"] == "7"
    assert metadata["labels"][ADOPTABLE] is None
    assert [owner["kind"] for owner in metadata["ownerReferences"]] == ["Node", "Sandbox"]


def test_w12d_a_volume_template_cannot_give_its_storage_away() -> None:
    box = sandbox(spec=templates("data", labels={ADOPTABLE: "true", "a": "b"}))
    assert body(plan_of(box), "PersistentVolumeClaim")["metadata"]["labels"] == {"a": "b", **TRACKING}


def test_w12e_the_annotation_leads_only_to_a_pod_that_consents() -> None:
    pointed = sandbox(annotations={POD_NAME: "victim"})
    for victim in (pod("victim", owner=FOREIGN), pod("victim", owner=None, labels={"app": "x"})):
        assert verbs(plan_of(pointed, victim)) == ["create Pod box", "patch Sandbox box"]
        assert verdict(pointed, victim).pod_ips == ()
    for spec in (SUSPENDED, OVER):
        steps = plan_of(sandbox(spec=spec, annotations={POD_NAME: "victim"}), pod("victim", owner=FOREIGN)).steps
        assert [step for step in steps if step.resource.kind == "Pod"] == []


def test_w14_what_a_scheduler_says_is_made_to_fit() -> None:
    odd = {"type": "PodScheduled", "status": "False", "reason": "no room!", "message": "x" * 40_000}
    found = find(verdict(sandbox(), pod(conditions=[odd])).conditions, "PodScheduled")
    assert found is not None
    assert found.reason == "no_room_"
    assert len(found.message) == MAX_MESSAGE


def test_w14_what_a_server_answers_is_made_to_fit() -> None:
    status = verdict(sandbox(), trouble=Trouble(failed=("x" * 40_000,)))
    assert {len(message(status, type_)) for type_ in ("Ready", "Healthy")} == {MAX_MESSAGE}


def test_w14_a_pod_that_reports_nonsense_is_quoted_as_unknown() -> None:
    odd = [{"type": "PodScheduled", "status": "Perhaps", "reason": "!!", "message": ""}]
    assert said(verdict(sandbox(), pod(conditions=odd)), "PodScheduled") == ("Unknown", "Unknown")


def test_w19_everything_owned_goes_at_the_end_and_only_once() -> None:
    plan = plan_of(sandbox(spec=OVER), pod("one"), pod("two"), pod("three", deletionTimestamp=GONE))
    assert verbs(plan) == ["delete Pod one", "delete Pod two"]


def test_w19_an_end_is_one_status_however_often_it_is_looked_at() -> None:
    box = sandbox(spec=OVER, status=ended(sandbox(spec=OVER)))
    assert ended(box) == box.status


@pytest.mark.parametrize("trouble", [Trouble(failed=("timeout",)), Trouble(refused=("no",))])
def test_w20_trouble_never_takes_ready_away(trouble: Trouble) -> None:
    status = verdict(sandbox(), pod(), trouble=trouble)
    assert said(status, "Ready") == IS_READY
    healthy = said(status, "Healthy")
    assert healthy == ("False", "ControllerTrouble" if trouble.failed else "ConfigurationTrouble")
    recovered = verdict(sandbox(status=status), pod())
    assert said(recovered, "Healthy") is None
    assert said(recovered, "Ready") == IS_READY


def test_w21_no_annotation_for_a_pod_of_the_sandboxs_own_name() -> None:
    assert verbs(plan_of(sandbox())) == ["create Pod box"]
    assert plan_of(sandbox(), pod()).steps == ()
    assert plan_of(sandbox(annotations={POD_NAME: "box"}), pod()).steps == (), "nor is one removed that says the same"


def test_w24_people_are_told_what_matters_and_no_more() -> None:
    started = verdict(sandbox(), pending())
    ready = verdict(sandbox(status=started), pod())
    assert events_of(SandboxStatus(), started) == []
    assert events_of(started, ready) == [], "a normal start is not news"
    refused = verdict(sandbox(), trouble=Trouble(refused=("Pod box belongs to ReplicaSet web",)))
    assert [(one.kind, one.reason) for one in events_of(started, refused)] == [(Kind.WARNING, "ConfigurationTrouble")]
    assert events_of(refused, refused) == []
    assert [one.reason for one in events_of(ready, ended(sandbox(status=ready)))] == ["SandboxExpired"]


def test_w24_another_thing_to_do_is_told_and_another_failure_is_not() -> None:
    one = verdict(sandbox(), trouble=Trouble(refused=("rename it",)))
    other = verdict(sandbox(status=one), trouble=Trouble(refused=("delete it",)))
    assert [told.message for told in events_of(one, other)] == ["delete it"]
    failing = verdict(sandbox(), trouble=Trouble(failed=("500",)))
    assert [told.reason for told in events_of(SandboxStatus(), failing)] == ["ControllerTrouble"]
    assert events_of(failing, verdict(sandbox(status=failing), trouble=Trouble(failed=("503",)))) == []
    assert [told.reason for told in events_of(failing, one)] == ["ConfigurationTrouble"]


def test_w24_a_pause_and_its_end_are_told() -> None:
    ready = verdict(sandbox(), pod())
    suspended = verdict(sandbox(spec=SUSPENDED, status=ready))
    assert [(one.kind, one.reason) for one in events_of(ready, suspended)] == [(Kind.NORMAL, "SandboxSuspended")]
    assert [one.reason for one in events_of(suspended, verdict(sandbox(status=suspended)))] == ["SandboxResumed"]


def test_w25_the_pod_of_the_expected_name_is_the_one() -> None:
    pods = (pod(), pod("stray"))
    assert plan_of(sandbox(), *pods).steps == ()
    assert said(verdict(sandbox(), *pods), "Ready") == IS_READY
    pointed = sandbox(annotations={POD_NAME: "stray"})
    assert verdict(pointed, pod(ips=("10.0.0.9",)), pod("stray")).pod_ips == ("10.0.0.1",)


def test_w25_suspension_ends_all_of_several_pods() -> None:
    pods = (pod("one"), pod("two"))
    assert verbs(plan_of(sandbox(spec=SUSPENDED), *pods)) == ["delete Pod one", "delete Pod two"]
    assert said(verdict(sandbox(spec=SUSPENDED), *pods), "Suspended") == ("False", "PodTerminating")


def test_w25_several_pods_are_one_warning() -> None:
    before = verdict(sandbox(), pod("one"))
    after = verdict(sandbox(status=before), pod("one"), pod("two"))
    assert [(one.kind, one.reason) for one in events_of(before, after)] == [(Kind.WARNING, "MultiplePods")]
    assert events_of(after, after) == []


def test_w25_of_several_pods_those_that_go_do_not_count() -> None:
    assert said(verdict(sandbox(), pod("one"), pod("two", deletionTimestamp=GONE)), "Ready") == IS_READY


def test_w27_conditions_are_a_map_and_people_see_mode_address_and_node() -> None:
    version = crd(SANDBOXES)["spec"]["versions"][0]
    conditions = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    columns = {column["name"] for column in version["additionalPrinterColumns"]}
    assert {"Ready", "Reason", "Age", "Mode", "IP", "Node"} <= columns


def test_a_trace_goes_on_in_the_pod() -> None:
    context = '{"traceparent":"00-1-2-01"}'
    traced = sandbox(annotations={TRACE_CONTEXT: context})
    assert body(plan_of(traced), "Pod")["metadata"]["annotations"] == {**MADE_FROM, TRACE_CONTEXT: context}
    assert body(plan_of(traced, pod()), "Pod")["metadata"]["annotations"] == {TRACE_CONTEXT: context}
    assert plan_of(traced, pod(annotations={TRACE_CONTEXT: context})).steps == ()
    assert plan_of(sandbox(), pod(annotations={TRACE_CONTEXT: context})).steps == (), "what others wrote stays"
    assert concerns(traced) != concerns(sandbox())
