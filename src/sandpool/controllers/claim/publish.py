"""Writes a claim's status and annotations: only what differs, only on the very claim that was observed. Also what a waiting claim's status says.

A wait is reported after a while and again from time to time: the claim's place in line, and when its turn is expected. When very many claims wait, reporting
all of them would take time away from serving them, so only so many are reported per second; `sandpool why` shows the place of each as of its last reconcile.
"""

from __future__ import annotations

import math

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
    """Writes the status and the annotations of claims."""

    def __init__(self, writes: Writes, memory: Memory) -> None:
        self._writes = writes
        self._memory = memory

    async def publish(
        self, claim: SandboxClaim, status: SandboxClaimStatus, *, pinned: bool = False
    ) -> SandboxClaim | None:
        """The claim as it is afterwards; None if it is gone. Conflict: it changed meanwhile, decide again. An empty status cannot be told from
        none here: both forms of the patch are tried."""
        # Also if nothing differs: an earlier write of ours, whose answer was lost, may still take effect and say something else.
        self._memory.of(claim).published = status
        if same(claim.status, status):
            return claim
        note("; ".join(f"publish {one.type} {one.status} {one.reason}" for one in status.conditions))
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
        """True if done, or if retrying is pointless. A failure does no harm: the claim works without annotations."""
        try:
            await self._writes.patch(CLAIMS, claim.metadata.name, patch, claim.metadata.namespace)
        except (NotFound, Invalid, Forbidden) as error:
            log.debug("claim not annotated", error=f"{type(error).__name__}: {error}")
            return True  # the claim is gone or replaced, or permission is missing: retrying does not help
        except (SandpoolError, TimeoutError) as error:
            log.debug("claim not annotated", error=f"{type(error).__name__}: {error}")
            return False
        return True

    async def found(self, claim: SandboxClaim) -> SandboxClaim | None:
        """The claim, read from the server; None if it is gone, or another one has its name."""
        try:
            found = await self._writes.get(CLAIMS, claim.metadata.name, claim.metadata.namespace)
        except NotFound:
            self._memory.gone(claim)
            return None
        return found if found.metadata.uid == claim.metadata.uid else None


def waiting_text(pool: str, place: int | None, expected: float | None, trouble: str = "") -> str:
    """The Ready message of a waiting claim. `place`: how many claims are served before it; None if it is not in a queue. `trouble`: why members of
    the pool do not start."""
    if trouble:
        return f"{waiting_text(pool, place, None)}. {trouble}"
    text = f"Waiting for a sandbox of pool {pool} to become ready"
    if place is None:
        return text
    first = "first in line" if place == 0 else f"{place} claims are before it" if place > 1 else "1 claim is before it"
    if expected is None:
        return f"{text}: {first}; when its turn comes cannot be said yet"
    return f"{text}: {first}; its turn is expected in about {max(1, math.ceil(expected))} s"


class TimeSlots:
    """Hands out time slots at a fixed rate."""

    def __init__(self, rate: float) -> None:
        self._step = 1 / rate
        self._next = float("-inf")

    def take(self, now: float) -> float:
        """The next free time slot."""
        self._next = max(self._next + self._step, now)
        return self._next
