"""Reads a view of one pool off the caches, the member index and the assigner: a fixed number of look-ups, never a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.pool.memory import Judged, MemberIndex, Memory
from sandpool.controllers.pool.view import Obstacle, Orphan, PoolView
from sandpool.controllers.protection import missing_policy
from sandpool.loop.cache import Cache
from sandpool.model import labels
from sandpool.model.blueprint import follows
from sandpool.model.container_defaults import ContainerDefaults
from sandpool.model.core import NetworkPolicy
from sandpool.model.metadata import Key, Uid
from sandpool.model.names import name_hash
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Reason
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate

Mark = tuple[str, str]
"""A namespace and the hash of a pool's name."""


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches that the pool controller reads."""

    pools: Cache[SandboxWarmPool]
    sandboxes: Cache[Sandbox]
    templates: Cache[SandboxTemplate]
    policies: Cache[NetworkPolicy]


class Basis(NamedTuple):
    """What a decision to make members rests on."""

    key: Key
    pool: tuple[Uid, int]
    template: tuple[Uid, int] | None


def basis_of(pool: SandboxWarmPool, template: SandboxTemplate | None) -> Basis:
    meta, of = pool.metadata, template.metadata if template is not None else None
    return Basis(meta.key, (meta.uid, meta.generation), (of.uid, of.generation) if of is not None else None)


class Observer:
    """Builds the view of a pool."""

    def __init__(self, caches: Caches, member_index: MemberIndex, assigner: Assigner, staleness: Staleness) -> None:
        self.caches = caches
        self._member_index = member_index
        self._assigner = assigner
        self._staleness = staleness
        self._orphans = caches.sandboxes.index(orphan_of)

    def pool(self, key: Key) -> SandboxWarmPool | None:
        """The pool, if it exists and is not being deleted."""
        pool = self.caches.pools.get(key)
        return None if pool is None or self.caches.pools.leaving(pool) else pool

    def basis(self, key: Key) -> Basis | None:
        pool = self.pool(key)
        return None if pool is None else basis_of(pool, self._staleness.template_of(pool))

    def view(self, key: Key) -> PoolView | None:
        pool = self.pool(key)
        if pool is None:
            return None
        template, memory = self._staleness.template_of(pool), self._member_index.memory(pool)
        judged = self._member_index.judge(pool, template)
        return PoolView(
            pool=pool,
            template=template,
            roster=memory.roster,
            obstacle=self._obstacle(pool, template, memory, judged),
            unsettled=len(memory.unsettled),
            reserved=self._assigner.counts(pool.metadata.uid).reserved,
            orphans=self._orphans_of(pool, template),
            losses=memory.losses,
            lost_unready=memory.lost_unready,
            pause=memory.pause,
            hold=memory.hold,
            tokens=memory.tokens,
            repaired=memory.repaired,
            failed=memory.failed,
            given_up=memory.given_up if memory.roster.level else "",
        )

    def _obstacle(
        self, pool: SandboxWarmPool, template: SandboxTemplate | None, memory: Memory, judged: Judged
    ) -> Obstacle | None:
        if template is None:
            return Obstacle(Reason.TEMPLATE_NOT_FOUND, self._no_template(pool))
        if (missing := missing_policy(template, self.caches.policies)) is not None:
            return Obstacle(Reason.NETWORK_POLICY_PENDING, f"No member is made because {missing}")
        if memory.refused is not None and memory.refused[0] == judged:
            return Obstacle(Reason.CREATION_FAILED, memory.refused[1])
        return None

    def _no_template(self, pool: SandboxWarmPool) -> str:
        name, namespace = pool.spec.sandbox_template_ref.name, pool.metadata.namespace
        if self.caches.templates.get(Key(namespace, name)) is not None:
            return f"SandboxTemplate {name} is being deleted: create it again, or change spec.sandboxTemplateRef.name"
        return (
            f"SandboxTemplate {name} does not exist in namespace {namespace}: "
            "create it, or change spec.sandboxTemplateRef.name"
        )

    def _orphans_of(self, pool: SandboxWarmPool, template: SandboxTemplate | None) -> tuple[Orphan, ...]:
        if template is None:
            return ()
        found = self._orphans.get((pool.metadata.namespace, name_hash(pool.metadata.name)))
        return tuple(
            Orphan(
                one.metadata.name,
                one.metadata.uid,
                one.metadata.revision,
                _strange(one, template, self._staleness.defaults),
            )
            for one in found
            if not self.caches.sandboxes.leaving(one)
        )


def orphan_of(sandbox: Sandbox) -> tuple[Mark, ...]:
    """The pool mark of a sandbox without a controlling owner."""
    meta = sandbox.metadata
    mark = meta.labels.get(labels.WARM_POOL)
    return () if mark is None or meta.controller is not None else ((meta.namespace, mark),)


def _strange(orphan: Sandbox, template: SandboxTemplate, defaults: ContainerDefaults) -> bool:
    """Whether an orphan does not match the template. Labels prove nothing: its spec decides, and the template that it names."""
    named = orphan.metadata.labels.get(labels.TEMPLATE_REF_HASH) == name_hash(template.metadata.name)
    return not named or not follows(orphan.spec, template.spec, defaults)
