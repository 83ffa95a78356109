from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sandpool.controllers.cache_transforms import PodTransform
from sandpool.controllers.sandbox.memory import Memory
from sandpool.controllers.sandbox.observe import Observer
from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.triggers import (
    Haste,
    Triggers,
    awakens,
    claim_haste,
    concerns,
    pod_haste,
    priority_of,
    priority_of_change,
    service_haste,
)
from sandpool.kube.api import Event, EventType
from sandpool.kube.priority import Priority
from sandpool.loop.controller import Controller
from sandpool.loop.outcome import Done
from sandpool.model.labels import POD_NAME, WARM_POOL
from sandpool.model.metadata import Key, Revision
from sandpool.model.pod import Pod, PodSpec, PodStatus
from sandpool.model.sandbox import SandboxStatus
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.clocks.manual_clock import ManualClock
from unit.controllers.sandbox.views import (
    CLAIM,
    FOREIGN,
    GONE,
    POOL,
    SCHEDULED,
    caches_of,
    condition,
    owner_object,
    pending,
    pod,
    sandbox,
    service,
    templates,
    volume_claim,
)

TOLD = sandbox(status=SandboxStatus(conditions=(condition("Ready", "False"),)))
STUCK = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
WAITING_FOR_NOTHING = pod(phase="Pending", ips=(), node="", conditions=[STUCK])
WAITING = pod(phase="Pending", ips=(), node="", conditions=[SCHEDULED])


def in_order(_: Any) -> bool:
    return False


def out_of_order(_: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("old", "new", "haste"),
    [
        (None, pending(), Haste.SOON),
        (None, pod(), Haste.NOW),
        (None, pending(owner=None), Haste.NOW),
        (pending(), None, Haste.NOW),
        (pending(), WAITING, Haste.LATE),
        (WAITING, pod(conditions=[SCHEDULED]), Haste.LATE),
        (pending(), pod(phase="Pending", ips=(), node="", conditions=[STUCK]), Haste.SOON),
        (WAITING, pod(), Haste.NOW),
        (pod(), pod(), Haste.NEVER),
        (pod(), pod(resourceVersion="8", managedFields=[{"manager": "x"}]), Haste.NEVER),
        (pod(), pod(ips=("10.0.0.2",)), Haste.NOW),
        (pod(), pod(phase="Failed"), Haste.NOW),
        (pod(), pod(deletionTimestamp=GONE), Haste.NOW),
        (pod(), pod(owner=FOREIGN), Haste.NOW),
        (pod(), pod(annotations={"cni": "x"}), Haste.NEVER),
    ],
)
def test_how_soon_a_pod_matters(old: Any, new: Any, haste: Haste) -> None:
    assert pod_haste(old, new, TOLD, in_order) is haste


def test_the_first_progress_is_told_sooner_than_the_next() -> None:
    assert pod_haste(pending(), WAITING, sandbox(), in_order) is Haste.SOON


def test_of_a_member_that_waits_in_its_pool_nobody_asks_before_it_is_ready() -> None:
    member = sandbox(owner=POOL)
    assert pod_haste(None, pending(), member, in_order) is Haste.LATE
    assert pod_haste(pending(), WAITING, member, in_order) is Haste.LATE
    assert pod_haste(pending(), WAITING_FOR_NOTHING, member, in_order) is Haste.SOON
    assert pod_haste(WAITING, pod(), member, in_order) is Haste.NOW


def held_up(reason: str, message: str = "") -> Pod:
    state = {"waiting": {"reason": reason, "message": message}}
    body = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]}
    return msgspec.structs.replace(WAITING, status=msgspec.convert(body, PodStatus))


