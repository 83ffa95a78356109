"""The members of every pool, kept up to date step by step from the cache of sandboxes. A pass never lists or copies them.

Whose a sandbox is follows from the uid of its controlling owner. A member that a claim took leaves the ledger in the same step
in which the cache learns of it. Staleness is judged when a member changes, and for all of a pool when its template does.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from sandpool.controllers.assigner.read import owning_pool
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.pool.member import Member, read_member
from sandpool.controllers.pool.memory import Judged, Memory
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.roster import Roster
from sandpool.loop.cache import Cache
from sandpool.model.metadata import Key, OwnerReference, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate

Changed = Callable[[Key, Memory, Member | None, Member | None], object]
"""Told of each step of a member, after the ledger itself has changed: the pool's key, its memory, before and after."""


class Ledger:
    def __init__(self, sandboxes: Cache[Sandbox], staleness: Staleness, options: Options) -> None:
        self._sandboxes = sandboxes
        self._staleness = staleness
        self._options = options
        self._memories: dict[Uid, Memory] = {}
        self._alive: dict[Key, Uid] = {}
        self._changed: Changed | None = None

    def connect(self, changed: Changed) -> None:
        self._changed = changed
        self._sandboxes.subscribe(self._step)

    def memory(self, pool: SandboxWarmPool) -> Memory:
        """What is remembered of a pool that is there. Another one of its name is forgotten."""
        meta = pool.metadata
        if self._alive.get(meta.key) != meta.uid:
            self.forget(meta.key)
            self._alive[meta.key] = meta.uid
        memory = self._of(meta.uid)
        memory.alive = True
        return memory

    def known(self, pool: SandboxWarmPool) -> Memory | None:
        """The same, if anything is remembered."""
        return self._memories.get(pool.metadata.uid)

    def forget(self, key: Key) -> None:
        """The pool is gone. Its members are counted until they are gone, too."""
        uid = self._alive.pop(key, None)
        memory = self._memories.pop(uid, None) if uid is not None else None
        if uid is not None and memory is not None and len(memory.roster):
            self._memories[uid] = Memory(memory.roster)

    def judge(self, pool: SandboxWarmPool, template: SandboxTemplate | None) -> Judged:
        """Makes sure that every member was judged by this template."""
        memory, name = self.memory(pool), pool.spec.sandbox_template_ref.name
        of = template.metadata if template is not None else None
        judged = (name, of.uid, of.generation) if of is not None else (name, Uid(""), 0)
        if memory.judged != judged:
            memory.judged = judged
            memory.roster.calm()
            for member in tuple(memory.roster):
                sandbox = self._sandboxes.get(Key(pool.metadata.namespace, member.name))
                stale = sandbox is not None and self._staleness.stale(sandbox)
                if stale != member.stale:
                    memory.roster.put(replace(member, stale=stale))
        return judged

    def __len__(self) -> int:
        """How many pools something is remembered of."""
        return len(self._memories)

    def _step(self, old: Sandbox | None, new: Sandbox | None) -> None:
        before = owning_pool(old) if old is not None else None
        after = owning_pool(new) if new is not None else None
        if old is not None and before is not None and (after is None or after.uid != before.uid):
            self._leave(before, old, deleted=new is None)
        if new is not None and after is not None:
            self._enter(after, new)

    def _enter(self, pool: OwnerReference, sandbox: Sandbox) -> None:
        memory = self._of(pool.uid)
        member = read_member(sandbox, pool.name, stale=self._staleness.stale(sandbox))
        old = memory.roster.put(member)
        if member.leaving and old is not None and not old.leaving:
            self._lost(memory, old, deleted=True)
        self._tell(pool, sandbox, memory, old, member)

    def _leave(self, pool: OwnerReference, sandbox: Sandbox, *, deleted: bool) -> None:
        memory = self._memories.get(pool.uid)
        member = memory.roster.drop(sandbox.metadata.uid) if memory is not None else None
        self._staleness.forget(sandbox.metadata.uid)
        if memory is None or member is None:
            return
        if not member.leaving:
            self._lost(memory, member, deleted=deleted)
        if not memory.alive and not len(memory.roster):
            del self._memories[pool.uid]
        self._tell(pool, sandbox, memory, member, None)

    def _lost(self, memory: Memory, member: Member, *, deleted: bool) -> None:
        """Taken or deleted by somebody else, unless the delete is our own."""
        if member.uid in memory.removing:
            return
        memory.losses += 1
        memory.doubted = memory.doubted or deleted
        memory.in_vain += deleted and not member.ready

    def _tell(
        self, pool: OwnerReference, sandbox: Sandbox, memory: Memory, old: Member | None, new: Member | None
    ) -> None:
        if self._changed is not None:
            self._changed(Key(sandbox.metadata.namespace, pool.name), memory, old, new)

    def _of(self, pool: Uid) -> Memory:
        memory = self._memories.get(pool)
        if memory is None:
            roster = Roster(self._options.readiness_grace, self._options.longest_grace)
            memory = self._memories[pool] = Memory(roster)
        return memory
