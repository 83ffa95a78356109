"""How long claims wait, as a scraper sees it."""

from __future__ import annotations

import msgspec
import pytest

from sandpool.model import labels
from sandpool.model.claim import PoolRef, SandboxClaim, SandboxClaimSpec
from sandpool.model.metadata import Metadata, Uid
from support.simulated.measured_world import World

OURS = "sandpool_claim_ready_seconds"
CONTROLLER = "agent_sandbox_claim_controller_startup_latency_ms"
WEBHOOK = "agent_sandbox_claim_startup_latency_ms"
CLIENT = "agent_sandbox_client_claim_startup_latency_ms"


def test_a_warm_claim_is_timed_from_sight_to_ready() -> None:
    world = World()
    world.pool()
    claim = world.claim()
    world.clock.advance(0.0035)
    world.handed(claim)
    bound = world.bound(claim, "s")
    here = {"namespace": "default", "pool": "p", "launch_type": "warm"}
    assert world.sample(f"{OURS}_count", **here) == 1
    assert world.sample(f"{OURS}_sum", **here) == pytest.approx(0.0035)
    assert [world.sample(f"{OURS}_bucket", le=le, **here) for le in ("0.003", "0.004")] == [0, 1], "it resolves 1 ms"
    assert world.sample(f"{CONTROLLER}_sum", launch_type="warm", sandbox_template="t") == pytest.approx(3.5)
    assert world.sample(f"{OURS}_count", **here | {"launch_type": "cold"}) == 0, "declared before it happens"
    world.bound(world.bound(bound, "s", ready=False), "s")
    assert world.sample(f"{OURS}_count", **here) == 1, "once, however often it flaps"
    assert world.measures.timed == 0


def test_a_cold_claim_and_one_without_a_sandbox_are_told_apart() -> None:
    world = World()
    world.pool()
    cold, lost = world.claim("cold"), world.claim("lost")
    world.handed(cold, "cold", launch="cold")
    world.bound(cold, "cold")
    world.bound(lost, "nowhere")
    assert world.sample(f"{CONTROLLER}_count", launch_type="cold", sandbox_template="t") == 1
    assert world.sample(f"{CONTROLLER}_count", launch_type="unknown", sandbox_template="t") == 1


def test_claims_from_before_are_not_timed() -> None:
    world = World(filled=False)
    world.pool()
    old = world.claim("old")
    world.fill()
    world.clock.advance(5)
    world.bound(old, "s")
    ready_before = world.claim("again", annotations={labels.CLAIM_FIRST_READY_AT: "2026-01-01T00:00:00Z"})
    world.bound(ready_before, "s")
    assert sum(float(line.split()[-1]) for line in world.text(f"{OURS}_count")) == 0
    assert world.measures.timed == 0


def test_what_subscribing_shows_is_from_before_too() -> None:
    world = World()
    claim = world.claim()
    late = type(world.measures)(
        world.claims, world.sandboxes, world.pools, world.assigner, world.clock, type(world.metrics)()
    )
    assert late.timed == 0
    world.bound(claim, "s")


def test_a_claim_that_ends_early_is_forgotten() -> None:
    world = World()
    claim = world.claim()
    assert world.measures.timed == 1
    world.drop(world.claims, claim)
    assert world.measures.timed == 0


def test_a_claim_of_the_same_name_is_another_claim() -> None:
    world = World()
    world.pool()
    first = world.claim()
    world.clock.advance(9)
    renewed = msgspec.structs.replace(first.metadata, uid=Uid("other-uid"))
    second = world.put(world.claims, msgspec.structs.replace(first, metadata=renewed))
    world.clock.advance(1)
    world.bound(second, "s")
    assert world.sample(f"{OURS}_sum", namespace="default", pool="p", launch_type="unknown") == 1
    assert world.measures.timed == 0


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2025-12-31T23:59:58.5Z", 3500.0),
        ("2026-01-01T00:00:00.000000001Z", 2000.0),
        ("2026-01-01T00:00:03Z", None),  # the future
        ("2025-12-31T20:00:00Z", None),  # hours before the claim existed
        ("yesterday", None),
        ("", None),
    ],
)
def test_starts_that_others_wrote_down(written: str, expected: float | None) -> None:
    world = World()
    world.pool()
    notes = {labels.CLIENT_FIRST_REQUESTED_AT: written, labels.WEBHOOK_FIRST_OBSERVED_AT: written}
    claim = world.claim(annotations=notes)
    world.clock.advance(2)
    world.bound(claim, "s")
    here = {"launch_type": "unknown", "sandbox_template": "t"}
    assert world.sample(f"{CLIENT}_sum", **here) == expected
    headline = 2000.0 if not written else expected  # nobody wrote it down: from when it was seen
    assert world.sample(f"{WEBHOOK}_sum", **here) == headline
    assert world.sample(f"{CONTROLLER}_sum", **here) == 2000.0, "never depends on an annotation"


def test_the_headline_is_not_empty_without_a_webhook() -> None:
    world = World()
    world.pool()
    claim = world.claim()
    world.clock.advance(0.25)
    world.bound(claim, "s")
    assert world.sample(f"{WEBHOOK}_sum", launch_type="unknown", sandbox_template="t") == 250


def test_only_the_leader_counts() -> None:
    world = World()
    world.pool()
    first, second = world.claim("first"), world.claim("second")
    world.leads = False
    world.handed(first)
    world.bound(first, "s")
    assert world.text("sandpool_pool_") == []
    assert world.text("agent_sandboxes") == []
    world.leads = True
    world.clock.advance(1)
    world.bound(second, "s")
    counts = [line.split()[-1] for line in world.text(f"{OURS}_count") if 'launch_type="warm"' in line]
    assert counts == ["1.0"], "what began before it led is timed, what ended before is not"
    assert world.sample("sandpool_pool_hits_total", namespace="default", pool="p") == 0


def test_a_pool_that_comes_back_is_counted_where_it_is_seen() -> None:
    """Its series went with it: one that was still remembered would count unseen."""
    world = World()
    for turn in ("first", "second"):
        pool = world.pool(uid=turn)
        claim = world.claim(turn)
        world.handed(claim, f"{turn}-s")
        bound = world.bound(claim, f"{turn}-s")
        here = {"namespace": "default", "pool": "p", "launch_type": "warm"}
        assert world.sample(f"{OURS}_count", **here) == 1
        assert world.sample(f"{CONTROLLER}_count", launch_type="warm", sandbox_template="t") == 1
        world.drop(world.claims, bound)
        world.drop(world.pools, pool)


@pytest.mark.parametrize("heard", [1, 2], ids=["ready", "created, then ready"])
def test_a_claim_that_is_served_before_it_is_heard_of_counts_from_there_and_once(heard: int) -> None:
    world = World()
    world.pool()
    here = {"namespace": "default", "pool": "p", "launch_type": "warm"}
    meta = Metadata(name="c", namespace="default", uid=Uid("c-uid"), creation_timestamp=world.clock.now())
    claim = SandboxClaim(metadata=meta, spec=SandboxClaimSpec(warm_pool_ref=PoolRef(name="p")))
    world.measures.times.begin(claim)
    assert world.measures.timed == 1
    world.clock.advance(0.25)
    if heard == 2:
        world.put(world.claims, claim)
    world.handed(claim)
    ready = world.bound(claim, "s")
    assert world.sample(f"{OURS}_sum", **here) == 0.25
    assert world.measures.timed == 0
    world.bound(world.bound(ready, "s", ready=False), "s")
    assert world.sample(f"{OURS}_count", **here) == 1
