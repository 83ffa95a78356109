"""How old a claim is: what decides whose turn it is. Pure.

By when it was made, to the second; then by when a controller first saw it, if one has noted that (on one machine in the write that creates the claim);
then by revision, which on one machine, and in the order of a watch, is the order in which claims were made; then by uid, so that everybody who looks finds the same order.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sandpool.controllers.assigner.facts import Age, Claimant
from sandpool.model.claim import SandboxClaim
from sandpool.model.labels import CONTROLLER_FIRST_OBSERVED_AT
from sandpool.model.times import micro

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def age_of(claim: SandboxClaim, seen: datetime, *, created: datetime | None = None) -> Age:
    """`seen`: when this process first heard of it. `created`: counts instead of what the claim says."""
    meta = claim.metadata
    observed = meta.annotations.get(CONTROLLER_FIRST_OBSERVED_AT) or micro(seen)
    return created or meta.creation_timestamp or _LONG_AGO, observed, meta.revision, meta.uid


def noted(age: Age, claim: SandboxClaim) -> Age:
    """The age of a claim that was heard of before, with what another process may have noted on it since. Its revision stays that of then,
    which is nearer to when it was made."""
    observed = claim.metadata.annotations.get(CONTROLLER_FIRST_OBSERVED_AT)
    return (age[0], observed, *age[2:]) if observed else age


def claimant(claim: SandboxClaim, age: Age) -> Claimant:
    meta = claim.metadata
    return Claimant(meta.uid, meta.key, age)
