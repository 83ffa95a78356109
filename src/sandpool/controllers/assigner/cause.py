"""Why a claim starts a sandbox of its own instead of taking a pool's member: the values of a label. Pure."""

from __future__ import annotations

from enum import StrEnum

from sandpool.controllers.assigner.facts import Why
from sandpool.model.claim import SandboxClaim


class Cause(StrEnum):
    ENV = "env"
    VOLUME_CLAIM_TEMPLATES = "volume_claim_templates"
    NO_POOL = "no_pool"
    POOL_OF_ZERO = "pool_of_zero"
    NOTHING_WARMING = "nothing_warming"
    SOONER = "sooner"
    TOO_LATE = "too_late"
    MEMBER_UNFIT = "member_unfit"


_BY_WHY = {
    Why.NO_POOL: Cause.NO_POOL,
    Why.NO_MEMBERS: Cause.POOL_OF_ZERO,
    Why.NONE_WARMING: Cause.NOTHING_WARMING,
    Why.SOONER: Cause.SOONER,
    Why.TOO_LATE: Cause.TOO_LATE,
}


def cause_of(claim: SandboxClaim, why: Why | None) -> Cause:
    """`why`: what the assigner said. None: it was not asked, or what it gave cannot have what the claim asks for."""
    if why is not None:
        return _BY_WHY[why]
    if claim.spec.env:
        return Cause.ENV
    return Cause.VOLUME_CLAIM_TEMPLATES if claim.spec.customised else Cause.MEMBER_UNFIT
