"""Decides a claim's next step. Pure: no I/O, no clock, no logging.

Each step, once done, changes the view, and the next decision is made on that: there is no hidden state between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sandpool.controllers.claim import pod_metadata, settle
from sandpool.controllers.claim.blueprint import cold_sandbox
from sandpool.controllers.claim.steps import (
    Ask,
    Bind,
    CleanUp,
    ColdStep,
    Create,
    Hold,
    Keep,
    Leave,
    Look,
    Mark,
    Race,
    Refuse,
    Remove,
    Start,
    Step,
)
from sandpool.controllers.claim.view import ClaimView, warm
from sandpool.loop.errors import Terminal
from sandpool.model.claim import ClaimShutdownPolicy, SandboxClaim
from sandpool.model.conditions import find, is_true
from sandpool.model.container_defaults import NONE, ContainerDefaults
from sandpool.model.expiry import claim_end, expired
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox


def next_step(view: ClaimView, domains: Sequence[str], now: datetime) -> Step:
    claim = view.claim
    if claim.metadata.leaving:
        return Leave()
    if expired(claim_end(claim), now):
        return _end(view)
    if not view.owned and not view.bound_name:
        return _search(view, domains)
    if (bound := view.bound) is not None:
        return Keep(bound)
    if name := view.unseen:
        return Look(name)
    if (owned := view.chosen) is not None:
        pool = view.pool
        return Bind(owned) if pool is None or not _may_yet_be_served(view, pool, owned) else Race(pool, owned)
    return _search(view, domains)


def cold_step(view: ClaimView, domains: Sequence[str], defaults: ContainerDefaults = NONE) -> ColdStep:
    """The next step of a claim that starts a sandbox of its own."""
    claim, pool = view.claim, view.pool
    if (taken := _name_taken(view)) is not None:
        return taken
    if pool is None:
        return _no_pool(claim)
    if view.template is None:
        return _no_template(pool)
    if view.unprotected is not None:
        return Hold(f"Waiting: {view.unprotected}")
    try:
        return Create(cold_sandbox(claim, view.template, domains, defaults))
    except Terminal as refusal:
        return Refuse(refusal.reason, refusal.message)


def marked(claim: SandboxClaim) -> bool:
    ready = find(claim.status.conditions, Type.READY)
    return ready is not None and not ready.true and ready.reason == Reason.CLAIM_EXPIRED


def _end(view: ClaimView) -> Step:
    claim = view.claim
    if not marked(claim):
        return Mark()
    policy = claim.spec.lifecycle.shutdown_policy if claim.spec.lifecycle else ""
    if policy in (ClaimShutdownPolicy.DELETE, ClaimShutdownPolicy.DELETE_FOREGROUND):
        return Remove(foreground=policy == ClaimShutdownPolicy.DELETE_FOREGROUND)
    if name := view.unseen:
        return Look(name)
    return CleanUp(view.staying)


def races(view: ClaimView, pool: SandboxWarmPool) -> bool:
    """Whether the pool may yet have a member for a claim that starts a sandbox of its own."""
    return not view.claim.spec.customised and pool.spec.replicas > 0 and not pool.metadata.leaving


def _may_yet_be_served(view: ClaimView, pool: SandboxWarmPool, owned: Sandbox) -> bool:
    """Whether the claim could still get a member instead of the sandbox that it started, which is then deleted. A sandbox that is ready or has
    finished is bound, and so is one without an alternative."""
    own = owned.metadata.name == view.claim.metadata.name and not warm(owned)
    if not own or not races(view, pool):
        return False
    if owned.spec.suspended:  # its user knows of it
        return False
    return not any(is_true(owned.status.conditions, one) for one in (Type.READY, Type.FINISHED))


def _search(view: ClaimView, domains: Sequence[str]) -> Step:
    claim = view.claim
    try:
        pod_metadata.check(claim.spec.additional_pod_metadata, domains)
    except Terminal as refusal:
        return Refuse(refusal.reason, refusal.message)
    if view.pool is None:
        return _no_pool(claim)
    if claim.spec.customised:
        return Start("the claim asks for variables or storage that no warm sandbox has")
    return Ask(view.pool)


def _no_pool(claim: SandboxClaim) -> Refuse:
    name, namespace = claim.spec.warm_pool_ref.name, claim.metadata.namespace
    message = f'SandboxWarmPool "{name}" not found: create it in namespace {namespace}, or change spec.warmPoolRef.name'
    return Refuse(Reason.WARM_POOL_NOT_FOUND, message)


def _no_template(pool: SandboxWarmPool) -> Refuse:
    name, (namespace, whose) = pool.spec.sandbox_template_ref.name, pool.metadata.key
    message = (
        f'SandboxTemplate "{name}" not found: create it in namespace {namespace}, or change '
        f"spec.sandboxTemplateRef.name of SandboxWarmPool {whose}"
    )
    return Refuse(Reason.TEMPLATE_NOT_FOUND, message)


def _name_taken(view: ClaimView) -> Hold | Refuse | None:
    """A new sandbox is named like its claim. If one of that name is being deleted, the claim waits for that; a foreign one is reported."""
    if view.named is None:
        return None
    match settle.after_creation_look(view.named, view.claim):
        case settle.Foreign(_, message):
            return Refuse(Reason.RECONCILER_ERROR, message)
        case _:
            return Hold(f"Waiting until an earlier sandbox {view.named.metadata.name} is gone")
