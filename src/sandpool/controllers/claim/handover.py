"""How a claim gets its sandbox: transfer or creation, naming and binding, each settled whatever becomes of the call.

The naming writes annotations that a claim has before it is Ready. It is sent in parallel with the transfer or the creation, so only the binding waits for it.

A call is recorded before it is made and cleared when its outcome is known. So the next reconcile, after a timeout or a failed
read, reads the object before it does anything else. What to try next is decided in settle.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandpool.base.clock import Clock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Member, Woken
from sandpool.controllers.claim import settle
from sandpool.controllers.claim.annotations import naming_patch
from sandpool.controllers.claim.binding import binding, bound_status
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.status import is_shown
from sandpool.controllers.claim.transfer import Transfers, transfer
from sandpool.kube.errors import Conflict, NotFound
from sandpool.kube.priority import expedited
from sandpool.loop.errors import Terminal
from sandpool.loop.writes import Writes
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.metadata import Uid
from sandpool.model.patches import Patch
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.reconcile_history import note

T = TypeVar("T")

TRIES = 4
"""How often one write is rebuilt within a reconcile. A claim that loses this often is reconciled again later."""


class Handover:
    """Makes the writes by which a claim gets its sandbox."""

    def __init__(
        self,
        writes: Writes,
        observer: Observer,
        assigner: Assigner,
        memory: Memory,
        clock: Clock,
        options: Options,
        wake: Callable[[Woken], None],
        transfers: Transfers,
    ) -> None:
        self._writes = writes
        self._observer = observer
        self._assigner = assigner
        self._memory = memory
        self._clock = clock
        self._options = options
        self._wake = wake
        self._transfers = transfers

    async def take(self, claim: SandboxClaim, member: Member) -> Sandbox | None:
        """Transfers the member to the claim. None: the member is no longer available. Terminal: it cannot have what the claim asks for."""
        sandbox = self._observer.as_member(member)
        if sandbox is None:
            self._lost(claim, member.uid, f"sandbox {member.key.name} is not the pool's any more")
            return None
        for tried in range(TRIES):
            if not self._assigner.offered(claim.metadata.uid):
                return None  # stale, draining or leaving by now: the assigner will give another answer
            if tried and self._known(claim) is None:
                return None  # the naming, sent in parallel, has shown that the claim is gone
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
        """Settles a call whose outcome was unknown when the last reconcile ended."""
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

    async def create(self, claim: SandboxClaim, body: Sandbox, *, surely_its_own: bool) -> Sandbox | None:
        """Creates the claim's own sandbox. `surely_its_own`: no member can come first, so the claim is annotated with it in parallel. None: a sandbox
        of that name exists already; it is in the cache afterwards."""
        notes, meta = self._memory.of(claim), claim.metadata
        notes.creation, notes.taking = True, meta.name
        creation = self._writes.create(SANDBOXES, body, meta.namespace)
        made = self._beside_naming(claim, meta.name, creation) if surely_its_own else outcome_of(creation)
        step = settle.after_creation(await made)
        if isinstance(step, settle.Look):
            await self.settle_open(claim)
            return None
        notes.creation = False
        if isinstance(step, settle.Surface):
            raise step.error
        return step.sandbox

    async def name(self, claim: SandboxClaim, sandbox: str) -> None:
        """Makes sure that the claim's annotations name the sandbox. If the claim is gone, the binding will show that."""
        notes, meta = self._memory.of(claim), claim.metadata
        for _ in range(TRIES):
            if notes.naming:
                found = await outcome_of(self._writes.get(CLAIMS, meta.name, meta.namespace))
                if not isinstance(found, SandboxClaim | NotFound):
                    raise found
                notes.naming = False
            patch = self._naming(claim, sandbox)
            if patch is None:
                return
            match await self._named(claim, patch):
                case settle.Surface(error):
                    raise error
                case settle.Bound() | settle.ClaimGone():
                    return
        raise Conflict(f"claim {meta.key} could not be annotated in {TRIES} tries")

    async def bind(self, claim: SandboxClaim, sandbox: Sandbox) -> settle.Bound | settle.Surplus | settle.ClaimGone:
        """Binds the claim to this sandbox in its status, unless it is bound to another one or is gone."""
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
        self._transfers.announce(meta.key)
        call = self._writes.patch(SANDBOXES, meta.name, patch, meta.namespace)
        step = settle.after_transfer(await self._beside_naming(claim, meta.name, call), meta.name)
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
        self._memory.of(claim).published = published = bound_status(claim, sandbox, self._clock.now())
        patch = binding(claim, published, has_status=form)
        with expedited():  # before the transfers of other claims: a claim that has a sandbox should be Ready soon
            bound = await outcome_of(self._writes.patch_status(CLAIMS, meta.name, patch, meta.namespace))
        step = settle.after_binding(bound)
        if isinstance(step, settle.Look):
            found = await outcome_of(self._writes.get(CLAIMS, meta.name, meta.namespace))
            return settle.after_claim_look(found, claim, sandbox.metadata.name, had_status=form)
        return step

    def _naming(self, claim: SandboxClaim, sandbox: str) -> Patch | None:
        """The patch of the annotations that are still missing, from the cached claim; None if there is nothing to write."""
        known = self._known(claim)
        if not self._options.annotations or known is None:
            return None
        return naming_patch(known, sandbox, self._memory.of(claim))

    def _known(self, claim: SandboxClaim) -> SandboxClaim | None:
        """The claim as cached; None if it is gone, or another one has its name."""
        known = self._observer.caches.claims.get(claim.metadata.key)
        return known if known is not None and known.metadata.uid == claim.metadata.uid else None

    async def _named(
        self, claim: SandboxClaim, patch: Patch
    ) -> settle.Bound | settle.ClaimGone | settle.Look | settle.Surface:
        notes, meta = self._memory.of(claim), claim.metadata
        notes.naming = True
        step = settle.after_binding(await outcome_of(self._writes.patch(CLAIMS, meta.name, patch, meta.namespace)))
        notes.naming = isinstance(step, settle.Look)
        return step

    async def _beside_naming(self, claim: SandboxClaim, sandbox: str, call: Awaitable[T]) -> T | Exception:
        """The outcome of the call, made in parallel with the naming. The naming is awaited as well, so that it cannot overtake a later one; its outcome
        is settled before the binding."""
        patch = self._naming(claim, sandbox)
        if patch is None:
            return await outcome_of(call)
        async with asyncio.TaskGroup() as beside:
            beside.create_task(self._named(claim, patch))
            return await outcome_of(call)

    async def _look(self, sandbox: Sandbox) -> Sandbox | Exception:
        meta = sandbox.metadata
        return await outcome_of(self._writes.get(SANDBOXES, meta.name, meta.namespace))

    def _lost(self, claim: SandboxClaim, member: Uid, why: str) -> None:
        note(why)
        held = self._assigner.held_by(claim.metadata.uid)
        if held is not None and held.uid == member:
            self._wake(self._assigner.release(claim.metadata.uid, lost=True))


async def outcome_of(call: Awaitable[T]) -> T | Exception:
    """The result or the error of a call, as a value. Cancellation passes through: what was under way stays recorded as unsettled."""
    try:
        return await call
    except Exception as error:
        return error
