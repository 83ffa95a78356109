"""What is worth an Event: how a pod was and how it is, in; news, out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandpool.loop.events import Kind
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import ContainerStatus, Exit, PodStatus, Started, State, Waiting
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pod_events import (
    PodEvent,
    PodEventNote,
    container_events,
    failure_event,
    probe_events,
    status_events,
)
from sandpool.node.kubelet.probe_runner import ProbeOutcome
from sandpool.node.kubelet.probe_state import Result, Which
from unit.node.kubelet.test_plan import pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAGE = Path(__file__).parents[4] / "docs/reference/pods.md"


def seen(state: State, restarts: int = 0) -> PodStatus:
    return PodStatus(Uid("u1"), Key("default", "p"), containers=(ContainerStatus("main", state, restarts=restarts),))


PULLS = Waiting("ContainerCreating", 'Pulling image "host"')
TABLE: dict[str, tuple[PodStatus | None, PodStatus | None, list[tuple[str, bool]]]] = {
    "nothing": (None, None, []),
    "being made": (None, seen(Waiting()), []),
    "pulling": (seen(Waiting()), seen(PULLS), [("Pulling", False)]),
    "pulling more of it": (seen(PULLS), seen(Waiting("ContainerCreating", 'Pulling image "host": 50 %')), []),
    "pulled and started": (
        seen(PULLS),
        seen(Started(NOW)),
        [("Pulled", False), ("Created", True), ("Started", True)],
    ),
    "not pulled": (seen(PULLS), seen(Waiting("ErrImagePull", "no such image")), [("Failed", False)]),
    "waits for the image": (
        seen(Waiting("ErrImagePull", "x")),
        seen(Waiting("ImagePullBackOff")),
        [("BackOff", False)],
    ),
    "started": (seen(Waiting()), seen(Started(NOW)), [("Created", True), ("Started", True)]),
    "ready": (seen(Started(NOW)), seen(Started(NOW, ready=True)), []),
    "cannot be made": (seen(Waiting()), seen(Waiting("CreateContainerError", "no")), [("Failed", False)]),
    "still cannot": (seen(Waiting("CreateContainerError", "no")), seen(Waiting("CreateContainerError", "no")), []),
    "ended well": (seen(Started(NOW)), seen(Exit(0, NOW)), []),
    "ended badly": (seen(Started(NOW)), seen(Exit(1, NOW)), []),
    "ended badly again": (seen(Started(NOW), 1), seen(Exit(1, NOW), 1), [("BackOff", False)]),
    "out of memory": (seen(Started(NOW)), seen(Exit(137, NOW, reason="OOMKilled")), [("OOMKilled", False)]),
    "could not be executed": (
        seen(Waiting()),
        seen(Exit(128, NOW, reason="StartError", message="x")),
        [("Failed", False)],
    ),
    "gone": (seen(Exit(0, NOW)), None, []),
}


@pytest.mark.parametrize("case", TABLE)
def test_container_events(case: str) -> None:
    before, after, wanted = TABLE[case]
    found = container_events(pod(), before, after, Pace())
    assert [(str(one.reason), one.routine) for one in found] == wanted


def test_an_end_that_leads_to_no_restart_is_no_back_off() -> None:
    one = pod(restartPolicy="Never")
    assert container_events(one, seen(Started(NOW), 1), seen(Exit(1, NOW), 1), Pace()) == []


def test_a_pod_that_was_over_before_a_restart_is_no_news() -> None:
    killed = seen(Exit(137, NOW, reason="OOMKilled"))
    assert container_events(pod(status={"phase": "Failed"}), None, killed, Pace()) == []


def test_a_long_good_run_is_forgiven() -> None:
    end = Exit(1, NOW, NOW - timedelta(hours=1))
    assert container_events(pod(), seen(Started(NOW), 9), seen(end, 9), Pace()) == []


@pytest.mark.parametrize(
    ("which", "result", "fatal", "wanted"),
    [
        (Which.READINESS, Result.FAILURE, False, [("Unhealthy", "Readiness probe failed: no")]),
        (Which.LIVENESS, Result.UNKNOWN, False, [("Unhealthy", "Liveness probe errored: no")]),
        (
            Which.LIVENESS,
            Result.FAILURE,
            True,
            [
                ("Unhealthy", "Liveness probe failed: no"),
                ("Killing", "Container main failed liveness probe, will be restarted"),
            ],
        ),
        (
            Which.POST_START,
            Result.FAILURE,
            True,
            [
                ("FailedPostStartHook", "PostStartHook failed: no"),
                ("Killing", "Container main failed PostStartHook, will be restarted"),
            ],
        ),
    ],
)
def test_probe_events(which: Which, result: Result, fatal: bool, wanted: list[tuple[str, str]]) -> None:
    found = probe_events("main", which, ProbeOutcome(result, "no"), fatal)
    assert [(str(one.reason), one.message) for one in found] == wanted


def test_failure_events() -> None:
    assert failure_event("FailedMount", "volume x") == PodEventNote(Kind.WARNING, PodEvent.FAILED_MOUNT, "volume x")
    assert failure_event("Odd", "why") == PodEventNote(Kind.WARNING, PodEvent.FAILED, "Error: Odd: why")


def test_a_status_that_says_nothing_new_is_no_news() -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "wait"}
    assert status_events(pod(), {"phase": "Running", "conditions": [gated]}) == []


def test_the_page_explains_every_event() -> None:
    text = PAGE.read_text()
    assert [one for one in PodEvent if f"| `{one}` |" not in text] == []
