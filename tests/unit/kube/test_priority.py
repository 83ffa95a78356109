from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.pacing import Bounds, Outcome, Pacer
from sandpool.kube.priority import Priority, priority_of_write
from sandpool.kube.priority_gate import PriorityGate, gate_metrics
from sandpool.model.kinds import CLAIMS, EVENTS, PODS, POOLS, SANDBOXES, SERVICES
from sandpool.model.resource import Resource
from sandpool.telemetry import families


@pytest.mark.parametrize(
    ("waits", "verb", "resource", "lane"),
    [
        (Priority.URGENT, "patch", SANDBOXES, Priority.URGENT),  # the transfer
        (Priority.URGENT, "patch_status", CLAIMS, Priority.URGENT),  # the binding
        (Priority.URGENT, "patch", CLAIMS, Priority.URGENT),  # annotations that the binding waits for
        (Priority.URGENT, "create", PODS, Priority.URGENT),  # a cold start
        (Priority.BACKGROUND, "create", SANDBOXES, Priority.BACKGROUND),
        (Priority.BACKGROUND, "create", PODS, Priority.BACKGROUND),
        (Priority.BACKGROUND, "create", SERVICES, Priority.BACKGROUND),
        (Priority.BACKGROUND, "patch_status", SANDBOXES, Priority.BACKGROUND),  # a member is Ready
        (Priority.BACKGROUND, "patch_status", POOLS, Priority.BACKGROUND),  # the pool makes nothing before it is done
        (Priority.BACKGROUND, "patch", CLAIMS, Priority.STATUS),
        (Priority.BACKGROUND, "patch", PODS, Priority.STATUS),  # the marks of a claimed pod
        (Priority.STATUS, "create", EVENTS, Priority.STATUS),
        (Priority.URGENT, "delete", SANDBOXES, Priority.CLEANUP),
        (Priority.BACKGROUND, "delete", SANDBOXES, Priority.CLEANUP),
    ],
)
def test_each_write_has_the_priority_of_its_purpose(
    waits: Priority, verb: str, resource: Resource[Any], lane: Priority
) -> None:
    assert priority_of_write(waits, verb, resource) is lane


@pytest.mark.looptime
async def test_the_metrics_of_the_gate() -> None:
    pacer = Pacer(Bounds(most=50, start=20))
    gate = PriorityGate(LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), pacer=pacer)
    assert gate.enter_now(Priority.BACKGROUND)
    gate.record("create pods", Outcome.THROTTLED, 0.0, 1.0)
    found = dict(gate_metrics(gate, pacer))
    assert found[families.WRITE_LIMIT] == {(): 10}
    assert found[families.WRITES_IN_FLIGHT] == {("claims",): 0, ("refill",): 1, ("cleanup",): 0, ("status",): 0}
    assert set(found[families.WRITES_WAITING].values()) == {0}
    assert found[families.WRITES_THROTTLED] == {(): 1}
    assert found[families.WRITE_LIMIT_LOWERED] == {("throttled",): 1, ("failed",): 0, ("slow",): 0}
    gate.leave(Priority.BACKGROUND)
