"""Invariant 8: Ready turns False only for what happened to the sandbox or its pod, never for an error of a controller."""

from __future__ import annotations

from collections.abc import Iterator

from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import Condition, find, is_true
from sandpool.model.core import Service
from sandpool.model.expiry import claim_end, expired, sandbox_end
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.pod import Phase, Pod
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox
from sandpool.simulation.invariants.ledger import Ledger, moment
from sandpool.simulation.steps import Step


def truthful(ledger: Ledger, step: Step) -> Iterator[str]:
    if step.old is None or step.new is None or not step.author.controller:
        return
    if step.resource is CLAIMS:
        yield from _claim(step, step.old, step.new)
    elif step.resource is SANDBOXES and _fell(step.old, step.new):
        cause = _sandbox_cause(step, step.new)
        if not cause:
            condition = find(step.new.status.conditions, Type.READY)
            yield f"8: sandbox {step.new.metadata.key} is no longer Ready ({_why(condition)}), says {step.author}, who knew of no cause"


def _claim(step: Step, old: SandboxClaim, new: SandboxClaim) -> Iterator[str]:
    condition = find(new.status.conditions, Type.READY)
    if condition is not None and condition.reason == Reason.CLAIM_EXPIRED:
        known = step.author.saw.object
        planned = known if isinstance(known, SandboxClaim) else old
        before = find(old.status.conditions, Type.READY)
        fresh = before is None or before.reason != Reason.CLAIM_EXPIRED
        if fresh and not expired(claim_end(planned), moment(step.at)) and not expired(claim_end(old), moment(step.at)):
            yield f"10: claim {new.metadata.key} is said to have expired before its time by {step.author}"
        return
    if not _fell(old, new):
        return
    box = step.author.saw.box
    lost = box is None or box.metadata.leaving or not is_true(box.status.conditions, Type.READY)
    owner = box.metadata.controller if box is not None else None
    foreign = owner is None or owner.uid != new.metadata.uid
    if not (lost or foreign):
        yield f"8: claim {new.metadata.key} is no longer Ready ({_why(condition)}), says {step.author}, who knew its sandbox to be"


def _fell(old: SandboxClaim | Sandbox, new: SandboxClaim | Sandbox) -> bool:
    return is_true(old.status.conditions, Type.READY) and not is_true(new.status.conditions, Type.READY)


def _sandbox_cause(step: Step, box: Sandbox) -> bool:
    if box.metadata.leaving or box.spec.suspended or expired(sandbox_end(box), moment(step.at)):
        return True
    pod, service = step.author.saw.pod, step.author.saw.service
    if pod is None or not _held(pod, box) or not pod.ready or not pod.ips or pod.status.phase != Phase.RUNNING:
        return True
    return bool(box.spec.service) and (service is None or not _held(service, box))


def _held(obj: Pod | Service, box: Sandbox) -> bool:
    """Whether it belongs to this sandbox, not to an earlier one of that name, and is not being deleted."""
    owner = obj.metadata.controller
    return owner is not None and owner.uid == box.metadata.uid and not obj.metadata.leaving


def _why(condition: Condition | None) -> str:
    return f"{condition.reason}: {condition.message}" if condition is not None else "no condition"
