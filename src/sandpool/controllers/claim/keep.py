"""Keeps a claim that has its sandbox: forwards what the sandbox says, puts right what is missing, deletes what is surplus."""

from __future__ import annotations

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.controllers.claim.annotations import annotations_patch
from sandpool.controllers.claim.expire import delete_sandboxes
from sandpool.controllers.claim.handover import Handover
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.publish import Publisher
from sandpool.controllers.claim.status import as_of_before, forwarded, same
from sandpool.controllers.claim.upkeep import upkeep
from sandpool.controllers.claim.view import ClaimView, bound_name
from sandpool.controllers.claim.waiting import Slots
from sandpool.kube.errors import Conflict, NotFound, TooManyRequests
from sandpool.loop.errors import Terminal
from sandpool.loop.outcome import Done
from sandpool.loop.writes import Writes
from sandpool.model.claim import SandboxClaim, SandboxClaimStatus
from sandpool.model.conditions import is_true
from sandpool.model.expiry import claim_end
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import CLAIM_FIRST_READY_AT
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox

Trouble = tuple[Reason, str]
IN_VAIN = 20.0
"""Sandboxes a second that were started in vain and are removed: that, too, is work that others wait for."""


class Keeper:
    def __init__(
        self,
        writes: Writes,
        observer: Observer,
        memory: Memory,
        handover: Handover,
        publisher: Publisher,
        clock: Clock,
        options: Options,
    ) -> None:
        self._writes = writes
        self._observer = observer
        self._memory = memory
        self._handover = handover
        self._publisher = publisher
        self._clock = clock
        self._options = options
        self._in_vain = Slots(IN_VAIN)

    async def keep(self, view: ClaimView, seen: Sandbox) -> Done | None:
        self._memory.of(view.claim).waits_since = None
        sandbox = await self._confirmed(view.claim, seen)
        if sandbox is None:
            return Done()  # the watch will say so
        trouble, failure = await self._put_right(view.claim, sandbox)
        status = forwarded(view.claim, sandbox, self._clock.now(), trouble)
        if failure is not None:
            status = as_of_before(status, view.claim)
        becomes_ready = is_true(status.conditions, Type.READY) and not is_true(view.claim.status.conditions, Type.READY)
        if becomes_ready:  # whoever looks for the annotations looks for them when the claim is Ready
            await self._handover.name(view.claim, sandbox.metadata.name)
        first = becomes_ready and self._first(view.claim)
        told, annotated = await self._tell(view.claim, sandbox, status, first=first)
        if failure is not None:
            raise failure
        if told is None:
            return Done()
        if first:
            return Done(afterwards=True)
        again = None if annotated else self._options.annotate_again
        if view.surplus and (pause := self._pause(view.claim)) > 0:
            again = pause if again is None else min(again, pause)
        elif view.surplus:
            await self._delete_surplus(view)
        return Done(again_at=claim_end(told), again_after=again)

    def _pause(self, claim: SandboxClaim) -> float:
        """Seconds until what the claim started in vain may be removed. It keeps its turn until that was used."""
        notes, now = self._memory.of(claim), self._clock.monotonic()
        notes.tidy_at = notes.tidy_at or self._in_vain.take(now)
        if notes.tidy_at > now:
            return notes.tidy_at - now
        notes.tidy_at = None
        return 0.0

    async def _confirmed(self, claim: SandboxClaim, sandbox: Sandbox) -> Sandbox | None:
        """Somebody else has published that the claim is ready, and we see that it is not: one of us is behind, and only the
        server knows who. None: the sandbox is gone."""
        told = self._memory.of(claim).told
        ours = told is not None and same(told, claim.status)
        says, is_so = (is_true(one.status.conditions, Type.READY) for one in (claim, sandbox))
        if ours or is_so or not says:
            return sandbox
        meta = sandbox.metadata
        try:
            found = await self._writes.get(SANDBOXES, meta.name, meta.namespace)
        except NotFound:
            return None
        return found if found.metadata.uid == meta.uid else None

    async def _put_right(self, claim: SandboxClaim, sandbox: Sandbox) -> tuple[Trouble | None, SandpoolError | None]:
        """What stands in the way, and what is to be tried again. Neither takes away that the claim is served."""
        if sandbox.metadata.leaving:
            return None, None
        try:
            patch = upkeep(claim, sandbox, self._observer.origin(sandbox), self._options.label_domains)
            if patch is not None:
                await self._writes.patch(SANDBOXES, sandbox.metadata.name, patch, sandbox.metadata.namespace)
        except Terminal as refusal:
            return (Reason.CONFIGURATION_TROUBLE, refusal.message), None
        except NotFound:
            return None, None  # the watch will say so
        except SandpoolError as error:
            if isinstance(error, Conflict | TooManyRequests):
                return None, error
            text = f"could not bring the metadata of sandbox {sandbox.metadata.name} up to date: {error}"
            return (Reason.CONTROLLER_TROUBLE, text), error
        return None, None

    def _first(self, claim: SandboxClaim) -> bool:
        """Notes when the claim became ready. Whether that is to be written, because it was not before."""
        notes = self._memory.of(claim)
        notes.first_ready = notes.first_ready or self._clock.now()
        return self._options.annotations and CLAIM_FIRST_READY_AT not in claim.metadata.annotations

    async def _tell(
        self, claim: SandboxClaim, sandbox: Sandbox, status: SandboxClaimStatus, *, first: bool
    ) -> tuple[SandboxClaim | None, bool]:
        """The claim as it is afterwards, and whether its annotations say what they should. When it was `first` ready is written
        afterwards, when nobody waits."""
        told = await self._publisher.publish(claim, status)
        if told is None or first or not self._options.annotations or not is_true(status.conditions, Type.READY):
            return told, True
        patch = annotations_patch(told, sandbox.metadata.name, self._memory.of(claim), self._clock.now())
        return told, patch is None or await self._publisher.annotate(claim, patch)

    async def _delete_surplus(self, view: ClaimView) -> None:
        """Only while the server, too, says that the claim has the other one."""
        found = await self._publisher.found(view.claim)
        if found is not None and bound_name(found) == view.bound_name:
            await delete_sandboxes(self._writes, view.surplus)
