"""How long a container that has ended waits before it runs again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sandpool.base.errors import NodeError
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import SANDBOX_LOST, ContainerStatus, Exit, PodStatus, Started, Waiting
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pods import NodePodSpec
from sandpool.node.pods.restarts import after_restart, delay

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PACE = Pace()
CRASH = Exit(1, NOW, NOW - timedelta(seconds=1))
LOST = Exit(137, NOW, NOW - timedelta(seconds=1), 9, SANDBOX_LOST)


@pytest.mark.parametrize(
    ("restarts", "uncounted", "end", "seconds"),
    [
        (0, 0, CRASH, 0.0),
        (1, 0, CRASH, PACE.first_restart),
        (3, 0, CRASH, PACE.first_restart * 4),
        (3, 3, CRASH, 0.0),
        (4, 3, CRASH, PACE.first_restart),
        (9, 0, LOST, 0.0),
        (9, 9, LOST, 0.0),
    ],
)
def test_only_its_own_ends_are_held_against_a_container(
    restarts: int, uncounted: int, end: Exit, seconds: float
) -> None:
    container = ContainerStatus("main", end, restarts=restarts, uncounted=uncounted)
    assert delay(container, end, PACE) == seconds


def test_a_restart_of_sandpool_is_not_held_against_a_container_that_ran() -> None:
    def again(container: ContainerStatus) -> ContainerStatus:
        was = PodStatus(Uid("u"), Key("default", "p"), containers=(container,))
        return after_restart(was, NodePodSpec(), NOW).containers[0]

    ran = again(ContainerStatus("main", Started(NOW), restarts=7))
    assert (ran.restarts, ran.uncounted, ran.state) == (8, 8, Waiting())
    assert delay(ran, CRASH, PACE) == 0.0
    crashing = again(ContainerStatus("main", CRASH, restarts=7))
    assert (crashing.restarts, crashing.uncounted) == (8, 0)


def test_a_reason_is_not_repeated_in_its_own_message() -> None:
    inner = NodeError("ForkServer", "it does not answer")
    outer = NodeError("ForkServer", str(inner))
    assert (outer.message, str(outer)) == ("it does not answer", "ForkServer: it does not answer")
