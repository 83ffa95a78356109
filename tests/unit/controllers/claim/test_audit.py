"""The audit finds what is wrong in memory, puts it right and counts it; where nothing is wrong it does nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from conformance.bodies import pool as pool_body
from conformance.bodies import template as template_body
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Member
from sandpool.controllers.assigner.feed import Feed
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.claim.audit import KINDS, Audit
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Caches, Observer
from sandpool.loop.cache import Cache
from sandpool.model.codec import convert
from sandpool.model.kinds import CLAIMS, NETWORK_POLICIES, NODES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key, Uid
from sandpool.telemetry.metrics import Metrics
from support.simulated.claim_parts import a_claim, a_member, condition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = {"conditions": [condition()], "podIPs": ["10.0.0.1"], "nodeName": "n1"}
MEMBER = a_member(status=READY, resourceVersion="1")
CLAIM = a_claim(meta={"resourceVersion": "1"})
ME = Claimant(Uid("claim-uid"), Key("default", "c"))


class Desk:
    def __init__(self) -> None:
        self.caches = Caches(
            Cache(CLAIMS), Cache(SANDBOXES), Cache(POOLS), Cache(TEMPLATES), Cache(NETWORK_POLICIES), Cache(NODES)
        )
        self.assigner, self.metrics, self.memory = Assigner(), Metrics(), Memory(lambda: NOW)
        c = self.caches
        staleness = Staleness(c.pools, c.templates)
        feed = Feed(self.assigner, staleness, c.sandboxes, c.pools, c.templates, c.nodes, lambda woken: None)
        self.audit = Audit(Observer(c), self.assigner, feed, self.memory, self.metrics)
        feed.connect()
        head = {"namespace": "default", "resourceVersion": "1"}
        c.templates.upsert(convert(TEMPLATES, template_body("t") | {"metadata": {"name": "t", "uid": "t-uid", **head}}))
        c.pools.upsert(convert(POOLS, pool_body("p") | {"metadata": {"name": "p", "uid": "pool-uid", **head}}))
        c.sandboxes.upsert(MEMBER)
        c.claims.upsert(CLAIM)
        self.memory.of(CLAIM)

    def repairs(self) -> dict[str, float]:
        value = self.metrics.registry.get_sample_value
        found = {kind: value("sandpool_repairs_total", {"what": kind}) for kind in KINDS}
        assert None not in found.values(), "every kind starts at 0"
        return {kind: count for kind, count in found.items() if count}

    def reserve(self) -> None:
        self.assigner.acquire(ME, Uid("pool-uid"), NOW, NOW + timedelta(seconds=1))


def test_nothing_is_wrong() -> None:
    desk = Desk()
    desk.reserve()
    assert desk.audit.run() == ()
    assert desk.repairs() == {}
    assert desk.assigner.held_by(ME.uid) is not None


def outdated(desk: Desk) -> None:
    desk.assigner.put_member(Member(Uid("warm-uid"), Key("default", "warm"), Uid("pool-uid"), node="elsewhere"))


def forgotten(desk: Desk) -> None:
    desk.assigner.drop_member(Uid("warm-uid"))


def invented(desk: Desk) -> None:
    desk.assigner.put_member(Member(Uid("ghost"), Key("default", "ghost"), Uid("pool-uid"), ready=True))


def reserved_for_nobody(desk: Desk) -> None:
    nobody = Claimant(Uid("nobody"), Key("default", "nobody"))
    desk.assigner.acquire(nobody, Uid("pool-uid"), NOW, NOW + timedelta(seconds=1))


def remembered_for_nobody(desk: Desk) -> None:
    desk.memory.of(a_claim(meta={"uid": "nobody"}))


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (outdated, "member_outdated"),
        (forgotten, "member_unknown"),
        (invented, "member_gone"),
        (reserved_for_nobody, "reservation_without_claim"),
        (remembered_for_nobody, "notes_without_claim"),
    ],
)
def test_harm_is_found_put_right_and_counted(harm: Callable[[Desk], None], kind: str) -> None:
    desk = Desk()
    harm(desk)
    desk.audit.run()
    assert desk.repairs() == {kind: 1}
    desk.audit.run()
    assert desk.repairs() == {kind: 1}, "once"
    assert [member.uid for member in desk.assigner.members()] == ["warm-uid"]
    desk.reserve()
    assert desk.assigner.held_by(ME.uid) is not None


def test_a_member_that_is_found_again_wakes_who_waited_for_it() -> None:
    desk = Desk()
    desk.assigner.put_member(Member(Uid("warm-uid"), Key("default", "warm"), Uid("pool-uid")))
    desk.reserve()
    assert desk.audit.run() == (ME,)


def test_what_is_under_way_is_left_alone() -> None:
    desk = Desk()
    desk.reserve()
    desk.memory.of(CLAIM).at_work = True
    found = desk.caches.claims.get(ME.key)
    assert found is not None
    desk.caches.claims.mark_deleting(ME.key, ME.uid)
    desk.caches.claims.gone(ME.key, ME.uid)
    assert desk.audit.run() == ()
    assert desk.repairs() == {}


def test_what_changes_between_two_comparisons_is_no_harm() -> None:
    desk = Desk()
    desk.reserve()
    for done in range(4):
        steps = desk.audit.steps()
        for _ in range(done):
            next(steps, None)
        other = a_member(name=f"m{done}", uid=f"m{done}", status=READY, resourceVersion="2")
        desk.caches.sandboxes.upsert(other)
        desk.caches.sandboxes.missing(MEMBER.metadata.key, MEMBER.metadata.uid)
        desk.assigner.forget(ME.uid)
        tuple(steps)
    assert desk.repairs() == {}
