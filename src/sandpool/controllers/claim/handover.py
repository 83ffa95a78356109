"""How a sandbox becomes a claim's: the transfer, the creation and the binding, each settled whatever becomes of the call.

A call is noted before it is made and struck out when its end is known, so that whoever comes next, after a timeout or a failed
look, looks before doing anything else. Nothing here decides what to try next: see settle.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Member, Woken
from sandpool.controllers.claim import settle
from sandpool.controllers.claim.binding import binding, bound_status
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.status import is_shown
from sandpool.controllers.claim.transfer import transfer
from sandpool.kube.errors import Conflict
from sandpool.kube.lanes import finishing
from sandpool.loop.clock import Clock
from sandpool.loop.errors import Terminal
from sandpool.loop.writes import Writes
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.metadata import Uid
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.story import note

T = TypeVar("T")

TRIES = 4
"""How often one write is built anew within a reconcile. Whoever loses that often comes back later."""


class Handover:
    def __init__(
        self,
        writes: Writes,
        observer: Observer,
        assigner: Assigner,
        memory: Memory,
        clock: Clock,
        wake: Callable[[Woken], None],
    ) -> None:
        self._writes = writes
        self._observer = observer
        self._assigner = assigner
        self._memory = memory
        self._clock = clock
        self._wake = wake

    async def take(self, claim: SandboxClaim, member: Member) -> Sandbox | None:
        """Makes the member the claim's own. None: it cannot be had any more. Terminal: not with what the claim asks for."""
        sandbox = self._observer.as_member(member)
        if sandbox is None:
            self._lost(claim, member.uid, f"sandbox {member.key.name} is not the pool's any more")
            return None
        for _ in range(TRIES):
            if not self._assigner.offered(claim.metadata.uid):
                return None  # stale, drained or going by now: whoever asks again is told something else
            step = await self._transfer(claim, sandbox)
            match step:
                case settle.Own(taken):
                    self._assigner.commit(claim.metadata.uid)
                    return taken
                case settle.Next(why):
                    self._lost(claim, member.uid, why)
                    return None
                case settle.Again(found):
                    sandbox = found
                case settle.Surface(error):
                    raise error
        raise Conflict(f"sandbox {member.key.name} could not be taken in {TRIES} tries")

    async def settle_open(self, claim: SandboxClaim) -> None:
        """Finds out what became of a call whose end was not known when the last reconcile ended."""
        notes = self._memory.of(claim)
        if (before := notes.transfer) is not None:
            match settle.after_look(await self._look(before), before, claim.metadata.uid):
                case settle.Surface(error):
                    raise error
                case settle.Own():
                    self._assigner.commit(claim.metadata.uid)
                case settle.Next(why):
                    self._lost(claim, before.metadata.uid, why)
            notes.transfer = None
        if notes.creation:
            found = await outcome_of(self._writes.get(SANDBOXES, claim.metadata.name, claim.metadata.namespace))
            match settle.after_creation_look(found, claim):
                case settle.Surface(error):
                    raise error
            notes.creation = False

    async def create(self, claim: SandboxClaim, body: Sandbox) -> Sandbox | None:
        """Creates the claim's own sandbox. None: one of its name is there already, as the cache knows afterwards."""
        notes, meta = self._memory.of(claim), claim.metadata
        notes.creation, notes.taking = True, meta.name
        step = settle.after_creation(await outcome_of(self._writes.create(SANDBOXES, body, meta.namespace)))
        if isinstance(step, settle.Look):
            await self.settle_open(claim)
            return None
        notes.creation = False
        if isinstance(step, settle.Surface):
            raise step.error
        return step.sandbox

    async def bind(self, claim: SandboxClaim, sandbox: Sandbox) -> settle.Bound | settle.Surplus | settle.ClaimGone:
        """Publishes that the claim has this sandbox, unless it has another one or is no more."""
        form = is_shown(claim)
        for _ in range(TRIES):
            step = await self._binding(claim, sandbox, form)
            match step:
                case settle.Rebind(found, has_status):
                    claim, form = found, has_status
                case settle.Surface(error):
                    raise error
                case _:
                    return step
        raise Conflict(f"claim {claim.metadata.key} could not be bound in {TRIES} tries")

    async def _transfer(
        self, claim: SandboxClaim, sandbox: Sandbox
    ) -> settle.Own | settle.Next | settle.Again | settle.Surface:
        notes, meta = self._memory.of(claim), sandbox.metadata
        try:
            patch = transfer(sandbox, claim, self._observer.origin(sandbox))
        except Terminal:
            self._wake(self._assigner.release(claim.metadata.uid))
            raise
        notes.transfer, notes.taking = sandbox, meta.name
        outcome = await outcome_of(self._writes.patch(SANDBOXES, meta.name, patch, meta.namespace))
        step = settle.after_transfer(outcome, meta.name)
        if isinstance(step, settle.Look):
            looked = settle.after_look(await self._look(sandbox), sandbox, claim.metadata.uid)
            if not isinstance(looked, settle.Surface):
                notes.transfer = None
            return looked
        notes.transfer = None
        return step

    async def _binding(
        self, claim: SandboxClaim, sandbox: Sandbox, form: bool
    ) -> settle.Bound | settle.Surplus | settle.ClaimGone | settle.Rebind | settle.Surface:
        meta = claim.metadata
        self._memory.of(claim).told = told = bound_status(claim, sandbox, self._clock.now())
        patch = binding(claim, told, has_status=form)
        with finishing():  # before the transfers of others: who has a sandbox should know it
            bound = await outcome_of(self._writes.patch_status(CLAIMS, meta.name, patch, meta.namespace))
        step = settle.after_binding(bound)
        if isinstance(step, settle.Look):
            found = await outcome_of(self._writes.get(CLAIMS, meta.name, meta.namespace))
            return settle.after_claim_look(found, claim, sandbox.metadata.name, had_status=form)
        return step

    async def _look(self, sandbox: Sandbox) -> Sandbox | Exception:
        meta = sandbox.metadata
        return await outcome_of(self._writes.get(SANDBOXES, meta.name, meta.namespace))

    def _lost(self, claim: SandboxClaim, member: Uid, why: str) -> None:
        note(why)
        held = self._assigner.held_by(claim.metadata.uid)
        if held is not None and held.uid == member:
            self._wake(self._assigner.release(claim.metadata.uid, lost=True))


async def outcome_of(call: Awaitable[T]) -> T | Exception:
    """An end as a value. Cancellation is no end: it passes through, and what was under way stays noted as open."""
    try:
        return await call
    except Exception as error:
        return error
