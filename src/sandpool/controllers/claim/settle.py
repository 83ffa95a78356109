"""Decides what to do after a write that did not plainly succeed. Pure: errors and objects in, a step out.

A write can fail for sure, succeed for sure, or leave it open. If it is open, or another writer may have interfered, one consistent read (`Look`)
settles it before anything else is tried. A refusal with causes is a bug of ours and surfaces.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandpool.controllers.claim.view import bound_name
from sandpool.kube.errors import (
    AlreadyExists,
    Conflict,
    InternalError,
    Invalid,
    NotFound,
    Refused,
    ServerTimeout,
    Unavailable,
    Unreachable,
)
from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Uid
from sandpool.model.sandbox import Sandbox

_OPEN = (Unreachable, ServerTimeout, InternalError, Unavailable, TimeoutError)
"""Errors after which the write may have taken effect. (After Refused, a subclass of Unreachable, it has not.)"""


@dataclass(frozen=True, slots=True)
class Look:
    """Read the object, consistently, and ask again with what is there."""


@dataclass(frozen=True, slots=True)
class Surface:
    """Raise the error: the loop decides when to retry. A reservation stays."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Own:
    """The claim owns the sandbox, which need not be Ready: publish its status."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Next:
    """The sandbox is no longer available: release it as lost and take another."""

    why: str


@dataclass(frozen=True, slots=True)
class Again:
    """The write had no effect: rebuild the patch on this state."""

    sandbox: Sandbox


# The transfer


def after_transfer(outcome: Sandbox | BaseException, name: str) -> Own | Next | Look | Surface:
    if isinstance(outcome, Sandbox):
        return Next(f"sandbox {name} is being deleted") if outcome.metadata.leaving else Own(outcome)
    if isinstance(outcome, NotFound):
        return Next(f"sandbox {name} is gone")
    return _unsettled(outcome)


def after_look(found: Sandbox | BaseException, member: Sandbox, claim: Uid) -> Own | Next | Again | Surface:
    """`member` is the sandbox as it was when the transfer was planned: its owner is the pool."""
    name = member.metadata.name
    if isinstance(found, NotFound):
        return Next(f"sandbox {name} is gone")
    if isinstance(found, BaseException):
        return Surface(found)
    owner = found.metadata.controller
    if found.metadata.uid != member.metadata.uid:
        return Next(f"sandbox {name} is another one of that name now")
    if found.metadata.leaving:
        return Next(f"sandbox {name} is being deleted")
    if owner is not None and owner.uid == claim:
        return Own(found)
    pool = member.metadata.controller
    if owner is not None and pool is not None and owner.uid == pool.uid:
        return Again(found)
    return Next(f"sandbox {name} belongs to {owner.kind} {owner.name} now" if owner else f"sandbox {name} is orphaned")


# The binding


@dataclass(frozen=True, slots=True)
class Bound:
    """The claim shows this sandbox."""

    claim: SandboxClaim


@dataclass(frozen=True, slots=True)
class Surplus:
    """The claim is bound to another sandbox: this one is never published, and is deleted."""

    kept: str


@dataclass(frozen=True, slots=True)
class ClaimGone:
    """The claim is gone. Its sandboxes are garbage-collected with it."""


@dataclass(frozen=True, slots=True)
class Rebind:
    """Nothing is bound: rebuild the binding on this state, in this form."""

    claim: SandboxClaim
    has_status: bool


def after_binding(outcome: SandboxClaim | BaseException) -> Bound | ClaimGone | Look | Surface:
    if isinstance(outcome, SandboxClaim):
        return Bound(outcome)
    if isinstance(outcome, NotFound):
        return ClaimGone()
    return _unsettled(outcome)


def after_claim_look(
    found: SandboxClaim | BaseException, planned: SandboxClaim, sandbox: str, *, had_status: bool
) -> Bound | Surplus | ClaimGone | Rebind | Surface:
    """`planned` is the claim as it was when the binding was planned, perhaps bound to a sandbox that it lost. `had_status` is the form that was
    tried: an empty status cannot be told from none, so the other form is tried next."""
    if isinstance(found, NotFound):
        return ClaimGone()
    if isinstance(found, BaseException):
        return Surface(found)
    if found.metadata.uid != planned.metadata.uid:
        return ClaimGone()
    name, before = bound_name(found), bound_name(planned)
    if name == sandbox:
        return Bound(found)
    if name not in ("", before):
        return Surplus(name)
    shown = bool(found.status.conditions) or found.status.sandbox is not None
    return Rebind(found, has_status=shown or not had_status)


# The cold start


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A sandbox of this name belongs to an earlier claim of the same name and is about to be garbage-collected: wait for that."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Foreign:
    """A sandbox of this name belongs to another owner and is never touched; `message` is for the claim's condition."""

    sandbox: Sandbox
    message: str


@dataclass(frozen=True, slots=True)
class Create:
    """The sandbox does not exist: create it again."""


def after_creation(outcome: Sandbox | BaseException) -> Own | Look | Surface:
    if isinstance(outcome, Sandbox):
        return Own(outcome)
    return Look() if isinstance(outcome, AlreadyExists) else _unsettled(outcome)


def after_creation_look(
    found: Sandbox | BaseException, claim: SandboxClaim
) -> Own | Predecessor | Foreign | Create | Surface:
    if isinstance(found, NotFound):
        return Create()
    if isinstance(found, BaseException):
        return Surface(found)
    owner, meta = found.metadata.controller, claim.metadata
    if owner is not None and owner.uid == meta.uid:
        return Predecessor(found) if found.metadata.leaving else Own(found)
    ours = owner is not None and (owner.kind, owner.name) == (SandboxClaim.kind, meta.name)
    if ours and owner is not None and owner.group == SandboxClaim.api_version.partition("/")[0]:
        return Predecessor(found)
    whose = f"{owner.kind} {owner.name}" if owner else "nobody"
    return Foreign(
        found,
        f"Sandbox {meta.name} exists already and belongs to {whose}: delete it, or make a claim of another name",
    )


def _unsettled(error: BaseException) -> Look | Surface:
    if isinstance(error, Invalid):
        return Surface(error) if error.causes else Look()
    if isinstance(error, Refused):
        return Surface(error)
    return Look() if isinstance(error, (Conflict, *_OPEN)) else Surface(error)
