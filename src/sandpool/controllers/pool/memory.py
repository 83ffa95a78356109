"""What the pool controller remembers of each pool between two reconciles, its members among it. Nothing is lost if the process restarts.

`MemberIndex` follows the cache of sandboxes event by event, so a reconcile never lists or copies members. The uid of the controlling owner says
which pool a sandbox belongs to; a member that a claim takes leaves the index in the same event that changes the cache. Staleness is judged when a
member changes, and for all members of a pool when its template changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from sandpool.controllers.assigner.facts import owning_pool
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.pace import Hold, Pause, Tokens
from sandpool.controllers.pool.roster import Member, Roster, read_member
from sandpool.loop.cache import Cache
from sandpool.model.metadata import Key, OwnerReference, Uid
from sandpool.model.pool import SandboxWarmPool, SandboxWarmPoolStatus
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate

Judged = tuple[str, Uid, int]
"""The template by which staleness was judged: its name, uid and generation."""


@dataclass(slots=True)
class Memory:
    """What is remembered of one pool."""

    roster: Roster
    alive: bool = False  # the pool has been seen and is not gone
    judged: Judged | None = None
    unsettled: dict[str, None] = field(default_factory=dict)  # names of creates that may have happened
    names: list[str] = field(
        default_factory=list
    )  # names to use first: if a lost create takes effect late, it meets the new one (AlreadyExists)
    removing: dict[Uid, None] = field(default_factory=dict)  # deletes of ours that are under way
    losses: int = 0  # members that others took or deleted, ever
    lost_unready: int = 0  # of these, the ones that others deleted before they were ever ready
    doubted: bool = False  # others deleted members: the pool itself may be gone, so ask the server before creating
    pause: Pause | None = None
    hold: Hold | None = None
    tokens: Tokens | None = None
    careful: bool = False  # the last creates failed: the next batch starts with one
    refused: tuple[Judged, str] | None = None  # why the server rejects members, for this template
    refused_until: float = 0.0  # until when that counts, by the monotonic clock
    repaired: dict[Uid, datetime] = field(
        default_factory=dict
    )  # members whose labels or owner were restored: not repaired again until then
    failed: str = ""  # why the last creates failed; empty once some succeed
    given_up: str = ""  # the last member that was given up, and why
    published: SandboxWarmPoolStatus | None = None  # the status that we wrote last, or agreed with
    unpublished: float | None = None  # since when a status difference waits, by the monotonic clock
    written: float | None = None  # when the status was last written

    def expire_refusal(self, now: float) -> None:
        """Forgets an old refusal: an admission policy may have changed since."""
        if self.refused is not None and now >= self.refused_until:
            self.refused = None


Changed = Callable[[Key, Memory, Member | None, Member | None], object]
"""Called with each change of a member, after the index has changed: the pool's key, its memory, the member before and after."""


class MemberIndex:
    """The roster and the memory of every pool."""

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
        """The memory of an existing pool. That of an earlier pool of the same name is dropped."""
        meta = pool.metadata
        if self._alive.get(meta.key) != meta.uid:
            self.forget(meta.key)
            self._alive[meta.key] = meta.uid
        memory = self._of(meta.uid)
        memory.alive = True
        return memory

    def known(self, pool: SandboxWarmPool) -> Memory | None:
        """The memory of the pool, if there is any."""
        return self._memories.get(pool.metadata.uid)

    def forget(self, key: Key) -> None:
        """The pool is gone. Its members stay indexed until they are gone, too."""
        uid = self._alive.pop(key, None)
        memory = self._memories.pop(uid, None) if uid is not None else None
        if uid is not None and memory is not None and len(memory.roster):
            self._memories[uid] = Memory(memory.roster)

    def judge(self, pool: SandboxWarmPool, template: SandboxTemplate | None) -> Judged:
        """Makes sure that the staleness of every member was judged by this template."""
        memory, name = self.memory(pool), pool.spec.sandbox_template_ref.name
        of = template.metadata if template is not None else None
        judged = (name, of.uid, of.generation) if of is not None else (name, Uid(""), 0)
        if memory.judged != judged:
            memory.judged = judged
            memory.roster.reset_patience()
            for member in tuple(memory.roster):
                sandbox = self._sandboxes.get(Key(pool.metadata.namespace, member.name))
                stale = sandbox is not None and self._staleness.stale(sandbox)
                if stale != member.stale:
                    memory.roster.put(replace(member, stale=stale))
        return judged

    def __len__(self) -> int:
        """How many pools are remembered."""
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
        self._notify(pool, sandbox, memory, old, member)

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
        self._notify(pool, sandbox, memory, member, None)

    def _lost(self, memory: Memory, member: Member, *, deleted: bool) -> None:
        """Counts a member that was taken or deleted by others; our own deletes do not count."""
        if member.uid in memory.removing:
            return
        memory.losses += 1
        memory.doubted = memory.doubted or deleted
        memory.lost_unready += deleted and not member.ready

    def _notify(
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