def test_a_container_that_cannot_start_is_told_soon_and_not_again_for_each_attempt() -> None:
    pulling, failed, resting = (
        held_up("ContainerCreating"),
        held_up("ErrImagePull", "denied"),
        held_up("ImagePullBackOff", 'Back-off pulling image "r.example:5000/x:1": ErrImagePull: denied'),
    )
    assert pod_haste(pulling, failed, TOLD, in_order) is Haste.SOON
    assert pod_haste(failed, resting, TOLD, in_order) is Haste.NEVER
    assert (failed.held_up, resting.held_up) == ("container main waits: ImagePullBackOff: denied",) * 2
    crashed = [held_up("CrashLoopBackOff", f"back-off {time}s restarting failed container") for time in (10, 20)]
    assert pod_haste(*crashed, TOLD, in_order) is Haste.NEVER  # type: ignore[arg-type, call-arg]
    assert crashed[0].held_up == "container main waits: CrashLoopBackOff"
    wrong = held_up("CreateContainerConfigError", 'secret "s" not found')
    assert wrong.held_up == 'container main waits: CreateContainerConfigError: secret "s" not found'


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ({"reason": "Error", "exitCode": 3, "message": "at 12:00:01"}, "Error, exit code 3"),
        ({"reason": "OOMKilled", "exitCode": 137}, "OOMKilled, exit code 137"),
        (
            {"reason": "StartError", "exitCode": 128, "message": "no such file: 'sleep'"},
            "StartError: no such file: 'sleep'",
        ),
    ],
)
def test_a_container_that_keeps_ending_says_how_it_ended(ended: dict[str, Any], told: str) -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    container = {"name": "main", "state": state, "lastState": {"terminated": ended}}
    status = msgspec.convert({"phase": "Running", "containerStatuses": [container]}, PodStatus)
    crashed = msgspec.structs.replace(WAITING, status=status)
    assert crashed.held_up == f"container main waits: CrashLoopBackOff: {told}"
    assert PodTransform()(crashed).held_up == crashed.held_up


def test_what_an_older_kubelet_leaves_out_is_told_when_there_is_time() -> None:
    resting = held_up("ImagePullBackOff", 'Back-off pulling image "x"')
    assert resting.held_up == "container main waits: ImagePullBackOff"
    assert pod_haste(held_up("ErrImagePull", "denied"), resting, TOLD, in_order) is Haste.LATE


def test_words_of_a_registry_are_cut() -> None:
    assert len(held_up("ErrImagePull", "x" * 10_000).held_up) < 400


def test_a_pod_that_no_node_takes_is_held_up_until_one_does() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    waits = msgspec.convert({"status": {"phase": "Pending", "conditions": [said]}}, Pod)
    assert waits.held_up == "Unschedulable: 0/3 nodes"
    assert msgspec.structs.replace(waits, spec=PodSpec(node_name="n")).held_up == ""


def test_metadata_matters_when_it_is_wrong() -> None:
    assert pod_haste(pod(), pod(labels={}), TOLD, out_of_order) is Haste.NOW
    free = pod(owner=None, labels={})
    assert pod_haste(free, pod(owner=None, labels={"a": "b"}), TOLD, in_order) is Haste.NOW, "it may be adoptable now"


@pytest.mark.parametrize(
    ("old", "new", "haste"),
    [
        (None, service(), Haste.NEVER),
        (service(), None, Haste.NOW),
        (service(), service(selector={}), Haste.NOW),
        (service(), service(deletionTimestamp=GONE), Haste.NOW),
        (service(), service(owner=None), Haste.NOW),
        (service(owner=None), service(owner=None, resourceVersion="8"), Haste.NEVER),
        (service(owner=None, labels={}), service(owner=None), Haste.NOW),
    ],
)
def test_how_soon_a_service_matters(old: Any, new: Any, haste: Haste) -> None:
    assert service_haste(old, new, sandbox(spec={"service": True})) is haste


def test_a_service_that_nobody_wants_matters() -> None:
    assert service_haste(None, service(), sandbox(spec={"service": False})) is Haste.NOW


@pytest.mark.parametrize(
    ("old", "new", "haste"),
    [
        (None, volume_claim(), Haste.NEVER),
        (volume_claim(), None, Haste.NOW),
        (volume_claim(), volume_claim(deletionTimestamp=GONE), Haste.NOW),
        (None, volume_claim(owner=None), Haste.NOW),
        (volume_claim(owner=FOREIGN), volume_claim(owner=FOREIGN, resourceVersion="8"), Haste.NEVER),
        (volume_claim(owner=FOREIGN), volume_claim(owner=None), Haste.NOW),
    ],
)
def test_how_soon_storage_matters(old: Any, new: Any, haste: Haste) -> None:
    assert claim_haste(old, new, sandbox()) is haste


