"""Which lane each write of the controllers takes, and what is shown of the lanes.

The priority of a reconcile says whether somebody waits for it (a claim) or only a pool does. The write itself says the rest: a delete
cleans up, and of what only a pool waits for just the writes that bring a member closer to Ready are refill.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sandpool.kube.lanes import Lane, LaneGate
from sandpool.kube.pacing import Pacer
from sandpool.model.kinds import POOLS, SANDBOXES
from sandpool.model.resource import Resource
from sandpool.telemetry import families
from sandpool.telemetry.families import Family, Values

_NAMES: Final = {lane: lane.name.lower() for lane in Lane}


def lane_of_write(lane: Lane, verb: str, resource: Resource[Any]) -> Lane:
    """From the lane of the reconcile: of refill only what makes members, not the marks and annotations that follow. What a pool says of itself is
    part of it: there is at most one such write a second, and until it is done the pool makes no more members."""
    if verb == "delete":
        return Lane.CLEANUP
    if lane is Lane.REFILL and verb != "create" and resource not in (SANDBOXES, POOLS):
        return Lane.STATUS
    return lane


def shown(gate: LaneGate, pacer: Pacer) -> Iterable[tuple[Family, Values]]:
    """For `Metrics.show`."""
    lanes = {(_NAMES[lane],): gate.in_lane(lane) for lane in Lane}
    yield families.WRITE_LIMIT, {(): gate.allowed}
    yield families.WRITES_IN_FLIGHT, {name: flying for name, (flying, _) in lanes.items()}
    yield families.WRITES_WAITING, {name: waiting for name, (_, waiting) in lanes.items()}
    yield families.WRITES_THROTTLED, {(): pacer.throttled}
    yield families.WRITE_LIMIT_LOWERED, {(cause,): times for cause, times in pacer.lowered.items()}
