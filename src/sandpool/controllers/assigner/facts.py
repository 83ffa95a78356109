"""The assigner's inputs and answers as values, and how they are read off objects.

Here are also the rule which members may be offered, and why a claim starts a sandbox of its own. Labels alone prove nothing: a member is a sandbox
that a pool controls.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from sandpool.model import labels
from sandpool.model.blueprint import follows
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.container_defaults import NONE, ContainerDefaults
from sandpool.model.metadata import Key, OwnerReference, Uid
from sandpool.model.names import name_hash
from sandpool.model.pool import SandboxWarmPool, UpdateStrategyType
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import GROUP, SandboxTemplate

Age = tuple[object, ...]
"""What sorts claims by age, the oldest first. An empty one is older than any."""


class Claimant(NamedTuple):
    """A claim that asks for a member. The key is for waking it, the age for its place in the queue; only the uid identifies it."""

    uid: Uid
    key: Key
    age: Age = ()


Woken = tuple[Claimant, ...]
"""Claims whose answer may have changed: they should ask again, now."""


@dataclass(frozen=True, slots=True)
class Member:
    """A sandbox that a pool controls."""

    uid: Uid
    key: Key
    pool: Uid
    node: str = ""
    ready: bool = False
    stale: bool = False  # not what the pool's template would make today
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    """What the assigner needs to know of a pool."""

    uid: Uid
    key: Key
    strategy: UpdateStrategyType = UpdateStrategyType.ON_REPLENISH
    leaving: bool = False
    template_known: bool = True  # the template that it refers to exists
    replicas: int = 1  # that it wants


class Standing(StrEnum):
    """What a member is good for now."""

    READY = "ready"
    LAST_CHOICE = "last choice"  # ready, but stale: used when nothing else is ready
    WARMING = "warming"  # worth waiting for
    WITHHELD = "withheld"  # never offered


def standing(member: Member, pool: Pool | None, draining: bool) -> Standing:
    """OnReplenish hands out every ready member, in order. Recreate hands out only members that follow the template; RollingUpdate prefers
    them. Without a template these two hand out nothing, because it is unknown which members follow it."""
    if pool is None or pool.leaving or member.leaving or draining or member.key.namespace != pool.key.namespace:
        return Standing.WITHHELD
    last = False
    if pool.strategy is not UpdateStrategyType.ON_REPLENISH:
        if not pool.template_known or (member.stale and pool.strategy is UpdateStrategyType.RECREATE):
            return Standing.WITHHELD
        last = member.stale
    if not member.ready:
        return Standing.WARMING
    return Standing.LAST_CHOICE if last else Standing.READY


class Why(StrEnum):
    """Why no warm member can be had."""

    NO_POOL = "the pool is unknown, being deleted or in another namespace"
    NO_MEMBERS = "the pool keeps no members"
    NONE_WARMING = "no member is ready, and nobody can say when one will be"
    SOONER = "no member is ready, and none is expected sooner"
    TOO_LATE = "no member became ready in time"


@dataclass(frozen=True, slots=True)
class Take:
    """The member is reserved for the claim until `commit`, `release` or `forget`."""

    member: Member
    woken: Woken = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """The claim is in the queue and will be woken; it should ask again at `until` at the latest."""

    until: datetime
    woken: Woken = ()


@dataclass(frozen=True, slots=True)
class Cold:
    """Start a sandbox of the claim's own. The claim keeps its place in the queue: if a member is ready first, it still gets it."""

    why: Why
    woken: Woken = ()


Decision = Take | Wait | Cold


@dataclass(frozen=True, slots=True)
class Counts:
    """How many members and waiting claims a pool has."""

    ready: int = 0
    warming: int = 0
    reserved: int = 0
    waiting: int = 0


class Cause(StrEnum):
    """Why a claim starts a sandbox of its own: values of a metric label."""

    ENV = "env"
    VOLUME_CLAIM_TEMPLATES = "volume_claim_templates"
    NO_POOL = "no_pool"
    POOL_OF_ZERO = "pool_of_zero"
    NOTHING_WARMING = "nothing_warming"
    SOONER = "sooner"
    TOO_LATE = "too_late"
    MEMBER_UNFIT = "member_unfit"


_BY_WHY = {
    Why.NO_POOL: Cause.NO_POOL,
    Why.NO_MEMBERS: Cause.POOL_OF_ZERO,
    Why.NONE_WARMING: Cause.NOTHING_WARMING,
    Why.SOONER: Cause.SOONER,
    Why.TOO_LATE: Cause.TOO_LATE,
}


def cause_of(claim: SandboxClaim, why: Why | None) -> Cause:
    """`why`: the assigner's answer. None: it was not asked, or the member that it gave cannot have what the claim asks for."""
    if why is not None:
        return _BY_WHY[why]
    if claim.spec.env:
        return Cause.ENV
    return Cause.VOLUME_CLAIM_TEMPLATES if claim.spec.customised else Cause.MEMBER_UNFIT


def owning_pool(sandbox: Sandbox) -> OwnerReference | None:
    """The pool that controls the sandbox, by group and kind: old references keep old versions."""
    owner = sandbox.metadata.controller
    ours = owner is not None and owner.group == GROUP and owner.kind == SandboxWarmPool.kind
    return owner if ours else None


def member_of(sandbox: Sandbox, *, stale: bool, leaving: bool = False) -> Member | None:
    """None: not a member, whatever its labels say. `leaving`: a delete is under way that the object does not show yet."""
    meta = sandbox.metadata
    owner = owning_pool(sandbox)
    if owner is None or labels.WARM_POOL not in meta.labels or labels.TEMPLATE_REF_HASH not in meta.labels:
        return None
    return Member(
        uid=meta.uid,
        key=meta.key,
        pool=owner.uid,
        node=sandbox.status.node_name,
        ready=is_true(sandbox.status.conditions, Type.READY) and bool(sandbox.status.pod_ips),
        stale=stale,
        leaving=leaving or meta.leaving,
    )


def pool_of(pool: SandboxWarmPool, *, template_known: bool, leaving: bool = False) -> Pool:
    meta = pool.metadata
    return Pool(meta.uid, meta.key, pool.spec.strategy, leaving or meta.leaving, template_known, pool.spec.replicas)


def stale(sandbox: Sandbox, template: SandboxTemplate, blueprint: str, defaults: ContainerDefaults = NONE) -> bool:
    """Whether the template would make another sandbox today. `blueprint` is the hash of what it makes with these defaults;
    equal hashes settle it, and only where they differ are the specs compared."""
    marks = sandbox.metadata.labels
    if marks.get(labels.TEMPLATE_REF_HASH) != name_hash(template.metadata.name):
        return True
    return marks.get(labels.TEMPLATE_HASH) != blueprint and not follows(sandbox.spec, template.spec, defaults)
