from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.lanes import Lane, LaneGate
from sandpool.kube.pacing import Bounds, Outcome, Pacer
from sandpool.kube.write_lanes import lane_of_write, shown
from sandpool.model.kinds import CLAIMS, EVENTS, PODS, POOLS, SANDBOXES, SERVICES
from sandpool.model.resource import Resource
from sandpool.telemetry import families


@pytest.mark.parametrize(
    ("waits", "verb", "resource", "lane"),
    [
        (Lane.CLAIMS, "patch", SANDBOXES, Lane.CLAIMS),  # the transfer
        (Lane.CLAIMS, "patch_status", CLAIMS, Lane.CLAIMS),  # the binding
        (Lane.CLAIMS, "patch", CLAIMS, Lane.CLAIMS),  # annotations that the binding waits for
        (Lane.CLAIMS, "create", PODS, Lane.CLAIMS),  # a cold start
        (Lane.REFILL, "create", SANDBOXES, Lane.REFILL),
        (Lane.REFILL, "create", PODS, Lane.REFILL),
        (Lane.REFILL, "create", SERVICES, Lane.REFILL),
        (Lane.REFILL, "patch_status", SANDBOXES, Lane.REFILL),  # a member is Ready
        (Lane.REFILL, "patch_status", POOLS, Lane.REFILL),  # the pool makes nothing before it is done
        (Lane.REFILL, "patch", CLAIMS, Lane.STATUS),
        (Lane.REFILL, "patch", PODS, Lane.STATUS),  # the marks of a claimed pod
        (Lane.STATUS, "create", EVENTS, Lane.STATUS),
        (Lane.CLAIMS, "delete", SANDBOXES, Lane.CLEANUP),
        (Lane.REFILL, "delete", SANDBOXES, Lane.CLEANUP),
    ],
)
def test_each_write_takes_the_lane_of_its_purpose(waits: Lane, verb: str, resource: Resource[Any], lane: Lane) -> None:
    assert lane_of_write(waits, verb, resource) is lane


@pytest.mark.looptime
async def test_what_is_shown_of_the_lanes() -> None:
    pacer = Pacer(Bounds(most=50, start=20))
    gate = LaneGate(LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), pacer=pacer)
    assert gate.enter_now(Lane.REFILL)
    gate.learn("create pods", Outcome.THROTTLED, 0.0, 1.0)
    found = dict(shown(gate, pacer))
    assert found[families.WRITE_LIMIT] == {(): 10}
    assert found[families.WRITES_IN_FLIGHT] == {("claims",): 0, ("refill",): 1, ("cleanup",): 0, ("status",): 0}
    assert set(found[families.WRITES_WAITING].values()) == {0}
    assert found[families.WRITES_THROTTLED] == {(): 1}
    assert found[families.WRITE_LIMIT_LOWERED] == {("throttled",): 1, ("failed",): 0, ("slow",): 0}
    gate.leave(Lane.REFILL)
