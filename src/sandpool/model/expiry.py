"""Computes when sandboxes and claims expire. Something is expired when now >= its end."""

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
    """The earlier of the shutdown time and the end of the time to live after the work finished; None if neither is set."""
    lifecycle = claim.spec.lifecycle
    if lifecycle is None:
        return None
    ends = [lifecycle.shutdown_time] if lifecycle.shutdown_time else []
    finished = finished_at(claim.status.conditions)
    if lifecycle.ttl_seconds_after_finished is not None and finished is not None:
        ends.append(finished + timedelta(seconds=lifecycle.ttl_seconds_after_finished))
    return min(ends, default=None)


def finished_at(conditions: Iterable[Condition]) -> datetime | None:
    """When the work finished. None if it has not, or if its condition has no time."""
    condition = find(conditions, Type.FINISHED)
    return condition.last_transition_time if condition is not None and condition.true else None


def expired(end: datetime | None, now: datetime) -> bool:
    return end is not None and now >= end
