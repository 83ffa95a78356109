"""What a pool's status should say, how soon it is worth writing, the patch for it, and which changes are worth an Event. Pure.

An Event follows from the conditions before and after, so a restart emits nothing twice.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from sandpool.controllers.pool.roster import UNSCHEDULABLE, Rank, Roster
from sandpool.controllers.pool.view import PoolView
from sandpool.loop.events import Kind
from sandpool.model.conditions import Truth, find, is_true, put, without
from sandpool.model.event_reasons import EventReason
from sandpool.model.labels import pool_selector
from sandpool.model.patches import Patch, json_patch
from sandpool.model.pool import SandboxWarmPool, SandboxWarmPoolStatus, UpdateStrategyType
from sandpool.model.reasons import Reason, Type

TROUBLE = frozenset(
    {Reason.TEMPLATE_NOT_FOUND, Reason.NETWORK_POLICY_PENDING, Reason.CREATION_FAILED, Reason.NOT_PROGRESSING}
)


class Verdict(NamedTuple):
    """Status, reason and message of one condition."""

    status: Truth
    reason: Reason
    message: str


class Haste(Enum):
    """How soon a difference is published."""

    NOW = "now"  # a user changed the spec or the template and waits for the result, or waits for the pool to be full
    SOON = "soon"  # at once, unless the status was written a moment ago
    LATER = "later"  # it waits a moment for others to share its write


def status_of(view: PoolView, now: datetime) -> SandboxWarmPoolStatus:
    pool, roster = view.pool, view.roster
    known = view.template is not None  # otherwise it is unknown which members are up to date
    conditions = pool.status.conditions
    for type_, verdict in ((Type.READY, _ready(view)), (Type.PROGRESSING, _progressing(view, now))):
        conditions = put(conditions, type_, *verdict, generation=pool.metadata.generation, now=now)
    if (healthy := _healthy(view)) is not None:
        conditions = put(conditions, Type.HEALTHY, *healthy, generation=pool.metadata.generation, now=now)
    else:
        conditions = without(conditions, Type.HEALTHY)
    return SandboxWarmPoolStatus(
        replicas=roster.staying,
        ready_replicas=roster.ready,
        updated_replicas=roster.fresh if known else 0,
        updated_ready_replicas=roster.count((Rank.FRESH_READY,)) if known else 0,
        selector=pool_selector(pool.metadata.name),
        observed_generation=pool.metadata.generation,
        conditions=conditions,
    )


def status_patch(pool: SandboxWarmPool, new: SandboxWarmPoolStatus) -> Patch | None:
    """Replaces the whole status, which nobody else writes, if the uid matches; None if nothing differs. Counts of 0 are written, too."""
    if new == pool.status:
        return None
    value: dict[str, Any] = {
        "replicas": new.replicas,
        "readyReplicas": new.ready_replicas,
        "updatedReplicas": new.updated_replicas,
        "updatedReadyReplicas": new.updated_ready_replicas,
        "observedGeneration": new.observed_generation,
        "selector": new.selector,
        "conditions": msgspec.json.decode(msgspec.json.encode(new.conditions)),
    }
    test = {"op": "test", "path": "/metadata/uid", "value": str(pool.metadata.uid)}
    return json_patch([test, {"op": "add", "path": "/status", "value": value}])


def haste(old: SandboxWarmPoolStatus, new: SandboxWarmPoolStatus) -> Haste:
    if old.observed_generation != new.observed_generation or (_rolling(new) and not _rolling(old)):
        return Haste.NOW
    if not old.ready_replicas and new.ready_replicas and is_true(new.conditions, Type.READY):
        return Haste.NOW  # from empty to full; empty was published before, so this cannot become a stream of writes
    if bool(old.ready_replicas) != bool(new.ready_replicas) or _troubles(old) != _troubles(new):
        return Haste.SOON
    return Haste.LATER


def _rolling(status: SandboxWarmPoolStatus) -> bool:
    found = find(status.conditions, Type.PROGRESSING)
    return found is not None and found.reason == Reason.ROLLING_OUT


def trouble(status: SandboxWarmPoolStatus) -> str:
    """The reason why the pool does not progress; empty if it does."""
    found = find(status.conditions, Type.PROGRESSING)
    return found.reason if found is not None and found.reason in TROUBLE else ""


def _troubles(status: SandboxWarmPoolStatus) -> tuple[str, bool]:
    return trouble(status), find(status.conditions, Type.HEALTHY) is not None


def _healthy(view: PoolView) -> Verdict | None:
    """Present only while a member cannot start; published long before that member is replaced."""
    member = next(view.roster.failing(), None)
    if member is None:
        return None
    said = member.message if member.placed else f"{UNSCHEDULABLE}: {member.message}"
    return Verdict(Truth.FALSE, Reason.MEMBERS_NOT_STARTING, f"Sandbox {member.name}: {said}")


def _ready(view: PoolView) -> Verdict:
    ready, wanted = view.roster.ready, view.replicas
    if view.template is None and view.obstacle is not None:
        return Verdict(Truth.FALSE, Reason.TEMPLATE_NOT_FOUND, view.obstacle.message)
    message = f"{ready} of {wanted} members are ready"
    if ready >= wanted:
        return Verdict(Truth.TRUE, Reason.MEMBERS_READY, message)
    return Verdict(Truth.FALSE, Reason.MEMBERS_NOT_READY, message)


def _progressing(view: PoolView, now: datetime) -> Verdict:
    roster, wanted = view.roster, view.replicas
    if view.obstacle is not None:
        return Verdict(Truth.FALSE, *view.obstacle)
    if (still := _standstill(view, now)) is not None:
        return still
    template = view.pool.spec.sandbox_template_ref.name
    if roster.stale and view.strategy is not UpdateStrategyType.ON_REPLENISH:
        message = f"{roster.stale} of {roster.staying} members were made before SandboxTemplate {template} changed"
        return Verdict(Truth.TRUE, Reason.ROLLING_OUT, message)
    if roster.ready < wanted:
        message = f"{roster.staying} of {wanted} members exist, {roster.ready} are ready{_first_failure(roster)}"
        return Verdict(Truth.TRUE, Reason.REPLENISHING, message)
    if roster.stale:  # OnReplenish does not replace them, but they should not look up to date either
        message = f"{roster.stale} of {roster.staying} members were made before SandboxTemplate {template} changed, and stay until claimed"
        return Verdict(Truth.FALSE, Reason.UP_TO_DATE, message)
    return Verdict(Truth.FALSE, Reason.UP_TO_DATE, "Nothing is left to do")


def _first_failure(roster: Roster) -> str:
    """The first failing member's message. Members that are merely slow are not quoted."""
    member = next(roster.failing(), None)
    return "" if member is None else f"; Sandbox {member.name} says: {member.message}"


