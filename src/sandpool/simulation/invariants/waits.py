"""That every wait ends: once faults are off, who waits is served, or is told why not, within so many writes of everybody.

The final account asks whether a claim has what it can have. This asks how it got there: a claim that is overtaken again and again, or started and
given up, may be served in the end by luck. Writes are counted rather than seconds, because a slow node makes nobody unfair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key, Uid
from sandpool.simulation.steps import Step

EACH, BESIDES = 30, 200
"""Writes for each claim that waits when the calm begins, and for all the rest that a storm left to do: twice what is needed at most."""


class Waits:
    """Begins when faults are off, with the claims that there are then."""

    def __init__(self, claims: Iterable[SandboxClaim]) -> None:
        self._waiting: dict[Uid, Key] = {
            claim.metadata.uid: claim.metadata.key for claim in claims if not _ended(claim)
        }
        self._most = BESIDES + EACH * len(self._waiting)
        self._steps = 0

    def step(self, step: Step) -> Iterator[str]:
        self._steps += 1
        claim = step.object
        if not isinstance(claim, SandboxClaim):
            return
        uid = claim.metadata.uid
        if uid not in self._waiting or (step.new is not None and not _ended(claim)):
            return
        del self._waiting[uid]
        if step.new is not None and not claim.metadata.leaving and self._steps > self._most:
            yield (
                f"wait: claim {claim.metadata.key} is served {self._steps} writes after the last fault; "
                f"{self._most} are enough for all that waited"
            )


def _ended(claim: SandboxClaim) -> bool:
    """Whether it has a sandbox, or needs none any more."""
    return claim.status.sandbox is not None or claim.metadata.leaving
