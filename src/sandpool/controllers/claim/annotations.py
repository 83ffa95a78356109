"""The annotations of a claim that other tools read: which sandbox it got, when it was first seen and first ready. Pure.

A claim has the first two (`naming`) before it is Ready. The third follows: another event that shows the claim as Ready.
"""

from __future__ import annotations

from datetime import datetime

from sandpool.controllers.claim.memory import Notes
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.labels import CLAIM_FIRST_READY_AT, CONTROLLER_FIRST_OBSERVED_AT, SANDBOX_NAME
from sandpool.model.patches import Json, Patch, merge_patch
from sandpool.model.reasons import Type
from sandpool.model.times import micro

UNKNOWN = "unknown"
"""It was ready before anybody noted when: nobody may count that moment later."""


def annotations_patch(claim: SandboxClaim, sandbox: str, notes: Notes, now: datetime) -> Patch | None:
    """For a claim that is ready or is about to be. Only what is missing, on this very claim; None if nothing is."""
    meta = claim.metadata
    missing = missing_annotations(claim, sandbox, notes, now)
    head: dict[str, Json] = {"annotations": dict(missing)} if missing else {}
    if SANDBOX_NAME in meta.labels:  # where old versions had it
        head["labels"] = {SANDBOX_NAME: None}
    return merge_patch({"metadata": {"uid": str(meta.uid), **head}}) if head else None


def naming_patch(claim: SandboxClaim, sandbox: str, notes: Notes) -> Patch | None:
    """For a claim that is about to get this sandbox. None if it says so already."""
    missing = naming(claim, sandbox, notes)
    return (
        merge_patch({"metadata": {"uid": str(claim.metadata.uid), "annotations": dict(missing)}}) if missing else None
    )


def missing_annotations(claim: SandboxClaim, sandbox: str, notes: Notes, now: datetime) -> dict[str, str]:
    missing = naming(claim, sandbox, notes)
    if not claim.metadata.annotations.get(CLAIM_FIRST_READY_AT):
        missing[CLAIM_FIRST_READY_AT] = first_ready(claim, notes, now)
    return missing


def naming(claim: SandboxClaim, sandbox: str, notes: Notes) -> dict[str, str]:
    """What is missing of that without which a claim is not Ready."""
    present = claim.metadata.annotations
    missing: dict[str, str] = {}
    if present.get(SANDBOX_NAME) != sandbox:
        missing[SANDBOX_NAME] = sandbox
    return missing | observed(claim, notes.first_seen)


def observed(claim: SandboxClaim, seen: datetime) -> dict[str, str]:
    """When it was first seen, unless it says so already."""
    known = claim.metadata.annotations.get(CONTROLLER_FIRST_OBSERVED_AT)
    return {} if known else {CONTROLLER_FIRST_OBSERVED_AT: micro(seen)}


def first_ready(claim: SandboxClaim, notes: Notes, now: datetime) -> str:
    if notes.first_ready is not None:
        return micro(notes.first_ready)
    return UNKNOWN if is_true(claim.status.conditions, Type.READY) else micro(now)
