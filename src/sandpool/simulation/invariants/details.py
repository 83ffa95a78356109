"""Smaller truths about the end of a run: marks, annotations, conditions that should have passed, sandboxes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find, is_true
from sandpool.model.expiry import expired
from sandpool.model.labels import CLAIM_FIRST_READY_AT, CLAIM_UID, SANDBOX_NAME, WARM_POOL
from sandpool.model.pod import Pod
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox, ShutdownPolicy
from sandpool.simulation.invariants.outcome import Outcome, controls


def details(end: Outcome) -> Iterator[str]:
    for claim in end.claims.values():
        yield from _annotated(claim)
    for box in end.sandboxes.values():
        yield from _marked(end, box)
        yield from _ended(end, box)
    everything: list[Any] = [*end.claims.values(), *end.sandboxes.values()]
    for obj in everything:
        trouble = find(obj.status.conditions, Type.HEALTHY)
        if trouble is not None and not trouble.true and trouble.reason == Reason.CONTROLLER_TROUBLE:
            yield f"8: {obj.kind} {obj.metadata.key} still reports trouble that is over: {trouble.message}"


def _annotated(claim: SandboxClaim) -> Iterator[str]:
    shown = claim.status.sandbox.name if claim.status.sandbox is not None else ""
    told = claim.metadata.annotations.get(SANDBOX_NAME, "")
    if is_true(claim.status.conditions, Type.READY) and told != shown:
        yield f"claim {claim.metadata.key} shows sandbox {shown}, its annotation {told or 'none'}"
    if is_true(claim.status.conditions, Type.READY) and CLAIM_FIRST_READY_AT not in claim.metadata.annotations:
        yield f"claim {claim.metadata.key} is Ready, and no second event said so: it is not annotated with when it first was"


def _marked(end: Outcome, box: Sandbox) -> Iterator[str]:
    """Who may be reached, evicted and counted is read off the pod's labels."""
    pod, owner = end.pods.get(box.metadata.key), box.metadata.controller
    if pod is None or owner is None or not controls(box.metadata.uid, pod) or not pod.ready:
        return
    marks = _mark(pod, CLAIM_UID), WARM_POOL in pod.metadata.labels
    right = (owner.uid, False) if owner.kind == SandboxClaim.kind else ("", True)
    if marks != right:
        yield f"pod {pod.metadata.key} of {owner.kind} {owner.name} is marked as {marks}, not {right}"


def _mark(pod: Pod, label: str) -> str:
    return pod.metadata.labels.get(label, "")


def _ended(end: Outcome, box: Sandbox) -> Iterator[str]:
    key = box.metadata.key
    if not expired(box.spec.shutdown_time, end.now):
        return
    if box.spec.shutdown_policy == ShutdownPolicy.DELETE:
        yield f"10: sandbox {key} has expired and is still there"
        return
    ready = find(box.status.conditions, Type.READY)
    if ready is None or ready.reason != Reason.SANDBOX_EXPIRED:
        yield f"10: sandbox {key} has expired and says {ready.reason if ready else 'nothing'}"
    if key in end.pods and controls(box.metadata.uid, end.pods[key]):
        yield f"10: sandbox {key} has expired and still has a pod"
