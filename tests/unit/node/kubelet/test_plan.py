"""What a pod needs next, as a table: a view in, steps out. No event loop, no API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from sandpool.model.codec import convert
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import ContainerStatus, Exit, PodStatus, Started, State, Waiting
from sandpool.node.kubelet.containers import Trouble, read_back
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.placement import NodeFacts
from sandpool.node.kubelet.plan import Bind, Delete, Plan, PodView, Publish, Reclaim, Start, Stop, plan_pod
from sandpool.node.kubelet.pods import NODE_PODS, Json, NodePod
from sandpool.node.kubelet.status import accepted, running
from sandpool.node.pods.life import RestartContainer
from support.simulated.kubelet_node import a_pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UID = Uid("u1")
PACE = Pace()
NODE = NodeFacts("local", {"zone": "a"})
HOST = "127.0.0.1"


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def pod(*, status: Json | None = None, metadata: Json | None = None, node: str = "local", **spec: Any) -> NodePod:
    body = a_pod(**spec)
    body["metadata"] |= {"uid": UID, "namespace": "default", **(metadata or {})}
    body["spec"] |= {"nodeName": node} if node else {}
    body["status"] = {"phase": "Pending"} if status is None else status
    return convert(NODE_PODS, body)


def seen(*states: State, restarts: int = 0, **fields: Any) -> PodStatus:
    containers = tuple(ContainerStatus("main", state, restarts=restarts) for state in states)
    return PodStatus(UID, Key("default", "p"), "10.200.0.1", containers=containers, **fields)


def leaving(grace: int | None, after: float = 10) -> Json:
    return {
        "deletionTimestamp": at(after).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **({} if grace is None else {"deletionGracePeriodSeconds": grace}),
    }


def known(one: PodStatus, **more: Any) -> NodePod:
    """A pod whose status says already what the backend says."""
    return pod(status=running(pod(**more), one, HOST, PACE, NOW), **more)


READY = seen(Started(at(-5), ready=True))
UNREADY = seen(Started(at(-5)))
REMAINS = seen(Exit(0, NOW), reclaimed=True)
ACCEPTED = pod(status=accepted(pod(), HOST, None, NOW))


def plan(one: NodePod | None, at_: datetime = NOW, **view: Any) -> Plan:
    return plan_pod(PodView(one, host=HOST, node=NODE, **view), PACE, at_)


def words(found: Plan) -> list[str]:
    return [type(step).__name__ for step in found.steps]


TABLE: dict[str, tuple[Plan, list[str]]] = {
    "no pod": (plan(None), []),
    "no pod, but something runs": (plan(None, strays=(READY,)), ["Stop"]),
    "no node yet": (plan(pod(node="")), ["Bind"]),
    "placed, not seen yet": (plan(pod(node=""), binding=True), []),
    "without a node, leaving": (plan(pod(node="", metadata=leaving(None))), []),
    "new": (plan(pod()), ["Start"]),
    "new, with an earlier one of its name": (plan(pod(), strays=(READY,)), ["Stop", "Start"]),
    "new, runs at once": (plan(pod(), seen=READY), ["Publish"]),
    "new, on its way": (plan(pod(), seen=seen(Waiting())), []),
    "new, over": (plan(pod(restartPolicy="Never"), seen=seen(Exit(0, NOW))), ["Publish"]),
    "accepted, then forgotten": (plan(ACCEPTED), ["Start"]),
    "starting": (
        plan(ACCEPTED, seen=PodStatus(UID, Key("default", "p"), containers=(ContainerStatus("main", Waiting()),))),
        [],
    ),
    "became ready": (plan(ACCEPTED, seen=READY), ["Publish"]),
    "ready, and its status says so": (plan(known(READY), seen=READY), []),
    "ready, and the backend forgot it": (plan(known(READY)), ["Start"]),
    "lost its readiness": (plan(known(READY), seen=UNREADY), ["Publish"]),
    "ended, runs again at once": (plan(known(READY), seen=seen(Exit(1, NOW))), ["RestartContainer", "Publish"]),
    "ended again, waits": (plan(known(READY), seen=seen(Exit(1, NOW), restarts=1)), ["Publish"]),
    "ended again, waited": (
        plan(known(READY), seen=seen(Exit(1, at(-11)), restarts=1)),
        ["RestartContainer", "Publish"],
    ),
    "ended for good": (plan(known(READY, restartPolicy="Never"), seen=seen(Exit(1, NOW))), ["Publish"]),
    "ended well": (plan(known(READY, restartPolicy="OnFailure"), seen=seen(Exit(0, NOW))), ["Publish"]),
    "finished": (plan(pod(status={"phase": "Succeeded"}), seen=seen(Exit(0, NOW))), ["Reclaim"]),
    "finished, only its logs are left": (plan(pod(status={"phase": "Failed"}), seen=REMAINS), []),
    "finished, by what an earlier process saw": (plan(pod(status={"phase": "Failed"})), ["Reclaim"]),
    "finished, whatever runs": (plan(pod(status={"phase": "Failed"}), seen=READY), ["Reclaim"]),
    "finished, whatever is waited for": (plan(pod(status={"phase": "Failed"}), seen=seen(Waiting())), ["Reclaim"]),
    "finished, evicted": (plan(pod(status={"phase": "Failed"}), evicted="too large"), []),
    "finished, with an earlier one of its name": (
        plan(pod(status={"phase": "Failed"}), strays=(READY,)),
        ["Stop", "Reclaim"],
    ),
    "leaving, only its logs are left": (
        plan(pod(status={"phase": "Failed"}, metadata=leaving(30)), seen=REMAINS),
        ["Stop"],
    ),
    "leaving": (plan(known(READY, metadata=leaving(30)), seen=READY), ["Stop"]),
    "leaving while it starts": (plan(pod(metadata=leaving(30)), seen=seen(Waiting())), ["Stop"]),
    "leaving, nothing runs": (plan(known(READY, metadata=leaving(30))), ["Delete"]),
    "leaving, never started": (plan(pod(metadata=leaving(30))), ["Delete"]),
    "leaving, finished": (plan(pod(status={"phase": "Failed"}, metadata=leaving(30))), ["Delete"]),
    "held by a finalizer": (plan(known(READY, metadata=leaving(0))), ["Publish"]),
    "held, and it said so": (plan(pod(status={"phase": "Failed"}, metadata=leaving(0))), []),
}


@pytest.mark.parametrize("case", TABLE)
def test_steps(case: str) -> None:
    found, wanted = TABLE[case]
    assert words(found) == wanted


def test_the_grace_is_what_is_left_of_it() -> None:
    assert plan(known(READY, metadata=leaving(30, 12)), seen=READY).steps == (Stop(UID, 12.0),)
    assert plan(known(READY, metadata=leaving(30, -3)), seen=READY).steps == (Stop(UID, 0.0),)


def test_a_difference_that_nobody_waits_for_waits_for_company() -> None:
    first = plan(ACCEPTED, seen=UNREADY)
    assert (first.steps, first.again_at, first.holds) == ((), at(1), True)
    later = plan(ACCEPTED, at(0.5), seen=UNREADY, held_since=NOW)
    assert (later.steps, later.again_at, later.holds) == ((), at(1), True)
    due = plan(ACCEPTED, at(1), seen=UNREADY, held_since=NOW)
    assert (words(due), due.again_at, due.holds) == (["Publish"], None, False)


def test_a_new_pod_that_takes_long_says_that_it_is_being_started() -> None:
    start = plan(pod())
    assert (start.again_at, start.holds) == (at(0.5), True)
    for one in (seen(Waiting()), UNREADY):
        waits = plan(pod(), at(0.2), seen=one, held_since=NOW)
        assert (waits.steps, waits.again_at, waits.holds) == ((), at(0.5), True)
        told = plan(pod(), at(0.5), seen=one, held_since=NOW)
        assert (words(told), told.again_at, told.holds) == (["Publish"], None, False)


def test_a_restart_is_looked_for_when_it_is_due() -> None:
    found = plan(known(READY), seen=seen(Exit(1, at(-4)), restarts=2))
    assert found.again_at == at(16)


@pytest.mark.parametrize(
    ("restarts", "ran", "delay"),
    [(0, 1, 0), (1, 1, 10), (2, 1, 20), (5, 1, 160), (6, 1, 300), (99, 1, 300), (5, 601, 0)],
)
def test_delays_double_and_are_forgiven(restarts: int, ran: float, delay: float) -> None:
    found = plan(known(READY), seen=seen(Exit(1, NOW, at(-ran)), restarts=restarts))
    if delay == 0:
        assert RestartContainer(UID, "main") in found.steps
    else:
        assert found.again_at == at(delay)


def test_trouble_is_told_and_the_start_is_tried_again_when_due() -> None:
    trouble = Trouble("ErrImagePull", "no such image", at(5))
    waits = plan(ACCEPTED, trouble=trouble)
    assert (words(waits), waits.again_at) == (["Publish"], at(5))
    (said,) = waits.steps
    assert isinstance(said, Publish)
    state = said.fields["containerStatuses"][0]["state"]
    assert state == {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    told = pod(status=accepted(pod(), HOST, trouble, NOW))
    assert words(plan(told, trouble=trouble)) == []
    assert words(plan(told, at(5), trouble=trouble)) == ["Start"]


def test_a_pod_that_ran_and_cannot_be_started_again_is_not_pending_again() -> None:
    found = plan(known(READY), trouble=Trouble("Broken", "no", at(5)))
    (said,) = found.steps
    assert isinstance(said, Publish)
    assert "phase" not in said.fields
    ready = next(c for c in said.fields["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "False"


def test_a_forgotten_pod_starts_as_it_was() -> None:
    (start,) = plan(known(READY)).steps
    assert isinstance(start, Start)
    assert start.workload.was == READY


@pytest.mark.parametrize(
    ("spec", "node", "reason"),
    [
        ({"nodeSelector": {"zone": "a"}}, NODE, ""),
        ({"nodeSelector": {"zone": "b"}}, NODE, "Unschedulable"),
        ({"schedulingGates": [{"name": "wait"}]}, NODE, "SchedulingGated"),
        ({}, NodeFacts("local", {}, closed=True), "Unschedulable"),
    ],
)
def test_where_a_pod_may_run(spec: Json, node: NodeFacts, reason: str) -> None:
    found = plan_pod(PodView(pod(node="", **spec), node=node), PACE, NOW)
    (step,) = found.steps
    if not reason:
        assert step == Bind()
        return
    assert isinstance(step, Publish)
    assert [(c["type"], c["status"], c["reason"]) for c in step.fields["conditions"]] == [
        ("PodScheduled", "False", reason)
    ]


def test_no_node_no_place() -> None:
    assert plan_pod(PodView(pod(node="")), PACE, NOW).steps == ()


def test_a_delete_is_only_the_last_step() -> None:
    assert Delete() not in plan(known(READY, metadata=leaving(30)), seen=READY).steps


def test_what_is_read_back_is_what_was_written() -> None:
    ended = Exit(2, at(-7), at(-9), signal=9, reason="OOMKilled", message="too much")
    for one in (
        READY,
        UNREADY,
        seen(ended),
        PodStatus(
            UID, Key("default", "p"), "10.200.0.9", (), (ContainerStatus("main", Started(at(-3)), "x://1", 4, ended),)
        ),
    ):
        assert read_back(known(one, restartPolicy="Never")) == one


def with_sidecar(policy: str, main: State, first: State | None = None, side: State | None = None) -> NodePod:
    """As an earlier sandpool left it: a container, an init container and a sidecar, each in that state."""
    init = [{"name": "first", "image": "host"}, {"name": "side", "image": "host", "restartPolicy": "Always"}]
    states = {"first": first or Exit(0, at(-9)), "side": side or Started(at(-8), ready=True)}
    was = PodStatus(
        UID,
        Key("default", "p"),
        "10.200.0.1",
        tuple(ContainerStatus(name, state) for name, state in states.items()),
        (ContainerStatus("main", main),),
    )
    return known(was, initContainers=init, restartPolicy=policy)


@pytest.mark.parametrize(
    ("policy", "main", "step", "phase"),
    [
        ("OnFailure", Exit(0, at(-5)), "Publish", "Succeeded"),
        ("Never", Exit(0, at(-5)), "Publish", "Succeeded"),
        ("Never", Exit(3, at(-5)), "Publish", "Failed"),
        ("OnFailure", Exit(3, at(-5)), "Start", ""),
        ("OnFailure", Started(at(-5)), "Start", ""),
        ("Always", Exit(0, at(-5)), "Start", ""),
        ("Never", Started(at(-5)), "Publish", "Failed"),
    ],
)
def test_after_a_restart_a_pod_is_over_if_only_sidecars_ran(policy: str, main: State, step: str, phase: str) -> None:
    left = with_sidecar(policy, main)
    assert left.phase == "Running"
    found = plan(left, revives=False)
    assert words(found) == [step]
    if isinstance(found.steps[0], Publish):
        assert found.steps[0].fields["phase"] == phase
        if isinstance(main, Exit):
            side = found.steps[0].fields["initContainerStatuses"][1]["state"]["terminated"]
            assert side["reason"] == "SandpoolRestarted"
            over = msgspec.structs.replace(left, status={**left.status, **found.steps[0].fields})
            (reclaim,) = plan(over, revives=False).steps
            assert isinstance(reclaim, Reclaim)
            assert reclaim.workload.was is not None
            assert [type(one.state) for one in reclaim.workload.was.init] == [Exit, Exit]


def test_after_a_restart_one_that_was_initialized_once_more_goes_on_with_it() -> None:
    left = with_sidecar("OnFailure", Exit(0, at(-5)), first=Waiting("PodInitializing"), side=Waiting("PodInitializing"))
    assert words(plan(left, revives=False)) == ["Start"]


def test_of_a_pod_that_is_over_nothing_counts_as_running() -> None:
    """Somebody else said that it is over: nobody waits for what an earlier sandpool took with it."""
    (reclaim,) = plan(pod(status={**known(READY).status, "phase": "Failed"})).steps
    assert isinstance(reclaim, Reclaim)
    assert reclaim.workload.was is not None
    assert [type(one.state) for one in reclaim.workload.was.containers] == [Exit]
