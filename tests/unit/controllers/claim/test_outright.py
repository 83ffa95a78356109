"""Which claims are served in the write that creates them, with what, and what is left of it: nothing that anybody has to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest

from conformance.bodies import pool as pool_body
from conformance.bodies import template as template_body
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Take, Wait
from sandpool.controllers.assigner.forecast import Outlook
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.claim.audit import KINDS
from sandpool.controllers.claim.backlog import MANY, Bounds
from sandpool.controllers.claim.controller import Caches, ClaimController
from sandpool.controllers.claim.options import Options
from sandpool.controllers.metrics.metrics import Measures
from sandpool.kube.outright import Grant
from sandpool.loop.cache import Cache
from sandpool.loop.queue import Priority
from sandpool.loop.rush import Rush
from sandpool.loop.writes import Writes
from sandpool.model import labels
from sandpool.model.blueprint import blueprint_hash
from sandpool.model.claim import SandboxClaim
from sandpool.model.codec import convert, to_json
from sandpool.model.kinds import CLAIMS, NETWORK_POLICIES, NODES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key, Object, Revision, Uid
from sandpool.model.patches import apply_json_patch
from sandpool.model.sandbox import Sandbox
from sandpool.model.times import micro
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import Story
from support.claim_parts import MEMBER_LABELS, POOL, a_claim, condition, member_body
from support.heard_events import HeardEvents
from support.manual_clock import START, ManualClock

KINDS_HERE: tuple[Any, ...] = (CLAIMS, SANDBOXES, POOLS, TEMPLATES, NETWORK_POLICIES, NODES)
READY = {"conditions": [condition()], "podIPs": ["10.0.0.1"], "nodeName": "n1"}
UNREADY = {"conditions": [condition(status="False", reason="DependenciesNotReady")]}
GOING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
MEMBER, KEY = Key("default", "warm"), Key("default", "c")
LATER = Claimant(Uid("later-uid"), Key("default", "later"))


class Desk:
    """The real controller on caches that are filled by hand. It is at work, though nobody takes from its queue."""

    def __init__(self, options: Options = Options(), *, furnished: bool = True) -> None:
        self.clock, self.metrics, self.story, self.assigner = ManualClock(), Metrics(), Story(), Assigner()
        self.events, self.rush, self.foreseen = HeardEvents(), Rush(), list[Key]()
        self.caches = Caches(*(Cache(kind) for kind in KINDS_HERE))
        c = self.caches
        for cache in (c.claims, c.sandboxes, c.pools):
            cache.replace((), Revision(1))
        self.measures = Measures(c.claims, c.sandboxes, c.pools, self.assigner, self.clock, self.metrics)
        self.controller = ClaimController(
            Writes(None, ()),  # type: ignore[arg-type]  # nothing is written here
            c, self.assigner, Staleness(c.pools, c.templates), self.clock, self.metrics, self.story,
            events=self.events, options=options,
        )  # fmt: skip
        self.controller.share(self.rush)
        self.outright = self.controller.outright
        self.outright.times = self.measures.times
        self.outright.foresee = self.foreseen.append
        self.controller.loop.at_work = True
        self._revisions = count(2)
        if furnished:
            self.template()
            self.pool()
            self.member()

    def head(self, name: str, own: str, **meta: Any) -> dict[str, Any]:
        revision = str(next(self._revisions))
        return {"name": name, "uid": own, "namespace": "default", "resourceVersion": revision, **meta}

    def template(self) -> None:
        self.caches.templates.learn(convert(TEMPLATES, template_body("t") | {"metadata": self.head("t", "t-uid")}))

    def pool(self, **meta: Any) -> None:
        self.caches.pools.learn(convert(POOLS, pool_body("p") | {"metadata": self.head("p", "pool-uid", **meta)}))

    def member(self, name: str = "warm", status: dict[str, Any] = READY, **more: Any) -> None:
        template = self.caches.templates.get(Key("default", "t"))
        assert template is not None
        marks = MEMBER_LABELS | {labels.TEMPLATE_HASH: blueprint_hash(template.spec)}
        body = member_body(**{"labels": marks, **self.head(name, f"{name}-uid"), **more})
        self.caches.sandboxes.learn(convert(SANDBOXES, body | {"status": status}))

    def grant(self, claim: SandboxClaim | None = None) -> Grant | None:
        return self.outright.grant(claim or a_claim())

    def granted(self, claim: SandboxClaim | None = None) -> Grant:
        grant = self.grant(claim)
        assert grant is not None
        return grant

    def written(self, grant: Grant, claim: SandboxClaim | None = None) -> tuple[SandboxClaim, Sandbox]:
        """What the server makes of it, and says that it is on its way: the claim as it was sent (`self.sent`) and the others."""
        box = self.caches.sandboxes.get(grant.sandbox)
        assert box is not None
        self.sent = stamped(claim or a_claim(), next(self._revisions))
        taken = stamped(convert(SANDBOXES, apply_json_patch(to_json(box), grant.transfer.body)), next(self._revisions))
        body = to_json(claim or a_claim())
        notes = {**body["metadata"].get("annotations", {}), **grant.annotations}
        body |= {"metadata": body["metadata"] | {"annotations": notes}, "status": grant.status}
        made = stamped(convert(CLAIMS, body), next(self._revisions))
        grant.decided(self.sent.metadata.revision, taken.metadata.revision, made.metadata.revision)
        return made, taken

    def woken(self) -> list[tuple[str, Priority]]:
        """Takes all that waits: now, or in an hour."""
        self.clock.advance(3600)
        found = []
        while (item := self.controller.loop.queue.take_nowait()) is not None:
            found.append((item.key.name, item.priority))
            self.controller.loop.queue.done(item.key, settled=True)
        return found

    def repairs(self) -> dict[str, float]:
        self.controller.audit()
        found = {kind: self.sample("sandpool_repairs_total", what=kind) for kind in KINDS}
        return {kind: number for kind, number in found.items() if number}

    def sample(self, name: str, **named: str) -> float:
        return self.metrics.registry.get_sample_value(name, named) or 0.0

    @property
    def nothing_kept(self) -> bool:
        kept = [*self.assigner.reservations(), *self.controller._memory]
        return not kept and self.rush.calm and self.measures.timed == 0


def stamped(obj: Any, revision: int) -> Any:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=str(revision)))


def moved(box: Object, revision: int, **status: Any) -> Sandbox:
    return stamped(convert(SANDBOXES, to_json(box) | {"status": status}), revision)  # type: ignore[no-any-return]


def test_a_plain_claim_on_a_pool_that_has_one_ready() -> None:
    desk = Desk()
    grant = desk.granted()
    box = desk.caches.sandboxes.get(MEMBER)
    assert box is not None
    assert (grant.sandbox, grant.revision) == (MEMBER, box.metadata.revision)
    assert [claimant.uid for claimant, _ in desk.assigner.reservations()] == ["claim-uid"]
    claim, taken = desk.written(grant)
    owner = taken.metadata.controller
    assert owner is not None
    assert (owner.kind, owner.uid) == ("SandboxClaim", "claim-uid")
    assert taken.spec == box.spec
    assert claim.status.sandbox is not None
    assert (claim.status.sandbox.name, claim.status.sandbox.pod_ips) == ("warm", ("10.0.0.1",))
    assert [(one.type, one.status, one.observed_generation) for one in claim.status.conditions] == [
        ("Ready", "True", 3)
    ]
    stamp = micro(START)
    assert grant.annotations == {
        labels.SANDBOX_NAME: "warm",
        labels.CONTROLLER_FIRST_OBSERVED_AT: stamp,
    }
    assert desk.foreseen == [MEMBER]
    assert not desk.rush.calm, "somebody waits"


def test_annotations_that_the_user_brought_are_not_written_again() -> None:
    desk = Desk()
    grant = desk.granted(a_claim(meta={"annotations": {labels.CONTROLLER_FIRST_OBSERVED_AT: "x", "a": "b"}}))
    assert set(grant.annotations) == {labels.SANDBOX_NAME}


def test_annotations_can_be_switched_off() -> None:
    desk = Desk(Options(annotations=False))
    assert desk.granted().annotations == {}


def test_additional_metadata_of_the_pod_travels_with_the_transfer() -> None:
    desk = Desk()
    claim = a_claim(additionalPodMetadata={"labels": {"sandbox.users.io/team": "a"}})
    _, taken = desk.written(desk.granted(claim), claim)
    assert taken.spec.pod_template.metadata is not None
    assert taken.spec.pod_template.metadata.labels == {"sandbox.users.io/team": "a"}


OWN_POLICY = {**POOL, "kind": "SandboxClaim", "name": "c", "uid": "claim-uid"}


def legacy(desk: Desk) -> None:
    head = desk.head("c-network-policy", "policy-uid", ownerReferences=[OWN_POLICY])
    desk.caches.policies.learn(convert(NETWORK_POLICIES, {"metadata": head, "spec": {}}))


def silently_unready(desk: Desk) -> None:
    """The assigner has not been told: whatever it believes, the cache is asked."""
    box = desk.caches.sandboxes._objects[MEMBER]
    desk.caches.sandboxes._objects[MEMBER] = moved(box, 99, **UNREADY)


def silently_claimed(desk: Desk) -> None:
    box = to_json(desk.caches.sandboxes._objects[MEMBER])
    box["metadata"]["ownerReferences"] = [{**OWN_POLICY, "uid": "another-uid"}]
    desk.caches.sandboxes._objects[MEMBER] = convert(SANDBOXES, box)


def silently_another(desk: Desk) -> None:
    box = to_json(desk.caches.sandboxes._objects[MEMBER])
    box["metadata"]["uid"] = "another-uid"
    desk.caches.sandboxes._objects[MEMBER] = convert(SANDBOXES, box)


def doomed(desk: Desk) -> None:
    desk.caches.sandboxes.doom(MEMBER, Uid("warm-uid"))


def taken(desk: Desk) -> None:
    """The only member is on its way to another claim."""
    assert desk.assigner.take_ready(LATER, Uid("pool-uid")) is not None


NOT_NOW: dict[str, Callable[[Desk], object]] = {
    "no pool": lambda desk: desk.caches.pools.missing(Key("default", "p"), Uid("pool-uid")),
    "a pool that goes": lambda desk: desk.pool(**GOING),
    "another pool of that name": lambda desk: desk.pool(uid="another-uid"),
    "no ready member": lambda desk: desk.member(status=UNREADY),
    "no member": lambda desk: desk.caches.sandboxes.missing(MEMBER, Uid("warm-uid")),
    "a member that goes": lambda desk: desk.member(**GOING),
    "a member that we are about to delete": doomed,
    "a member that is not ready": silently_unready,
    "a member that is another's": silently_claimed,
    "another of that name": silently_another,
    "a member that was promised": taken,
    "a policy of an earlier version": legacy,
    "not at work": lambda desk: desk.controller.loop.stop(),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_NOW)
def test_not_now(name: str) -> None:
    desk = Desk()
    NOT_NOW[name](desk)
    before = list(desk.assigner.reservations())
    assert desk.grant() is None
    assert list(desk.assigner.reservations()) == before, "nothing stays reserved"
    assert desk.rush.calm
    assert desk.foreseen == []
    assert list(desk.controller._memory) == []


def test_what_becomes_ready_while_an_older_claim_waits_is_not_for_a_newcomer() -> None:
    desk = Desk()
    desk.member(status=UNREADY)
    assert desk.assigner.line_up(LATER, Uid("pool-uid")) == ()
    desk.member()
    assert desk.grant() is None
    assert [claimant for claimant, _ in desk.assigner.reservations()] == [LATER]


NOT_THIS_ONE: dict[str, SandboxClaim] = {
    "another pool": a_claim(warmPoolRef={"name": "q"}),
    "another namespace": a_claim(meta={"namespace": "elsewhere"}),
    "variables": a_claim(env=[{"name": "A", "value": "b"}]),
    "volumes": a_claim(volumeClaimTemplates=[{"metadata": {"name": "v"}, "spec": {}}]),
    "its time is up": a_claim(lifecycle={"shutdownTime": "2025-12-31T23:59:59Z"}),
    "labels of another domain": a_claim(additionalPodMetadata={"labels": {"example.com/x": "y"}}),
    "a label of an old version": a_claim(meta={"labels": {labels.SANDBOX_NAME: "x"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_THIS_ONE)
def test_not_this_one(name: str) -> None:
    desk = Desk()
    assert desk.grant(NOT_THIS_ONE[name]) is None
    assert desk.nothing_kept
    assert desk.grant() is not None, "though any other"


def test_metadata_that_contradicts_the_members_own_is_left_to_the_reconcile() -> None:
    desk = Desk()
    desk.member(pod_meta={"labels": {"sandbox.users.io/x": "z"}})
    assert desk.grant(a_claim(additionalPodMetadata={"labels": {"sandbox.users.io/x": "y"}})) is None
    assert desk.nothing_kept


async def test_granted_only_while_the_loop_is_at_work() -> None:
    desk = Desk()
    loop = desk.controller.loop
    loop.at_work = False  # as it is made
    assert desk.grant() is None
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    grant = desk.granted()
    grant.dropped()
    loop.stop()
    assert desk.grant() is None
    await running
    assert desk.grant() is None


def waiting(desk: Desk) -> None:
    """Another claim comes while the only member is promised, and another one warms: it waits."""
    desk.member("cold", status=UNREADY)
    answer = desk.assigner.acquire(LATER, Uid("pool-uid"), START, START.replace(hour=1))
    assert isinstance(answer, Wait)


@pytest.mark.parametrize("decided", [False, True])
def test_dropped_gives_the_member_back_and_wakes_who_waits(decided: bool) -> None:
    desk = Desk()
    grant = desk.granted()
    waiting(desk)
    desk.woken()
    if decided:
        desk.written(grant)
    grant.dropped()
    assert [(claimant, member.key) for claimant, member in desk.assigner.reservations()] == [(LATER, MEMBER)]
    assert [name for name, _ in desk.woken()] == ["later"]
    assert desk.rush.calm
    assert list(desk.controller._memory) == []
    assert len(desk.measures.times) == 0
    assert (desk.events.heard, desk.story.of(("claim", KEY))) == ([], ())


def test_dropped_and_nobody_waits() -> None:
    desk = Desk()
    desk.granted().dropped()
    assert desk.nothing_kept
    assert isinstance(desk.assigner.acquire(LATER, Uid("pool-uid"), START, START), Take)


def test_two_claims_never_get_one_sandbox() -> None:
    desk = Desk()
    assert desk.granted().sandbox == MEMBER
    assert desk.grant(a_claim(meta={"name": "later", "uid": "later-uid"})) is None
    desk.member("other")
    assert desk.granted(a_claim(meta={"name": "later", "uid": "later-uid"})).sandbox == Key("default", "other")


def test_landed_is_known_told_and_counted_and_wakes_nobody() -> None:
    desk = Desk()
    grant = desk.granted()
    claim, taken = desk.written(grant)
    desk.clock.advance(0.25)
    grant.landed(claim, taken)
    assert desk.caches.claims.get(KEY) is claim
    assert desk.caches.sandboxes.get(MEMBER) is taken
    assert list(desk.assigner.reservations()) == []
    assert desk.assigner.member(taken.metadata.uid) is None
    assert desk.rush.calm
    assert desk.events.heard == [("Normal", "SandboxAdopted", "Took sandbox warm from pool p")]
    (entry,) = desk.story.of(("claim", KEY))
    assert (entry.rid, entry.trigger, entry.outcome, entry.took) == ("claim-1", "SandboxClaim", "done", 0.25)
    assert entry.plan.endswith("; wrote sandbox warm together with the claim")
    pool = {"pool": "p", "namespace": "default", "launch_type": "warm"}
    assert desk.sample("sandpool_claim_ready_seconds_count", **pool) == 1
    assert desk.sample("sandpool_claim_ready_seconds_sum", **pool) == 0.25
    assert desk.repairs() == {}
    assert desk.woken() == []


EITHER_ORDER = [
    ("claim", "sandbox"),
    ("sandbox", "claim"),
    ("sent", "claim", "sandbox"),
    ("sent", "sandbox", "claim"),
    ("sandbox", "sent", "claim"),
]


@pytest.mark.parametrize("order", EITHER_ORDER, ids=" ".join)
def test_what_the_watch_tells_before_wakes_nobody_either(order: tuple[str, ...]) -> None:
    desk = Desk()
    grant = desk.granted()
    claim, taken = desk.written(grant)
    for one in order:
        if one == "sandbox":
            desk.caches.sandboxes.learn(taken)
        else:
            desk.caches.claims.learn(claim if one == "claim" else desk.sent)
    grant.landed(claim, taken)
    assert list(desk.assigner.reservations()) == []
    assert desk.repairs() == {}
    assert desk.woken() == []
    pool = {"pool": "p", "namespace": "default", "launch_type": "warm"}
    assert desk.sample("sandpool_claim_ready_seconds_count", **pool) == 1


@pytest.mark.parametrize("heard", [(), ("sent",), ("sent", "claim"), ("sandbox",), ("sent", "sandbox")], ids=str)
def test_an_audit_meanwhile_finds_nothing_wrong(heard: tuple[str, ...]) -> None:
    desk = Desk()
    grant = desk.granted()
    claim, taken = desk.written(grant)
    if "sent" in heard:
        desk.caches.claims.learn(desk.sent)
    if "claim" in heard:
        desk.caches.claims.learn(claim)
    if "sandbox" in heard:
        desk.caches.sandboxes.learn(taken)
    assert desk.repairs() == {}
    grant.landed(claim, taken)
    assert desk.repairs() == {}
    assert desk.woken() == []


@pytest.mark.parametrize("order", EITHER_ORDER, ids=" ".join)
@pytest.mark.parametrize("end", ["unready", "gone"])
def test_a_sandbox_that_has_moved_on_since_wakes_its_claim(order: tuple[str, ...], end: str) -> None:
    """The watch may tell of the next state, of a commit that both share, before anybody has told of the claim."""
    desk = Desk()
    grant = desk.granted()
    claim, taken = desk.written(grant)
    newer = moved(taken, int(claim.metadata.resource_version) + 1, **UNREADY)
    for one in order:
        if one != "sandbox":
            desk.caches.claims.learn(claim if one == "claim" else desk.sent)
            continue
        desk.caches.sandboxes.learn(newer)
        if end == "gone":
            desk.caches.sandboxes.missing(MEMBER, taken.metadata.uid)
    grant.landed(claim, taken)
    assert desk.woken() == [("c", Priority.FIRST)]
    assert list(desk.assigner.reservations()) == []


def test_what_happens_to_the_sandbox_afterwards_wakes_its_claim() -> None:
    desk = Desk()
    grant = desk.granted()
    claim, taken = desk.written(grant)
    grant.landed(claim, taken)
    desk.woken()
    desk.caches.sandboxes.learn(moved(taken, 1000, **UNREADY))
    assert desk.woken() == [("c", Priority.FIRST)]


def test_a_claim_that_ends_some_day_is_looked_at_when_nobody_waits() -> None:
    desk = Desk()
    wanted = a_claim(lifecycle={"shutdownTime": "2026-01-01T01:00:00Z"})
    grant = desk.granted(wanted)
    claim, taken = desk.written(grant, wanted)
    grant.landed(claim, taken)
    assert desk.woken() == [("c", Priority.SECOND)]


@pytest.mark.parametrize("change", [{"generation": 4}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=str)
def test_a_claim_that_wants_something_else_afterwards_is_looked_at(change: dict[str, Any]) -> None:
    desk = Desk()
    grant = desk.granted()
    claim, taken = desk.written(grant)
    grant.landed(claim, taken)
    body = to_json(claim)
    body["metadata"] |= {"resourceVersion": "1000", **change}
    desk.caches.claims.learn(convert(CLAIMS, body))
    assert [name for name, _ in desk.woken()] == ["c"]


def test_a_status_that_somebody_else_writes_afterwards_is_put_right() -> None:
    desk = Desk()
    grant = desk.granted()
    claim, taken = desk.written(grant)
    grant.landed(claim, taken)
    again = stamped(claim, 1000)
    desk.caches.claims.learn(again)
    assert desk.woken() == [], "the same status"
    desk.caches.claims.learn(convert(CLAIMS, to_json(stamped(claim, 1001)) | {"status": {"sandbox": {"name": "x"}}}))
    assert [name for name, _ in desk.woken()] == ["c"]


def test_a_claim_that_is_gone_before_it_has_landed() -> None:
    desk = Desk()
    grant = desk.granted()
    claim, taken = desk.written(grant)
    desk.caches.claims.learn(claim)
    desk.caches.claims.missing(KEY, claim.metadata.uid)
    grant.landed(claim, taken)
    assert desk.caches.claims.get(KEY) is None
    assert desk.caches.sandboxes.get(MEMBER) is taken
    assert desk.nothing_kept
    assert desk.repairs() == {}


def test_a_claim_that_nobody_ever_heard_of() -> None:
    """It was made and deleted between two lists: the second is newer than anything of it."""
    desk = Desk()
    grant = desk.granted()
    claim, taken = desk.written(grant)
    desk.caches.claims.replace((), Revision(1000))
    desk.caches.sandboxes.replace((), Revision(1000))
    grant.landed(claim, taken)
    assert len(desk.caches.claims) == len(desk.caches.sandboxes) == 0
    desk.woken()  # that what was kept for it is gone
    assert desk.nothing_kept
    assert desk.repairs() == {}


def test_a_claim_that_is_served_after_another_has_waited_takes_nothing_from_it() -> None:
    """A member that becomes ready is the first one's in line, not the next one's to come."""
    desk = Desk()
    desk.granted()
    waiting(desk)
    desk.member("cold")
    assert desk.grant(a_claim(meta={"name": "last", "uid": "last-uid"})) is None
    assert {claimant.uid for claimant, _ in desk.assigner.reservations()} == {"claim-uid", "later-uid"}


def test_of_claims_that_wait_the_order_is_noted_whatever_the_clock_says() -> None:
    desk = Desk()
    seen = []
    for step in (0.0, 0.0, 0.5, -0.25, 0.0, 7.0):
        desk.clock.advance(step)
        seen.append(desk.outright.noted(a_claim())[labels.CONTROLLER_FIRST_OBSERVED_AT])
    assert seen == sorted(set(seen))
    assert seen[-1] == micro(desk.clock.now())


def test_what_is_noted_already_stays_and_nothing_is_noted_where_annotations_are_off() -> None:
    known = {labels.CONTROLLER_FIRST_OBSERVED_AT: "2026-01-01T00:00:00.000000Z"}
    desk = Desk()
    assert desk.outright.noted(a_claim(meta={"annotations": known})) == {}
    desk.controller.loop.at_work = False
    assert desk.outright.noted(a_claim()) == {}, "who does not look at claims has not seen it"
    assert Desk(Options(annotations=False)).outright.noted(a_claim()) == {}


def others(desk: Desk, count: int) -> None:
    """Claims that wait for a sandbox of another pool."""
    for number in range(count):
        meta = desk.head(f"other-{number}", f"other-{number}-uid")
        desk.caches.claims.learn(a_claim(meta=meta, warmPoolRef={"name": "another"}))


CUSTOM = {"env": [{"name": "A", "value": "b"}]}
FULL = Options(bounds=Bounds(waiting=3))


def test_a_claim_that_a_ready_member_could_serve_is_never_too_many() -> None:
    desk = Desk(FULL)
    others(desk, 3)
    assert desk.outright.busy(a_claim()) is None
    desk.member(status=UNREADY)
    assert desk.outright.busy(a_claim()) is not None


def test_one_that_starts_a_sandbox_of_its_own_is_counted_whatever_is_ready() -> None:
    desk = Desk(FULL)
    custom = a_claim(**CUSTOM)
    assert custom.spec.customised
    assert desk.outright.busy(custom) is None
    others(desk, 3)
    busy = desk.outright.busy(custom)
    assert busy is not None
    assert 1 <= busy.retry_after <= 30
    assert "3 claims of namespace default wait" in busy.why


def test_the_expected_wait_for_a_member_is_nothing_to_one_that_starts_its_own() -> None:
    desk = Desk(Options(bounds=Bounds(wait=5.0)))
    desk.member(status=UNREADY)
    desk.assigner.outlook = lambda pool: Outlook(waiting=9, rate=1.0, expected=10.0)  # type: ignore[method-assign]
    busy = desk.outright.busy(a_claim())
    assert busy is not None
    assert "expected to wait 10 s" in busy.why
    assert desk.outright.busy(a_claim(**CUSTOM)) is None


def test_new_claims_pause_once_many_wait_for_their_pool() -> None:
    desk, pool = Desk(), Key("default", "p")
    desk.member(status=UNREADY)
    assert (desk.outright.pause(pool), desk.outright.no_pause(pool)) == (0.0, None)
    for number in range(MANY):
        desk.assigner.line_up(Claimant(Uid(f"u{number}"), Key("default", f"c{number}")), Uid("pool-uid"))
    assert desk.outright.pause(pool) > 0.0
    told = desk.outright.no_pause(pool)
    assert told is not None
    assert (told.retry_after, f"{MANY} claims wait for this pool" in told.why) == (1, True)
    assert (desk.outright.pause(Key("default", "none")), desk.outright.no_pause(Key("default", "none"))) == (0.0, None)
