"""What a claim's status should say, and the patch that makes it say so. Pure.

Ready is what the sandbox says: trouble of ours never takes it away from a claim that is served, but is told in Healthy.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from sandpool.controllers.claim.binding import as_json, bound_as_seen, bound_conditions, bound_sandbox
from sandpool.model.claim import SandboxClaim, SandboxClaimStatus
from sandpool.model.conditions import Condition, Truth, find, put, without
from sandpool.model.patches import Json, Patch, json_patch
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox

EXPIRED = "Claim expired. Sandbox cleanup initiated."


def forwarded(
    claim: SandboxClaim, sandbox: Sandbox, now: datetime, trouble: tuple[Reason, str] | None = None
) -> SandboxClaimStatus:
    """The status of a claim that has a sandbox."""
    conditions = bound_conditions(claim, sandbox, now)
    generation = claim.metadata.generation
    if sandbox.metadata.leaving:
        going = f"Sandbox {sandbox.metadata.name} is being deleted"
        told = (Truth.FALSE, Reason.DEPENDENCIES_NOT_READY, going)
        conditions = put(conditions, Type.READY, *told, generation=generation, now=now)
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
    """For a claim whose last edit has not reached its sandbox yet: `observedGeneration` stays behind, so that whoever looks,
    we included, knows that there is something left to do."""
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
    """The status of a claim that has no sandbox, and why."""
    conditions = without(without(claim.status.conditions, Type.FINISHED), Type.HEALTHY)
    generation = claim.metadata.generation
    return SandboxClaimStatus(
        conditions=put(conditions, Type.READY, Truth.FALSE, reason, message, generation=generation, now=now)
    )


def ended(claim: SandboxClaim, sandbox: Sandbox | None, now: datetime) -> SandboxClaimStatus:
    """The status of a claim whose end has come; how the work ended stays readable."""
    conditions = claim.status.conditions if sandbox is None else bound_conditions(claim, sandbox, now)
    told = (Truth.FALSE, Reason.CLAIM_EXPIRED, EXPIRED)
    conditions = put(conditions, Type.READY, *told, generation=claim.metadata.generation, now=now)
    return SandboxClaimStatus(conditions=conditions, sandbox=None if sandbox is None else bound_sandbox(sandbox))


def misleads(claim: SandboxClaim) -> bool:
    """Whether the status of a claim that has no sandbox, and waits for one, says something else. Clients act on that: they
    use what is gone, or stop waiting."""
    ready = find(claim.status.conditions, Type.READY)
    return ready is not None and ready.reason != Reason.SANDBOX_MISSING


def is_shown(claim: SandboxClaim) -> bool:
    """Whether the claim surely has a status on the server: an empty one looks like none."""
    return bool(claim.status.conditions) or claim.status.sandbox is not None


def same(old: SandboxClaimStatus, new: SandboxClaimStatus) -> bool:
    return old.sandbox == new.sandbox and _by_type(old.conditions) == _by_type(new.conditions)


def status_patch(claim: SandboxClaim, new: SandboxClaimStatus, *, has_status: bool, pinned: bool = False) -> Patch:
    """For this very claim, and only while it is bound as it was seen to be. `pinned`: nor may its spec have changed."""
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
