from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.status import Trouble, events_of, status_patch, urgent
from sandpool.controllers.sandbox.view import pod_key
from sandpool.model.conditions import find
from sandpool.model.labels import POD_NAME
from sandpool.model.names import name_hash
from sandpool.model.pod import PodStatus
from sandpool.model.sandbox import SandboxStatus
from unit.controllers.sandbox.views import (
    FOREIGN,
    GONE,
    HASH,
    NOW,
    PREDECESSOR,
    UID,
    condition,
    ended,
    message,
    pending,
    pod,
    said,
    sandbox,
    service,
    verdict,
)

SUSPENDED = {"operatingMode": "Suspended"}
NOT_READY = ("False", "DependenciesNotReady")
IS_READY = ("True", "DependenciesReady")
UNKNOWN = Trouble(failed=("no answer",), pod_unknown=True)
FAILED = Trouble(failed=("could not create pod box: no",))


def test_without_pod_and_service_both_are_named() -> None:
    status = verdict(sandbox(spec={"service": True}))
    assert said(status, "Ready") == NOT_READY
    assert "pod does not exist" in message(status)
    assert "Service does not exist" in message(status)


def test_a_service_alone_is_not_ready() -> None:
    status = verdict(sandbox(spec={"service": True}), service())
    assert said(status, "Ready") == NOT_READY
    assert "Service Exists" in message(status)


def test_a_pending_pod_is_told_by_its_phase() -> None:
    status = verdict(sandbox(), pending())
    assert said(status, "Ready") == NOT_READY
    assert "Pending" in message(status)
    assert said(status, "PodScheduled") == ("Unknown", "PodSchedulingUnknown")


