"""When sandboxes and claims end. Expired means that the moment has come: now >= it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import Condition, find
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox


def sandbox_end(sandbox: Sandbox) -> datetime | None:
    return sandbox.spec.shutdown_time


def claim_end(claim: SandboxClaim) -> datetime | None:
    """The earlier of the shutdown time and the time to live after the work finished, of those that are set."""
    lifecycle = claim.spec.lifecycle
    if lifecycle is None:
        return None
    ends = [lifecycle.shutdown_time] if lifecycle.shutdown_time else []
    finished = finished_at(claim.status.conditions)
    if lifecycle.ttl_seconds_after_finished is not None and finished is not None:
        ends.append(finished + timedelta(seconds=lifecycle.ttl_seconds_after_finished))
    return min(ends, default=None)


def finished_at(conditions: Iterable[Condition]) -> datetime | None:
    """When the work ended. A condition without a time cannot start a clock."""
    condition = find(conditions, Type.FINISHED)
    return condition.last_transition_time if condition is not None and condition.true else None


def remaining(end: datetime | None, now: datetime) -> timedelta | None:
    """How long until the end; zero when it has come, None when there is none."""
    if end is None:
        return None
    return max(end - now, timedelta(0))


def expired(end: datetime | None, now: datetime) -> bool:
    return end is not None and now >= end
