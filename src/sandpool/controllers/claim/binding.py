"""The binding: the one patch that writes into a claim's status which sandbox it got. The first that is stored decides.

It tests the claim's uid and that no sandbox is bound yet, or still the lost one that it replaces. A server can test for an absent key only where the parent exists,
so the patch differs for a claim with and without a status. Everything in it comes from one state of the sandbox.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from sandpool.model.claim import BoundSandbox, SandboxClaim, SandboxClaimStatus
from sandpool.model.conditions import Condition, Truth, find, put, without
from sandpool.model.patches import Json, Patch, json_patch
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox


def binding(claim: SandboxClaim, bound: SandboxClaimStatus, *, has_status: bool | None = None) -> Patch:
    """`has_status`: whether the claim on the server has a status, even an empty one, which cannot be told from none here. If it is not given, a
    claim that shows nothing is assumed to have none; if the patch then fails although nothing is bound, the other form is right."""
    status = claim.status
    sandbox, conditions = as_json(bound.sandbox), as_json(bound.conditions)
    if has_status is None:
        has_status = bool(status.conditions) or status.sandbox is not None
    same_claim = {"op": "test", "path": "/metadata/uid", "value": str(claim.metadata.uid)}
    if not has_status:
        value = {"sandbox": sandbox, "conditions": conditions}
        unbound = {"op": "test", "path": "/status", "value": None}
        return json_patch([same_claim, unbound, {"op": "add", "path": "/status", "value": value}])
    return json_patch(
        [
            same_claim,
            bound_as_seen(status.sandbox),
            {"op": "add", "path": "/status/sandbox", "value": sandbox},
            {"op": "add", "path": "/status/conditions", "value": conditions},
        ]
    )


def bound_status(claim: SandboxClaim, sandbox: Sandbox, now: datetime) -> SandboxClaimStatus:
    """The status that the binding writes."""
    return SandboxClaimStatus(conditions=bound_conditions(claim, sandbox, now), sandbox=bound_sandbox(sandbox))


def bound_sandbox(sandbox: Sandbox) -> BoundSandbox:
    """The name and the addresses of a claim's sandbox, from the sandbox's status."""
    status = sandbox.status
    return BoundSandbox(name=sandbox.metadata.name, pod_ips=status.pod_ips, service_fqdn=status.service_fqdn)


def bound_conditions(claim: SandboxClaim, sandbox: Sandbox, now: datetime) -> tuple[Condition, ...]:
    """Ready and Finished of the sandbox, with the claim's own generation."""
    generation = claim.metadata.generation
    conditions = claim.status.conditions
    ready = find(sandbox.status.conditions, Type.READY)
    if ready is None:
        verdict = (Truth.FALSE, Reason.SANDBOX_NOT_READY, "Sandbox is not ready")
        conditions = put(conditions, Type.READY, *verdict, generation=generation, now=now)
    else:
        reported = (ready.status, ready.reason, ready.message)
        conditions = put(conditions, Type.READY, *reported, generation=generation, now=now)
    finished = find(sandbox.status.conditions, Type.FINISHED)
    if finished is None:
        return without(conditions, Type.FINISHED)
    kept = msgspec.structs.replace(finished, observed_generation=generation)
    return (*without(conditions, Type.FINISHED), kept)


def bound_as_seen(seen: BoundSandbox | None) -> dict[str, Json]:
    """Tests that nothing is bound, or still the lost sandbox that is to be replaced."""
    if seen is None:
        return {"op": "test", "path": "/status/sandbox", "value": None}
    return {"op": "test", "path": "/status/sandbox/name", "value": seen.name or None}


def as_json(value: object) -> Json:
    return msgspec.to_builtins(value)