def test_a_pod_that_does_not_start_is_told_in_healthy_with_its_own_reason() -> None:
    waits = [{"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]
    starting = replace(pending(), status=msgspec.convert({"phase": "Pending", "containerStatuses": waits}, PodStatus))
    status = verdict(sandbox(), starting)
    assert said(status, "Ready") == NOT_READY
    assert said(status, "Healthy") == ("False", "PodNotStarting")
    assert message(status, "Healthy") == ("The pod is held up: container main waits: ImagePullBackOff: no such image")
    assert said(verdict(sandbox(), starting, trouble=FAILED), "Healthy") == ("False", "ControllerTrouble")
    assert said(verdict(sandbox(spec=SUSPENDED), starting), "Healthy") is None
    assert said(verdict(sandbox(status=status), pod()), "Healthy") is None, "it is taken back"
    assert events_of(SandboxStatus(), status) == [], "its kubelet tells"
    assert [one.reason for one in events_of(status, verdict(sandbox(status=status), starting, trouble=FAILED))] == [
        "ControllerTrouble"
    ]


def test_running_but_not_ready() -> None:
    assert said(verdict(sandbox(), pod(conditions=[])), "Ready") == NOT_READY
    assert said(verdict(sandbox(), pod(conditions=[{"type": "Ready", "status": "False"}])), "Ready") == NOT_READY


def test_ready_without_address() -> None:
    status = verdict(sandbox(), pod(ips=()))
    assert said(status, "Ready") == NOT_READY
    assert "no podIPs" in message(status)


def test_ready_with_everything() -> None:
    status = verdict(sandbox(spec={"service": True}), pod(ips=("10.0.0.1", "fd00::1")), service())
    assert said(status, "Ready") == IS_READY
    assert [c.type for c in status.conditions] == ["Suspended", "PodScheduled", "Ready"]
    assert {c.observed_generation for c in status.conditions} == {3}
    assert (status.pod_ips, status.node_name) == (("10.0.0.1", "fd00::1"), "n1")
    assert status.selector == f"agents.x-k8s.io/sandbox-name-hash={HASH}"
    assert (status.service, status.service_fqdn) == ("box", "box.default.svc.cluster.local")


def test_no_service_is_needed_unless_asked_for() -> None:
    assert said(verdict(sandbox(), pod()), "Ready") == IS_READY
    assert said(verdict(sandbox(spec={"service": False}), pod()), "Ready") == IS_READY


def test_a_custom_cluster_domain() -> None:
    status = verdict(sandbox(spec={"service": True}), service(), options=Options(cluster_domain="corp.example"))
    assert status.service_fqdn == "box.default.svc.corp.example"


def test_suspending_while_the_pod_goes() -> None:
    status = verdict(sandbox(spec=SUSPENDED), pod(deletionTimestamp=GONE))
    assert said(status, "Suspended") == ("False", "PodTerminating")
    assert said(status, "Ready") == ("False", "SandboxSuspended")


def test_suspension_blocked_by_a_foreign_pod() -> None:
    status = verdict(sandbox(spec=SUSPENDED), pod(owner=FOREIGN))
    assert said(status, "Suspended") == ("False", "PodNotOwned")
    assert said(status, "PodScheduled") is None
    assert (status.pod_ips, status.node_name) == ((), "")
    assert status.selector


def test_a_delete_that_failed_is_still_terminating() -> None:
    status = verdict(sandbox(spec=SUSPENDED), pod(), trouble=FAILED)
    assert said(status, "Suspended") == ("False", "PodTerminating")
    assert said(status, "Ready") == ("False", "ReconcilerError")


def test_suspended() -> None:
    status = verdict(sandbox(spec=SUSPENDED, status=SandboxStatus(selector="s")))
    assert said(status, "Suspended") == ("True", "PodTerminated")
    assert said(status, "Ready") == ("False", "SandboxSuspended")
    assert status.selector == "s", "stays while suspended"


def test_suspended_and_the_pod_unknown() -> None:
    status = verdict(sandbox(spec=SUSPENDED), trouble=UNKNOWN)
    assert said(status, "Suspended") == ("Unknown", "PodStateUnknown")
    assert said(status, "PodScheduled") == ("Unknown", "PodSchedulingUnknown")


def test_trouble_with_a_service_does_not_hide_that_the_pod_is_unknown() -> None:
    both = Trouble(refused=("Service box belongs to somebody",), failed=("no answer",), pod_unknown=True)
    for box in (sandbox(spec=SUSPENDED), sandbox(spec={**SUSPENDED, "service": True})):
        status = verdict(box, trouble=both)
        assert said(status, "Suspended") == ("Unknown", "PodStateUnknown")
        assert said(status, "Ready") == ("False", "ReconcilerError")
        assert "no answer" in message(status)
        assert "Service box" in message(status)


def test_running_and_the_pod_unknown() -> None:
    status = verdict(sandbox(), trouble=UNKNOWN)
    assert said(status, "PodScheduled") == ("Unknown", "PodSchedulingUnknown")
    assert said(status, "Ready") == ("False", "ReconcilerError")


def test_resuming_without_a_pod_yet() -> None:
    before = SandboxStatus(conditions=(condition("Suspended", "True", "PodTerminated"),))
    status = verdict(sandbox(status=before))
    assert said(status, "Suspended") == ("False", "NotSuspended")
    changed = find(status.conditions, "Suspended")
    assert changed is not None
    assert changed.last_transition_time == NOW


@pytest.mark.parametrize("phase", ["Unknown", "Pending"])
def test_other_phases_are_not_ready(phase: str) -> None:
    status = verdict(sandbox(), pod(phase=phase))
    assert said(status, "Ready") == NOT_READY
    assert phase in message(status)


@pytest.mark.parametrize(("phase", "reason"), [("Failed", "PodFailed"), ("Succeeded", "PodSucceeded")])
def test_a_finished_pod(phase: str, reason: str) -> None:
    status = verdict(sandbox(), pod(phase=phase))
    assert said(status, "Finished") == ("True", reason)
    assert said(status, "Ready") == ("False", reason)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize("spec", [{}, SUSPENDED])
def test_a_pod_that_is_stopped_has_not_finished(phase: str, spec: dict[str, Any]) -> None:
    status = verdict(sandbox(spec=spec), pod(phase=phase, deletionTimestamp=GONE))
    assert said(status, "Finished") is None
    assert said(status, "Ready") == (("False", "SandboxSuspended") if spec else NOT_READY)


def test_what_had_finished_before_its_pod_leaves_stays_finished() -> None:
    box = sandbox(status=SandboxStatus(conditions=(condition("Finished", "True", "PodFailed"),)))
    status = verdict(box, pod(phase="Failed", deletionTimestamp=GONE))
    assert said(status, "Finished") == ("True", "PodFailed")
    assert said(status, "Ready") == ("False", "PodFailed")
    kept = find(status.conditions, "Finished")
    assert kept is not None
    assert kept.last_transition_time is not None
    assert kept.last_transition_time < NOW


def test_a_foreign_pod_finishes_nothing() -> None:
    status = verdict(sandbox(), pod(phase="Failed", owner=FOREIGN))
    assert said(status, "Finished") is None
    assert said(status, "Ready") == NOT_READY


def test_a_foreign_pod_is_never_ready() -> None:
    status = verdict(sandbox(), pod(owner=FOREIGN))
    assert said(status, "Ready") == NOT_READY
    assert status.pod_ips == ()


def test_an_error_is_the_reason_of_what_is_not_ready() -> None:
    assert said(verdict(sandbox(), pending(), trouble=FAILED), "Ready") == ("False", "ReconcilerError")


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulingGated"])
def test_the_scheduler_is_quoted(reason: str) -> None:
    quoted = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes"}
    status = verdict(sandbox(), pod(phase="Pending", conditions=[quoted]))
    assert said(status, "PodScheduled") == ("False", reason)
    assert message(status, "PodScheduled") == "0/3 nodes"


@pytest.mark.parametrize(("truth", "reason"), [("False", "PodSchedulingUnknown"), ("True", "PodScheduled")])
def test_a_scheduler_without_a_reason_gets_one(truth: str, reason: str) -> None:
    status = verdict(sandbox(), pod(conditions=[{"type": "PodScheduled", "status": truth}]))
    assert said(status, "PodScheduled") == (truth, reason)


def test_several_pods_are_told_without_other_trouble() -> None:
    status = verdict(sandbox(), pod("one"), pod("two"), trouble=FAILED)
    assert said(status, "Ready") == ("False", "MultiplePods")
    assert "2 pods" in message(status)
    assert "could not" not in message(status)
    assert status.pod_ips == ()


def test_an_earlier_incarnation_is_waited_for() -> None:
    assert "earlier sandbox" in message(verdict(sandbox(), pod(owner=PREDECESSOR)))


def test_pod_scheduled_goes_with_the_pod() -> None:
    before = SandboxStatus(conditions=(condition("Suspended", "False"), condition("PodScheduled", "True")))
    status = verdict(sandbox(status=before))
    assert said(status, "PodScheduled") is None
    assert said(status, "Suspended") == ("False", "NotSuspended")


@pytest.mark.parametrize(
    ("annotations", "name"), [({}, "box"), ({"a": "b"}, "box"), ({POD_NAME: ""}, "box"), ({POD_NAME: "other"}, "other")]
)
def test_the_name_of_the_pod(annotations: dict[str, str], name: str) -> None:
    assert pod_key(sandbox(annotations=annotations)).name == name


@pytest.mark.parametrize(
    ("name", "value"), [("a", "e40c292c"), ("my-sandbox", "374de8f5"), ("sandbox-name", "ab179450"), ("", "811c9dc5")]
)
def test_the_hash_of_a_name(name: str, value: str) -> None:
    assert name_hash(name) == value


def test_twenty_looks_leave_three_conditions() -> None:
    box = sandbox()
    for _ in range(20):
        box = sandbox(status=verdict(box, pod()))
    assert [c.type for c in box.status.conditions] == ["Suspended", "PodScheduled", "Ready"]
    assert status_patch(box, verdict(box, pod())) is None


def test_the_end_keeps_how_it_ended() -> None:
    kept = (condition("Suspended", "False"), condition("Finished", "True", "PodFailed"))
    before = SandboxStatus(
        conditions=(*kept, condition("PodScheduled", "True")), pod_ips=("10.0.0.1",), service="box", selector="s"
    )
    status = ended(sandbox(status=before))
    assert said(status, "Ready") == ("False", "SandboxExpired")
    assert said(status, "Finished") == ("True", "PodFailed")
    assert said(status, "Suspended") == ("False", "Because")
    assert said(status, "PodScheduled") is None
    assert SandboxStatus(conditions=status.conditions) == status


# The patch


def operations(box: Any, status: SandboxStatus) -> list[dict[str, Any]]:
    patch = status_patch(box, status)
    assert patch is not None
    test, *rest = patch.body
    assert test == {"op": "test", "path": "/metadata/uid", "value": UID}
    return rest


def test_the_first_status_is_written_whole() -> None:
    (operation,) = operations(sandbox(), verdict(sandbox(), pod()))
    assert (operation["op"], operation["path"]) == ("add", "/status")
    assert operation["value"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_later_only_what_differs() -> None:
    first = verdict(sandbox(), pod())
    changed = verdict(sandbox(status=first), pod(node="n2"))
    assert operations(sandbox(status=first), changed) == [{"op": "add", "path": "/status/nodeName", "value": "n2"}]


def test_what_is_empty_now_is_removed() -> None:
    box = sandbox(status=SandboxStatus(conditions=(condition("Ready", "True"),), service="box"))
    assert operations(box, SandboxStatus(conditions=box.status.conditions)) == [
        {"op": "remove", "path": "/status/service"}
    ]


def test_a_new_generation_is_told() -> None:
    """kubectl wait does not believe a condition of an older generation."""
    first = verdict(sandbox(), pod())
    newer = sandbox(status=first, generation=4)
    assert status_patch(newer, verdict(newer, pod())) is not None
    assert not urgent(first, verdict(newer, pod()))


@pytest.mark.parametrize(
    ("before", "after", "haste"),
    [
        ((), (pending(),), False),
        ((pending(),), (pod(conditions=[]),), False),
        ((pending(),), (pod(),), True),
        ((pod(),), (pod(conditions=[]),), True),
        ((pod(),), (pod(ips=("10.0.0.9",)),), True),
        ((pod(),), (pod(node="n2"),), True),
        ((pod(conditions=[]),), (pod(conditions=[], node="n2"),), False),
        ((pod(conditions=[]),), (pod(phase="Failed"),), True),
    ],
)
def test_what_is_told_at_once(before: tuple[Any, ...], after: tuple[Any, ...], haste: bool) -> None:
    old = verdict(sandbox(), *before)
    assert urgent(old, verdict(sandbox(status=old), *after)) is haste


def test_a_complete_suspension_and_an_end_are_told_at_once() -> None:
    running = verdict(sandbox(), pod(conditions=[]))
    going = verdict(sandbox(spec=SUSPENDED, status=running), pod(conditions=[]))
    gone = verdict(sandbox(spec=SUSPENDED, status=going))
    assert not urgent(running, going)
    assert urgent(going, gone)
    assert urgent(gone, ended(sandbox(status=gone)))


def test_transition_times_stay_while_the_status_stays() -> None:
    before = SandboxStatus(conditions=(condition("Ready", "False", since=NOW - timedelta(days=1)),))
    ready = find(verdict(sandbox(status=before), pending()).conditions, "Ready")
    assert ready is not None
    assert ready.last_transition_time == NOW - timedelta(days=1)


def test_what_only_the_user_can_mend_is_told_at_once_and_other_trouble_is_not() -> None:
    before = verdict(sandbox(), pending())
    assert urgent(before, verdict(sandbox(status=before), pending(), trouble=Trouble(refused=("no",))))
    assert not urgent(before, verdict(sandbox(status=before), pending(), trouble=FAILED))