def _standstill(view: PoolView, now: datetime) -> Verdict | None:
    roster, template = view.roster, view.pool.spec.sandbox_template_ref.name
    if view.failed and roster.staying < view.replicas:
        return Verdict(Truth.FALSE, Reason.CREATION_FAILED, view.failed)
    if (member := roster.unplaced(now)) is not None:
        message = f"Sandbox {member.name} finds no node: {member.message}; add nodes, or ask for less in {template}"
        return Verdict(Truth.FALSE, Reason.NOT_PROGRESSING, message)
    if view.given_up:
        return Verdict(Truth.FALSE, Reason.NOT_PROGRESSING, f"{view.given_up}; look at SandboxTemplate {template}")
    return None


NOT_PROGRESSING = EventReason.WARM_POOL_NOT_PROGRESSING
PROGRESSING = EventReason.WARM_POOL_PROGRESSING
_STANDSTILL = frozenset({Reason.NOT_PROGRESSING, Reason.CREATION_FAILED})


class PoolEvent(NamedTuple):
    """One Event about a pool."""

    kind: Kind
    reason: str
    message: str
    action: str = "Reconciling"


def event_of(old: SandboxWarmPoolStatus, new: SandboxWarmPoolStatus) -> PoolEvent | None:
    before, after = trouble(old), trouble(new)
    condition = find(new.conditions, Type.PROGRESSING)
    if before == after or condition is None:
        return None
    if after in _STANDSTILL:
        return PoolEvent(Kind.WARNING, NOT_PROGRESSING, condition.message)
    if after == Reason.TEMPLATE_NOT_FOUND:
        return PoolEvent(Kind.WARNING, EventReason.TEMPLATE_NOT_FOUND, condition.message)
    if before in _STANDSTILL and not after:
        return PoolEvent(Kind.NORMAL, PROGRESSING, "Members are made and become ready again")
    return None
