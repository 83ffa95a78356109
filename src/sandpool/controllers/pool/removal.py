"""Deletes members, without ever deleting one that a claim has just taken.

The assigner stops offering a member before its delete is sent; one that a claim holds is left alone. The delete carries the uid
and the revision that the decision was made on. What a refusal or a lost answer means is settled by one consistent read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandpool.base.errors import SandpoolError
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Woken
from sandpool.controllers.pool.memory import Memory
from sandpool.controllers.pool.plan import Outcome, Removal, Why, uncertain
from sandpool.controllers.pool.view import Orphan
from sandpool.kube.api import Preconditions
from sandpool.kube.errors import Conflict, NotFound
from sandpool.loop.cache import Cache
from sandpool.loop.writes import Writes
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key, Metadata, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.reconcile_history import note


@dataclass(frozen=True, slots=True)
class Remover:
    """Deletes members."""

    writes: Writes
    sandboxes: Cache[Sandbox]
    assigner: Assigner
    wake_claims: Callable[[Woken], object]

    async def remove(self, pool: SandboxWarmPool, memory: Memory, removal: Removal, outcome: Outcome) -> bool:
        member = removal.member
        found = self.sandboxes.get(Key(pool.metadata.namespace, member.name))
        if found is None or found.metadata.uid != member.uid or not _kept_by(found.metadata, pool.metadata.uid):
            return True  # gone, leaving or taken: that event has woken the pool
        if found.metadata.revision != member.revision:
            outcome.again = True  # it changed since the decision
            return True
        woken = self.assigner.withdraw(member.uid)
        if woken is None:
            outcome.reserved += 1
            return True
        self._wake(woken)
        note(removal)
        if removal.why is Why.STUCK:
            memory.roster.give_up(member)
            memory.given_up = f"Sandbox {member.name} did not become ready and was replaced: {member.message}"
        return await self._delete_withdrawn(pool, memory, found, outcome)

    async def discard(self, pool: SandboxWarmPool, orphan: Orphan, outcome: Outcome) -> bool:
        """Deletes an orphan that has the pool's label but does not match its template."""
        note(f"delete {orphan.name}: nobody's, and not of this template")
        key = Key(pool.metadata.namespace, orphan.name)
        errors = len(outcome.errors)
        await self._delete(key, Preconditions(orphan.uid, orphan.revision), None, outcome)
        return len(outcome.errors) == errors

    async def _delete_withdrawn(self, pool: SandboxWarmPool, memory: Memory, found: Sandbox, outcome: Outcome) -> bool:
        meta, ended = found.metadata, False
        memory.removing[meta.uid] = None
        try:
            preconditions = Preconditions(meta.uid, meta.revision)
            ended = await self._delete(meta.key, preconditions, pool.metadata.uid, outcome)
        finally:
            memory.removing.pop(meta.uid, None)
            if not ended:  # also when cancelled
                self._wake(self.assigner.restore(meta.uid))
        return ended

    async def _delete(self, key: Key, preconditions: Preconditions, owner: Uid | None, outcome: Outcome) -> bool:
        """Whether the object is gone, being deleted, or has another owner."""
        try:
            await self.writes.delete(SANDBOXES, key.name, key.namespace, preconditions=preconditions)
            return True
        except NotFound:
            return True
        except SandpoolError as error:
            if (isinstance(error, Conflict) or uncertain(error)) and await self._ended(
                key, preconditions.uid, owner, outcome
            ):
                return True
            outcome.errors.append(error)  # a Conflict is decided again at once
            return False

    async def _ended(self, key: Key, uid: Uid | None, owner: Uid | None, outcome: Outcome) -> bool:
        """Asks the server whether it is gone, being deleted, or has another owner."""
        try:
            meta = (await self.writes.get(SANDBOXES, key.name, key.namespace)).metadata
        except NotFound:
            return True
        except SandpoolError as error:
            outcome.errors.append(error)
            return False
        return meta.uid != uid or not _kept_by(meta, owner)

    def _wake(self, woken: Woken) -> None:
        if woken:
            self.wake_claims(woken)


def _kept_by(meta: Metadata, owner: Uid | None) -> bool:
    controller = meta.controller
    return not meta.leaving and (controller.uid if controller is not None else None) == owner
