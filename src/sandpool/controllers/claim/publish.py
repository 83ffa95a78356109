"""Writes a claim's status and annotations: only what differs, only on the very claim that was looked at."""

from __future__ import annotations

from sandpool.base.errors import SandpoolError
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.status import is_shown, same, status_patch
from sandpool.controllers.claim.view import bound_name
from sandpool.kube.errors import Conflict, Forbidden, Invalid, NotFound
from sandpool.loop.writes import Writes
from sandpool.model.claim import SandboxClaim, SandboxClaimStatus
from sandpool.model.kinds import CLAIMS
from sandpool.model.patches import Patch
from sandpool.telemetry.log import logger
from sandpool.telemetry.reconcile_history import note

log = logger(__name__)


class Publisher:
    def __init__(self, writes: Writes, memory: Memory) -> None:
        self._writes = writes
        self._memory = memory

    async def publish(
        self, claim: SandboxClaim, status: SandboxClaimStatus, *, pinned: bool = False
    ) -> SandboxClaim | None:
        """The claim as it is afterwards; None if it is no more. Conflict: it changed meanwhile, look again. A status that
        shows nothing may be there or not: the form that fits is found by trying."""
        # Also where we agree: an earlier write of ours, whose answer was lost, may still show up and say something else.
        self._memory.of(claim).told = status
        if same(claim.status, status):
            return claim
        note("; ".join(f"tell {one.type} {one.status} {one.reason}" for one in status.conditions))
        shown = is_shown(claim)
        for form in (shown,) if shown else (False, True):
            patch = status_patch(claim, status, has_status=form, pinned=pinned)
            try:
                return await self._writes.patch_status(CLAIMS, claim.metadata.name, patch, claim.metadata.namespace)
            except NotFound:
                self._memory.gone(claim)
                return None
            except Invalid as error:
                if error.causes:
                    raise
            found = await self.found(claim)
            if found is None:
                return None
            if (found.metadata.generation, bound_name(found), is_shown(found)) != (
                claim.metadata.generation,
                bound_name(claim),
                shown,
            ):
                break
        raise Conflict(f"claim {claim.metadata.key} changed while its status was written")

    async def annotate(self, claim: SandboxClaim, patch: Patch) -> bool:
        """Whether it is done, or of no more use. A failure is nobody's trouble: the claim works without."""
        try:
            await self._writes.patch(CLAIMS, claim.metadata.name, patch, claim.metadata.namespace)
        except (NotFound, Invalid, Forbidden) as error:
            log.debug("claim not annotated", error=f"{type(error).__name__}: {error}")
            return True  # the claim is no more, another one has its name, or nobody may: trying again does not help
        except (SandpoolError, TimeoutError) as error:
            log.debug("claim not annotated", error=f"{type(error).__name__}: {error}")
            return False
        return True

    async def found(self, claim: SandboxClaim) -> SandboxClaim | None:
        """The claim as the server has it now; None if it is no more, or another one has its name."""
        try:
            found = await self._writes.get(CLAIMS, claim.metadata.name, claim.metadata.namespace)
        except NotFound:
            self._memory.gone(claim)
            return None
        return found if found.metadata.uid == claim.metadata.uid else None
