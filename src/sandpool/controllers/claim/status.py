"""What a claim's status should say, the patch for it, and what is worth an Event. Pure.

Ready follows the sandbox. A controller error never sets Ready to False on a claim that is served; it is reported in Healthy.
There is one Event when a claim gets its sandbox, one when it expires, and one for each new refusal.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec

from sandpool.controllers.claim.binding import as_json, bound_as_seen, bound_conditions, bound_sandbox
from sandpool.controllers.claim.steps import Refuse
from sandpool.controllers.claim.view import warm
from sandpool.loop.events import Kind
from sandpool.model.claim import SandboxClaim, SandboxClaimStatus
from sandpool.model.conditions import Condition, Truth, find, put, without
from sandpool.model.event_reasons import EventReason
from sandpool.model.patches import Json, Patch, json_patch
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox

EXPIRED = "Claim expired. Sandbox cleanup initiated."


def forwarded(
    claim: SandboxClaim, sandbox: Sandbox, now: datetime, trouble: tuple[Reason, str] | None = None
) -> SandboxClaimStatus:
    """The status of a bound claim."""
    conditions = bound_conditions(claim, sandbox, now)
    generation = claim.metadata.generation
    if sandbox.metadata.leaving:
        going = f"Sandbox {sandbox.metadata.name} is being deleted"
        verdict = (Truth.FALSE, Reason.DEPENDENCIES_NOT_READY, going)
        conditions = put(conditions, Type.READY, *verdict, generation=generation, now=now)
    trouble = trouble or held_up(sandbox)
    if trouble is not None:
        conditions = put(conditions, Type.HEALTHY, Truth.FALSE, *trouble, generation=generation, now=now)
    elif find(conditions, Type.HEALTHY) is not None:
        fine = (Truth.TRUE, Reason.AS_EXPECTED, "Nothing is wrong")
        conditions = put(conditions, Type.HEALTHY, *fine, generation=generation, now=now)
    return SandboxClaimStatus(conditions=conditions, sandbox=bound_sandbox(sandbox))


def held_up(sandbox: Sandbox) -> tuple[Reason, str] | None:
    """Why the sandbox's pod does not start, if that is known."""
    healthy = find(sandbox.status.conditions, Type.HEALTHY)
    if healthy is None or healthy.reason != Reason.POD_NOT_STARTING or sandbox.metadata.leaving:
        return None
    return Reason.POD_NOT_STARTING, healthy.message


def as_of_before(status: SandboxClaimStatus, claim: SandboxClaim) -> SandboxClaimStatus:
    """For a claim whose last edit has not reached its sandbox yet: `observedGeneration` stays behind, which shows clients and the next
    reconcile that something is left to do."""
    before = find(claim.status.conditions, Type.READY)
    if before is None:
        return status
    seen = before.observed_generation
    conditions = tuple(
        msgspec.structs.replace(one, observed_generation=seen) if one.type == Type.READY else one
        for one in status.conditions
    )
    return SandboxClaimStatus(conditions=conditions, sandbox=status.sandbox)


def unbound(claim: SandboxClaim, reason: str, message: str, now: datetime) -> SandboxClaimStatus:
    """The status of a claim without a sandbox, and why."""
    conditions = without(without(claim.status.conditions, Type.FINISHED), Type.HEALTHY)
    generation = claim.metadata.generation
    return SandboxClaimStatus(
        conditions=put(conditions, Type.READY, Truth.FALSE, reason, message, generation=generation, now=now)
    )


def ended(claim: SandboxClaim, sandbox: Sandbox | None, now: datetime) -> SandboxClaimStatus:
    """The status of an expired claim. How its work finished stays readable."""
    conditions = claim.status.conditions if sandbox is None else bound_conditions(claim, sandbox, now)
    verdict = (Truth.FALSE, Reason.CLAIM_EXPIRED, EXPIRED)
    conditions = put(conditions, Type.READY, *verdict, generation=claim.metadata.generation, now=now)
    return SandboxClaimStatus(conditions=conditions, sandbox=None if sandbox is None else bound_sandbox(sandbox))


def misleads(claim: SandboxClaim) -> bool:
    """Whether the status of a claim that waits for a sandbox says something else. Clients act on it: they would use a sandbox that is gone, or stop
    waiting."""
    ready = find(claim.status.conditions, Type.READY)
    return ready is not None and ready.reason != Reason.SANDBOX_MISSING


def is_shown(claim: SandboxClaim) -> bool:
    """Whether the claim certainly has a status on the server. An empty one cannot be told from none."""
    return bool(claim.status.conditions) or claim.status.sandbox is not None


def same(old: SandboxClaimStatus, new: SandboxClaimStatus) -> bool:
    return old.sandbox == new.sandbox and _by_type(old.conditions) == _by_type(new.conditions)


def status_patch(claim: SandboxClaim, new: SandboxClaimStatus, *, has_status: bool, pinned: bool = False) -> Patch:
    """The patch of the status. It tests the claim's uid and that it is bound as observed; `pinned`: also its generation."""
    tests: list[dict[str, Json]] = [{"op": "test", "path": "/metadata/uid", "value": str(claim.metadata.uid)}]
    if pinned:
        tests.append({"op": "test", "path": "/metadata/generation", "value": claim.metadata.generation})
    sandbox, conditions = as_json(new.sandbox), as_json(new.conditions)
    if not has_status:
        value = {"conditions": conditions, **({} if sandbox is None else {"sandbox": sandbox})}
        tests.append({"op": "test", "path": "/status", "value": None})
        return json_patch([*tests, {"op": "add", "path": "/status", "value": value}])
    changes: list[dict[str, Json]] = [{"op": "add", "path": "/status/conditions", "value": conditions}]
    if sandbox is not None:
        changes.append({"op": "add", "path": "/status/sandbox", "value": sandbox})
    elif claim.status.sandbox is not None:
        changes.append({"op": "remove", "path": "/status/sandbox"})
    return json_patch([*tests, bound_as_seen(claim.status.sandbox), *changes])


def _by_type(conditions: Iterable[Condition]) -> list[Condition]:
    return sorted(conditions, key=lambda one: one.type)


class ClaimEvent(NamedTuple):
    """One Event about a claim."""

    kind: Kind
    reason: str
    message: str
    action: str = ""


def bound_event(claim: SandboxClaim, sandbox: Sandbox) -> ClaimEvent:
    name, pool = sandbox.metadata.name, claim.spec.warm_pool_ref.name
    if warm(sandbox):
        return ClaimEvent(Kind.NORMAL, EventReason.SANDBOX_ADOPTED, f"Took sandbox {name} from pool {pool}", "Adoption")
    return ClaimEvent(Kind.NORMAL, EventReason.SANDBOX_PROVISIONED, f"Created sandbox {name}", "Provisioning")


def end_event() -> ClaimEvent:
    return ClaimEvent(Kind.NORMAL, EventReason.CLAIM_EXPIRED, "The claim reached the end of its life", "Expiring")


def refusal_event(step: Refuse) -> ClaimEvent:
    return ClaimEvent(Kind.WARNING, step.reason, step.message)
