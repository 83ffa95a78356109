"""Statuses, whole: what `kubectl get pod -o yaml` shows of each state."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sandpool.model.codec import convert
from sandpool.model.metadata import Key, Uid
from sandpool.model.pod import Phase
from sandpool.node.backend import ContainerStatus, Exit, PodStatus, Started, State, Waiting
from sandpool.node.kubelet import status
from sandpool.node.kubelet.apply import status_patch
from sandpool.node.kubelet.containers import Trouble
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pods import NODE_PODS, Json, NodePod
from sandpool.node.pods.life import phase_of
from support.simulated.kubelet_node import a_pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = "2026-01-01T12:00:00Z"
EARLIER = NOW - timedelta(seconds=60)


def pod(present: Json | None = None, **spec: Any) -> NodePod:
    body = a_pod(nodeName="local", **spec)
    body["metadata"] |= {"uid": "u1", "namespace": "default"}
    body["status"] = {"phase": "Pending", "qosClass": "BestEffort"} if present is None else present
    return convert(NODE_PODS, body)


def seen(*states: State, init: tuple[State, ...] = (), address: str = "10.200.0.1") -> PodStatus:
    names = ("main", "second")
    return PodStatus(
        Uid("u1"),
        Key("default", "p"),
        address,
        tuple(ContainerStatus(f"init{i}", state) for i, state in enumerate(init)),
        tuple(ContainerStatus(name, state) for name, state in zip(names, states, strict=False)),
    )


def conditions(found: Json) -> dict[str, str]:
    return {c["type"]: c["status"] + (f" {c['reason']}" if "reason" in c else "") for c in found["conditions"]}


def test_accepted() -> None:
    assert status.accepted(pod(), "127.0.0.1", None, NOW) == {
        "phase": "Pending",
        "qosClass": "BestEffort",
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "startTime": AT,
        "conditions": [
            {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": AT},
            {"type": "Initialized", "status": "True", "lastTransitionTime": AT},
            {
                "type": "Ready",
                "status": "False",
                "lastTransitionTime": AT,
                "reason": "ContainersNotReady",
                "message": "containers with unready status: [main]",
            },
            {
                "type": "ContainersReady",
                "status": "False",
                "lastTransitionTime": AT,
                "reason": "ContainersNotReady",
                "message": "containers with unready status: [main]",
            },
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": AT},
        ],
        "containerStatuses": [
            {
                "name": "main",
                "state": {"waiting": {"reason": "ContainerCreating"}},
                "lastState": {},
                "ready": False,
                "started": False,
                "restartCount": 0,
                "image": "host",
                "imageID": "",
            }
        ],
    }


def test_ready() -> None:
    first = status.accepted(pod(), "127.0.0.1", None, EARLIER)
    found = status.running(pod(first), seen(Started(NOW, ready=True)), "127.0.0.1", Pace(), NOW)
    assert status.difference(pod(first), found).keys() == {
        "phase",
        "podIP",
        "podIPs",
        "conditions",
        "containerStatuses",
    }
    assert found["phase"] == "Running"
    assert found["startTime"] == "2026-01-01T11:59:00Z"
    assert conditions(found) == dict.fromkeys(status.OURS, "True")
    moved = {c["type"] for c in found["conditions"] if c["lastTransitionTime"] == AT}
    assert moved == {"PodReadyToStartContainers", "Ready", "ContainersReady"}
    assert found["containerStatuses"][0]["state"] == {"running": {"startedAt": AT}}
    assert found["containerStatuses"][0]["ready"] is True


W, S, R = Waiting(), Started(EARLIER), Started(EARLIER, ready=True)
OK, BAD = Exit(0, NOW), Exit(1, NOW)


@pytest.mark.parametrize(
    ("states", "policy", "phase"),
    [
        ((W,), "Always", Phase.PENDING),
        ((S, W), "Always", Phase.PENDING),
        ((S,), "Always", Phase.RUNNING),
        ((R, S), "Always", Phase.RUNNING),
        ((OK,), "Always", Phase.RUNNING),
        ((BAD,), "Always", Phase.RUNNING),
        ((OK,), "OnFailure", Phase.SUCCEEDED),
        ((BAD,), "OnFailure", Phase.RUNNING),
        ((OK, R), "OnFailure", Phase.RUNNING),
        ((OK,), "Never", Phase.SUCCEEDED),
        ((OK, BAD), "Never", Phase.FAILED),
        ((R, BAD), "Never", Phase.RUNNING),
    ],
)
def test_phases(states: tuple[State, ...], policy: str, phase: Phase) -> None:
    assert phase_of(seen(*states), pod(restartPolicy=policy).spec) is phase


@pytest.mark.parametrize(
    ("init", "policy", "phase"),
    [((W,), "Always", Phase.PENDING), ((OK,), "Always", Phase.RUNNING), ((BAD,), "Never", Phase.FAILED)],
)
def test_phases_with_init_containers(init: tuple[State, ...], policy: str, phase: Phase) -> None:
    specs = [{"name": f"init{i}", "image": "host"} for i in range(len(init))]
    assert phase_of(seen(R, init=init), pod(restartPolicy=policy, initContainers=specs).spec) is phase


def test_one_of_two_is_not_ready() -> None:
    two = [{"name": "main", "image": "host"}, {"name": "second", "image": "host"}]
    found = status.running(pod(containers=two), seen(R, S), "127.0.0.1", Pace(), NOW)
    ready = next(c for c in found["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["message"]) == ("False", "containers with unready status: [second]")


def test_succeeded() -> None:
    found = status.running(pod(restartPolicy="Never"), seen(OK), "127.0.0.1", Pace(), NOW)
    assert found["phase"] == "Succeeded"
    assert conditions(found)["Ready"] == "False PodCompleted"
    assert found["containerStatuses"][0]["state"] == {
        "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": AT, "finishedAt": AT}
    }


def test_an_oom_kill_says_so() -> None:
    killed = Exit(137, NOW, EARLIER, signal=9, reason="OOMKilled")
    found = status.running(pod(restartPolicy="Never"), seen(killed), "127.0.0.1", Pace(), NOW)
    ended = found["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["signal"], ended["reason"]) == (137, 9, "OOMKilled")


def test_a_pod_without_an_address_has_no_field_for_it() -> None:
    found = status.running(pod(), seen(W, address=""), "127.0.0.1", Pace(), NOW)
    assert "podIP" not in found


def test_the_same_again_is_no_difference() -> None:
    first = status.running(pod(), seen(R), "127.0.0.1", Pace(), EARLIER)
    again = status.running(pod(first), seen(R), "127.0.0.1", Pace(), NOW)
    assert status.difference(pod(first), again) == {}


def test_conditions_of_others_are_replaced_only_as_read() -> None:
    theirs = {"type": "example.com/x", "status": "True", "lastProbeTime": None}
    first = status.running(pod(), seen(S), "127.0.0.1", Pace(), EARLIER)
    first = {**first, "conditions": [*first["conditions"], theirs]}
    one = pod(first)
    wanted = status.running(one, seen(R), "127.0.0.1", Pace(), NOW)
    assert wanted["conditions"][-1] == theirs
    operations: Any = status_patch(one, status.difference(one, wanted)).body
    assert operations[:2] == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/status/conditions", "value": first["conditions"]},
    ]


def test_a_condition_keeps_its_time_while_only_its_words_change() -> None:
    two = [{"name": "main", "image": "host"}, {"name": "second", "image": "host"}]
    first = status.running(pod(containers=two), seen(S, S), "127.0.0.1", Pace(), EARLIER)
    then = status.running(pod(first, containers=two), seen(R, S), "127.0.0.1", Pace(), NOW)
    before, after = (next(c for c in one["conditions"] if c["type"] == "Ready") for one in (first, then))
    assert before["message"] != after["message"]
    assert before["lastTransitionTime"] == after["lastTransitionTime"]


def test_what_a_container_says_last_cannot_break_its_status() -> None:
    end = Exit(1, NOW, message="\ud800" + "x" * 10_000)
    found = status.running(pod(restartPolicy="Never"), seen(end), "127.0.0.1", Pace(), NOW)
    message = found["containerStatuses"][0]["state"]["terminated"]["message"]
    assert (message[:2], len(message)) == ("?x", 4096)


def test_counts_survive_trouble() -> None:
    before = status.running(pod(), seen(R), "127.0.0.1", Pace(), EARLIER)
    before["containerStatuses"][0] |= {"restartCount": 4, "lastState": {"terminated": {"exitCode": 1}}}
    trouble = Trouble("FailedMount", "no", NOW)
    (shown,) = status.accepted(pod(before), "127.0.0.1", trouble, NOW)["containerStatuses"]
    assert (shown["restartCount"], shown["lastState"]) == (4, {"terminated": {"exitCode": 1}})
    assert shown["state"] == {"waiting": {"reason": "FailedMount", "message": "no"}}


def test_notes_are_a_condition() -> None:
    noted = replace(seen(R), notes=("port 80 is served as 8080", "the size of x is not enforced"))
    found = status.running(pod(), noted, "127.0.0.1", Pace(), NOW)
    (condition,) = [c for c in found["conditions"] if c["type"] == status.NOTED]
    assert (condition["status"], condition["message"]) == (
        "True",
        "port 80 is served as 8080; the size of x is not enforced",
    )
    assert status.difference(pod(found), status.running(pod(found), noted, "127.0.0.1", Pace(), NOW)) == {}
