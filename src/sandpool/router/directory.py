"""Which sandbox a name stands for, and whether somebody may be let in now. Pure.

A member that still waits in its pool is nobody's: whoever got in now would have left something behind for its first owner.
"""

from __future__ import annotations

from datetime import datetime

from sandpool.model.conditions import find as condition_of
from sandpool.model.expiry import expired, sandbox_end
from sandpool.model.labels import EXTENSIONS, POD_NAME
from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox
from sandpool.router.ports import Target
from sandpool.router.refusals import Refusal, Word

RETRY_AFTER = 1
"""Seconds after which it is worth asking again for a sandbox that is starting."""


def find(sandbox: Sandbox | None, key: Key, uid: str, now: datetime) -> Target | Refusal:
    """`sandbox` is what the cache has under `key`; `uid` is whom the caller means, if it said so."""
    if (refusal := unidentified(sandbox, key, uid, now)) is not None:
        return refusal
    assert sandbox is not None
    return _resting(sandbox) or _target(sandbox)


def unidentified(sandbox: Sandbox | None, key: Key, uid: str, now: datetime) -> Refusal | None:
    """Why nobody can be given a word for this sandbox; None: it exists, is somebody's, and has not ended."""
    if sandbox is None:
        return Refusal(
            404,
            Word.NOT_FOUND,
            f"there is no sandbox {key.name} in namespace {key.namespace}. The name is that of the Sandbox, which "
            f"status.sandbox.name of its claim says: `kubectl get sandboxclaims,sandboxes -n {key.namespace}`",
            passing=True,
        )
    if pooled(sandbox):
        owner = sandbox.metadata.controller
        pool = owner.name if owner is not None else ""
        return Refusal(
            404,
            Word.NOT_CLAIMED,
            f"sandbox {key} is not claimed: it waits in the pool {pool}. `sandpool claim {pool}` gets one",
            passing=True,
        )
    if uid and uid != sandbox.metadata.uid:
        return Refusal(
            410,
            Word.GONE,
            f"the sandbox {key} that was meant (uid {uid}) is gone; another one has its name now. Claim a new one",
            passing=True,
        )
    return _ended(sandbox, key, now)


def pooled(sandbox: Sandbox) -> bool:
    """Whatever version its reference has."""
    owner = sandbox.metadata.controller
    return owner is not None and (owner.group, owner.kind) == (EXTENSIONS, SandboxWarmPool.kind)


def _ended(sandbox: Sandbox, key: Key, now: datetime) -> Refusal | None:
    conditions = sandbox.status.conditions
    ready, finished = condition_of(conditions, Type.READY), condition_of(conditions, Type.FINISHED)
    if sandbox.metadata.leaving:
        why = "is being deleted"
    elif expired(sandbox_end(sandbox), now) or (ready is not None and ready.reason == Reason.SANDBOX_EXPIRED):
        why = "has expired: it reached spec.shutdownTime"
    elif finished is not None and finished.true:
        why = f"has finished ({finished.reason}): its pod ended"
    else:
        return None
    return Refusal(410, Word.GONE, f"sandbox {key} {why}. Claim a new one")


def _resting(sandbox: Sandbox) -> Refusal | None:
    key, ready = sandbox.metadata.key, condition_of(sandbox.status.conditions, Type.READY)
    if sandbox.spec.suspended:
        return Refusal(
            409,
            Word.SUSPENDED,
            f"sandbox {key} is suspended. Wake it up: `sandpool resume sandbox/{key.name} -n {key.namespace}`",
            passing=True,
        )
    if ready is not None and ready.true and sandbox.status.pod_ips:
        return None
    reason = ready.reason if ready is not None else "nothing is reported yet"
    if ready is not None and ready.true:
        reason = "it has no address yet"
    said = f": {ready.message}" if ready is not None and not ready.true and ready.message else ""
    return Refusal(
        503,
        Word.NOT_READY,
        f"sandbox {key} is not ready ({reason}{said}). Try again, or look: "
        f"`kubectl get sandbox {key.name} -n {key.namespace} -o yaml`",
        retry_after=RETRY_AFTER,
        passing=True,
    )


def _target(sandbox: Sandbox) -> Target:
    meta = sandbox.metadata
    pod = meta.annotations.get(POD_NAME) or meta.name
    return Target(meta.namespace, meta.name, Uid(meta.uid), pod, sandbox.status.pod_ips[0])
