"""Objects as the assigner's facts. Labels alone prove nothing: a member is what a pool controls."""

from __future__ import annotations

from sandpool.controllers.assigner.facts import Member, Pool
from sandpool.model import labels
from sandpool.model.blueprint import follows
from sandpool.model.conditions import is_true
from sandpool.model.container_defaults import NONE, ContainerDefaults
from sandpool.model.metadata import OwnerReference
from sandpool.model.names import name_hash
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import GROUP, SandboxTemplate


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
