"""Whose turn it is: when a claim was made, then when it was first seen, then its revision, then its uid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sandpool.controllers.claim.age import age_of
from sandpool.controllers.claim.memory import Memory
from sandpool.model.claim import PoolRef, SandboxClaim, SandboxClaimSpec
from sandpool.model.labels import CONTROLLER_FIRST_OBSERVED_AT
from sandpool.model.metadata import Metadata, Uid

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_claim(uid: str, created: int = 0, revision: int = 1, observed: str = "") -> SandboxClaim:
    notes = {CONTROLLER_FIRST_OBSERVED_AT: observed} if observed else {}
    moment = NOW + timedelta(seconds=created)
    meta = Metadata(
        name=uid, uid=Uid(uid), creation_timestamp=moment, resource_version=str(revision), annotations=notes
    )
    return SandboxClaim(metadata=meta, spec=SandboxClaimSpec(warm_pool_ref=PoolRef(name="p")))


def order(*claims: SandboxClaim) -> list[str]:
    return [claim.metadata.uid for claim in sorted(claims, key=lambda claim: age_of(claim, NOW))]


def test_the_order() -> None:
    assert order(a_claim("a", 2), a_claim("b", 1), a_claim("c", 0)) == ["c", "b", "a"]
    early, late = "2025-12-31T00:00:00.000001Z", "2025-12-31T00:00:00.000002Z"
    assert order(a_claim("a", 0, 1, late), a_claim("b", 0, 2, early)) == ["b", "a"]
    assert order(a_claim("a", 0, 3), a_claim("b", 0, 2)) == ["b", "a"]
    assert order(a_claim("b"), a_claim("a")) == ["a", "b"]


def test_a_clock_that_is_set_back_lets_nobody_overtake() -> None:
    memory = Memory(lambda: NOW)
    first, second = a_claim("first", 100, 1), a_claim("second", -100, 2)
    ages = [memory.arrived(claim).age for claim in (first, second)]
    assert ages == sorted(ages)