def test_what_of_a_sandbox_wakes_it() -> None:
    same = concerns(sandbox())
    assert concerns(sandbox(status=TOLD.status, resourceVersion="9", labels={"app": "x"})) == same
    for changed in (
        sandbox(generation=4),
        sandbox(owner=CLAIM),
        sandbox(labels={WARM_POOL: "w"}),
        sandbox(annotations={POD_NAME: "p"}),
        sandbox(deletionTimestamp=GONE),
        sandbox(uid="another"),
    ):
        assert concerns(changed) != same


def test_a_sandbox_that_goes_is_not_looked_at() -> None:
    """What it controls is collected with it: a release is no reconcile."""
    box, leaving = sandbox(owner=CLAIM), sandbox(owner=CLAIM, deletionTimestamp=GONE)
    assert awakens(None, box)
    assert awakens(box, sandbox(owner=CLAIM, generation=4))
    assert not awakens(box, sandbox(owner=CLAIM, status=TOLD.status))
    assert not awakens(None, leaving)
    assert not awakens(box, leaving)
    assert not awakens(leaving, None)
    assert not awakens(box, None)


def test_the_end_of_a_sandbox_that_is_gone_is_not_waited_for() -> None:
    assert awakens(sandbox(spec={"shutdownTime": "2036-01-01T00:00:00Z"}), None)


def test_what_a_pool_waits_for_comes_second() -> None:
    assert [priority_of(sandbox(owner=owner)) for owner in (None, CLAIM, POOL)] == [
        Priority.URGENT,
        Priority.URGENT,
        Priority.BACKGROUND,
    ]


def test_members_that_claims_wait_for_come_first_and_what_is_gone_last() -> None:
    member, claimed = sandbox(owner=POOL), sandbox(owner=CLAIM)
    assert (priority_of(member, pressed=True), priority_of_change(None, member, pressed=True)) == (
        Priority.URGENT,
        Priority.URGENT,
    )
    assert priority_of_change(claimed, None) == priority_of_change(claimed, None, pressed=True) == Priority.BACKGROUND
    assert priority_of_change(None, claimed) == Priority.URGENT


def woken_by(box: Any, resource: str, obj: Any) -> bool:
    """Whether the sandbox waits in the queue after a cache has heard of an object."""

    async def never(_: Any) -> Done:
        raise AssertionError

    caches = caches_of()
    clock = ManualClock()
    loop: Controller[Key] = Controller("sandbox", never, clock, Metrics(), ReconcileHistory())
    Triggers(loop, Observer(caches), Options(), Memory(), clock).connect()
    caches.sandboxes.apply(Event(EventType.ADDED, box, Revision(101)))
    item = loop.queue.take_nowait()
    assert (item is None) is box.metadata.leaving
    if item is not None:
        assert item.key == box.metadata.key
        loop.queue.done(item.key, settled=True)
    getattr(caches, resource).apply(Event(EventType.ADDED, obj, Revision(101)))
    return loop.queue.take_nowait() is not None


@pytest.mark.parametrize(
    ("box", "resource", "obj", "woken"),
    [
        (sandbox(), "pods", pod(), True),
        (sandbox(deletionTimestamp=GONE), "pods", pod(), False),
        (sandbox(), "pods", pod("other"), True),
        (sandbox(), "pods", pod("other", owner=None), False),
        (sandbox(annotations={POD_NAME: "other"}), "pods", pod("other", owner=None), True),
        (sandbox(), "pods", pod(namespace="elsewhere"), False),
        (sandbox(), "services", service(owner=None), True),
        (sandbox(spec=templates("data")), "volume_claims", volume_claim(owner=None), True),
        (sandbox(), "volume_claims", volume_claim(owner=None), False),
        (sandbox(owner=CLAIM), "claims", owner_object(CLAIM)[1], True),
        (sandbox(owner=POOL), "pools", owner_object(POOL)[1], True),
        (sandbox(), "pools", owner_object(POOL)[1], False),
    ],
)
def test_who_wakes_whom(box: Any, resource: str, obj: Any, woken: bool) -> None:
    assert woken_by(box, resource, obj) is woken
