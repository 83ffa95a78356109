"""Whose turn it is: when a claim was made, then when it was first seen, then its revision, then its uid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sandpool.controllers.claim.memory import Memory, age_of, noted
from sandpool.loop.cache import Cache
from sandpool.model.claim import PoolRef, SandboxClaim, SandboxClaimSpec
from sandpool.model.kinds import CLAIMS
from sandpool.model.labels import CONTROLLER_FIRST_OBSERVED_AT
from sandpool.model.metadata import Metadata, Revision, Uid

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


def test_what_a_watch_missed_is_as_old_as_it_is() -> None:
    """A list is in the order of names: that the second one is older does not mean that a clock was set back."""
    memory, cache = Memory(lambda: NOW), Cache(CLAIMS)
    cache.subscribe(lambda _, new: memory.arrived(new) if new is not None else None)
    missed = a_claim("a", 3, 3), a_claim("b", 0, 1), a_claim("c", 0, 2)
    cache.replace(missed, Revision(3))
    assert [memory.of(claim).age for claim in missed] == [age_of(claim, NOW) for claim in missed]


def test_what_another_process_noted_counts_more_than_what_was_heard_here() -> None:
    first, observed = a_claim("a", 0, 1), "2025-12-31T00:00:00.000001Z"
    age = age_of(first, NOW)
    assert noted(age, a_claim("a", 0, 7)) == age, "that somebody has written to it makes it no younger"
    assert noted(age, a_claim("a", 0, 7, observed)) == age_of(a_claim("a", 0, 1, observed), NOW)
