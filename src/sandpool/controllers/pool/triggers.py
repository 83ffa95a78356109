"""What wakes a pool, and how soon. Always with background priority: claims go first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from sandpool.base.clock import Clock
from sandpool.controllers.pool.memory import MemberIndex, Memory
from sandpool.controllers.pool.observe import Caches, Mark, orphan_of
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.roster import Member, Roster
from sandpool.controllers.protection import policy_facts
from sandpool.kube.priority import Priority
from sandpool.loop.controller import Controller
from sandpool.loop.index import Index
from sandpool.model import labels
from sandpool.model.core import NetworkPolicy
from sandpool.model.metadata import Key
from sandpool.model.names import name_hash
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import GROUP, SandboxTemplate


def wake_after(
    old: Member | None, new: Member | None, ours: bool, roster: Roster, moment: float, *, published_empty: bool = False
) -> float | None:
    """Seconds until a change of a member should wake its pool; None: it need not. `ours`: its create is under way.
    `published_empty`: the status says that no member is ready, so a user may wait for the pool to be full."""
    if new is None:
        return 0.0
    if old is None:
        return None if ours else 0.0
    if (old.leaving, old.stale, old.marked) != (new.leaving, new.stale, new.marked):
        return 0.0
    if old.ready != new.ready:
        edge = roster.ready == (1 if new.ready else 0)
        full = published_empty and roster.ready == roster.staying
        return 0.0 if edge or full or roster.stale else moment
    return moment if (old.since, old.placed, old.message) != (new.since, new.placed, new.message) else None


class Triggers:
    """Connects the caches with the queue of the pool controller."""

    def __init__(self, loop: Controller[Key], caches: Caches, clock: Clock, options: Options) -> None:
        self.loop = loop
        self.caches = caches
        self.clock = clock
        self.options = options
        self.by_template: Index[SandboxWarmPool, Key] = caches.pools.index(lambda pool: (pool.template_key,))
        self.by_mark: Index[SandboxWarmPool, Mark] = caches.pools.index(mark_of)

    def connect(self, member_index: MemberIndex) -> None:
        caches, loop = self.caches, self.loop
        member_index.connect(self._member)
        caches.pools.subscribe(partial(self._status, member_index))
        loop.on(caches.pools, lambda pool: (pool.metadata.key,), reduce=_of_pool, priority=Priority.BACKGROUND)
        loop.on(caches.templates, self._of_template_name, reduce=_of_template, priority=Priority.BACKGROUND)
        loop.on(caches.policies, self._of_policy_template, reduce=policy_facts, priority=Priority.BACKGROUND)
        loop.on(caches.sandboxes, self._of_orphan, reduce=_orphaned, priority=Priority.BACKGROUND, cause="orphan")

    def _member(self, key: Key, memory: Memory, old: Member | None, new: Member | None) -> None:
        ours = new is not None and new.name in memory.unsettled
        published_empty = memory.published is not None and memory.published.ready_replicas == 0
        after = wake_after(old, new, ours, memory.roster, self.options.moment, published_empty=published_empty)
        if after is not None:
            self._wake(key, memory, "member", after)

    def _status(self, member_index: MemberIndex, old: SandboxWarmPool | None, new: SandboxWarmPool | None) -> None:
        """Our own writes wake nothing. A status that another writer wrote, such as a leader that has not noticed yet that it lost the lease,
        is corrected a moment later."""
        if old is None or new is None or old.status == new.status:
            return
        memory = member_index.known(new)
        if memory is not None and memory.published is not None and memory.published != new.status:
            self._wake(new.metadata.key, memory, "status", self.options.moment)

    def _wake(self, key: Key, memory: Memory, cause: str, after: float) -> None:
        if memory.unpublished is None:
            memory.unpublished = self.clock.monotonic()
        self.loop.wake(key, cause, Priority.BACKGROUND, after=after)

    def _of_template_name(self, template: SandboxTemplate) -> Collection[Key]:
        return _keys(self.by_template.get(template.metadata.key))

    def _of_policy_template(self, policy: NetworkPolicy) -> Collection[Key]:
        """The pools whose members need this policy: it names its template."""
        meta, owner = policy.metadata, policy.metadata.controller
        name = meta.annotations.get(labels.TEMPLATE_REF, "")
        if owner is not None and (owner.group, owner.kind) == (GROUP, SandboxTemplate.kind):
            name = owner.name
        return _keys(self.by_template.get(Key(meta.namespace, name))) if name else ()

    def _of_orphan(self, sandbox: Sandbox) -> Collection[Key]:
        return [key for mark in orphan_of(sandbox) for key in _keys(self.by_mark.get(mark))]


def mark_of(pool: SandboxWarmPool) -> tuple[Mark, ...]:
    return ((pool.metadata.namespace, name_hash(pool.metadata.name)),)


def _keys(pools: Iterable[SandboxWarmPool]) -> list[Key]:
    return [pool.metadata.key for pool in pools]


def _of_pool(pool: SandboxWarmPool) -> object:
    """What a pool is reconciled for. Our own status patches do not change it."""
    return pool.metadata.uid, pool.metadata.generation, pool.metadata.leaving


def _of_template(template: SandboxTemplate) -> object:
    return template.metadata.uid, template.metadata.generation, template.metadata.leaving


def _orphaned(sandbox: Sandbox) -> object:
    """None: it has a controlling owner, or no pool mark."""
    marks = orphan_of(sandbox)
    return (marks, sandbox.metadata.generation, sandbox.metadata.leaving) if marks else None
