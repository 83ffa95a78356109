"""Which claims are bound in the commit that creates them, with what, and that nothing is left to be done."""

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
from sandpool.controllers.claim.inline import InlineBinding, awaited_pool
from sandpool.controllers.claim.options import Options
from sandpool.controllers.metrics.controller_metrics import ControllerMetrics
from sandpool.kube.inline import Annotate, Refusal
from sandpool.kube.priority import Priority, UrgentWork
from sandpool.loop.cache import Cache
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
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.api.heard_events import HeardEvents
from support.clocks.manual_clock import START, ManualClock
from support.simulated.claim_parts import MEMBER_LABELS, POOL, a_claim, condition, member_body

KINDS_HERE: tuple[Any, ...] = (CLAIMS, SANDBOXES, POOLS, TEMPLATES, NETWORK_POLICIES, NODES)
READY = {"conditions": [condition()], "podIPs": ["10.0.0.1"], "nodeName": "n1"}
UNREADY = {"conditions": [condition(status="False", reason="DependenciesNotReady")]}
GOING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
MEMBER, KEY = Key("default", "warm"), Key("default", "c")
LATER = Claimant(Uid("later-uid"), Key("default", "later"))


class Desk:
    """The real controller on caches that are filled by hand. It is at work, though nobody takes from its queue."""

    def __init__(self, options: Options = Options(), *, furnished: bool = True) -> None:
        self.clock, self.metrics, self.story, self.assigner = ManualClock(), Metrics(), ReconcileHistory(), Assigner()
        self.events, self.urgent, self.announced = HeardEvents(), UrgentWork(), list[Key]()
        self.caches = Caches(*(Cache(kind) for kind in KINDS_HERE))
        c = self.caches
        for cache in (c.claims, c.sandboxes, c.pools):
            cache.replace((), Revision(1))
        self.measures = ControllerMetrics(c.claims, c.sandboxes, c.pools, self.assigner, self.clock, self.metrics)
        self.controller = ClaimController(
            Writes(None, ()),  # type: ignore[arg-type]  # nothing is written here
            c, self.assigner, Staleness(c.pools, c.templates), self.clock, self.metrics, self.story,
            events=self.events, options=options, urgent=self.urgent, times=self.measures.times,
        )  # fmt: skip
        self.inline = self.controller.inline
        self.controller.transfers.subscribe(self.announced.append)
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
        self.caches.templates.upsert(convert(TEMPLATES, template_body("t") | {"metadata": self.head("t", "t-uid")}))

    def pool(self, **meta: Any) -> None:
        self.caches.pools.upsert(convert(POOLS, pool_body("p") | {"metadata": self.head("p", "pool-uid", **meta)}))

    def member(self, name: str = "warm", status: dict[str, Any] = READY, **more: Any) -> None:
        template = self.caches.templates.get(Key("default", "t"))
        assert template is not None
        marks = MEMBER_LABELS | {labels.TEMPLATE_HASH: blueprint_hash(template.spec)}
        body = member_body(**{"labels": marks, **self.head(name, f"{name}-uid"), **more})
        self.caches.sandboxes.upsert(convert(SANDBOXES, body | {"status": status}))

    def bind(self, claim: SandboxClaim | None = None) -> InlineBinding | None:
        return self.inline.bind(claim or a_claim())

    def bound(self, claim: SandboxClaim | None = None) -> InlineBinding:
        binding = self.bind(claim)
        assert binding is not None
        return binding

    def written(self, binding: InlineBinding, claim: SandboxClaim | None = None) -> tuple[SandboxClaim, Sandbox]:
        """What the server makes of it, and says that it is on its way: the claim as it was sent (`self.sent`) and the others."""
        (change,) = binding.changes
        box = self.caches.sandboxes.get(change.key)
        assert box is not None
        self.sent = stamped(claim or a_claim(), next(self._revisions))
        taken = stamped(convert(SANDBOXES, apply_json_patch(to_json(box), change.patch.body)), next(self._revisions))
        body = to_json(claim or a_claim())
        notes = {**body["metadata"].get("annotations", {}), **binding.annotations}
        body |= {"metadata": body["metadata"] | {"annotations": notes}, "status": binding.status}
        made = stamped(convert(CLAIMS, body), next(self._revisions))
        binding.submitted(self.sent.metadata.revision, [taken.metadata.revision], made.metadata.revision)
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
        kept = [*self.assigner.reservations(), *self.controller.memory]
        return not kept and self.urgent.idle and self.measures.timed == 0


def stamped(obj: Any, revision: int) -> Any:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=str(revision)))


def moved(box: Object, revision: int, **status: Any) -> Sandbox:
    return stamped(convert(SANDBOXES, to_json(box) | {"status": status}), revision)


def test_a_plain_claim_on_a_pool_that_has_one_ready() -> None:
    desk = Desk()
    binding = desk.bound()
    box = desk.caches.sandboxes.get(MEMBER)
    assert box is not None
    (change,) = binding.changes
    assert (change.resource, change.key, change.revision) == (SANDBOXES, MEMBER, box.metadata.revision)
    assert [claimant.uid for claimant, _ in desk.assigner.reservations()] == ["claim-uid"]
    claim, taken = desk.written(binding)
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
    assert binding.annotations == {
        labels.SANDBOX_NAME: "warm",
        labels.CONTROLLER_FIRST_OBSERVED_AT: stamp,
    }
    assert desk.announced == [MEMBER]
    assert not desk.urgent.idle, "somebody waits"


def test_annotations_that_the_user_brought_are_not_written_again() -> None:
    desk = Desk()
    binding = desk.bound(a_claim(meta={"annotations": {labels.CONTROLLER_FIRST_OBSERVED_AT: "x", "a": "b"}}))
    assert set(binding.annotations) == {labels.SANDBOX_NAME}


def test_annotations_can_be_switched_off() -> None:
    desk = Desk(Options(annotations=False))
    assert desk.bound().annotations == {}


def test_additional_metadata_of_the_pod_travels_with_the_transfer() -> None:
    desk = Desk()
    claim = a_claim(additionalPodMetadata={"labels": {"sandbox.users.io/team": "a"}})
    _, taken = desk.written(desk.bound(claim), claim)
    assert taken.spec.pod_template.metadata is not None
    assert taken.spec.pod_template.metadata.labels == {"sandbox.users.io/team": "a"}


OWN_POLICY = {**POOL, "kind": "SandboxClaim", "name": "c", "uid": "claim-uid"}


def legacy(desk: Desk) -> None:
    head = desk.head("c-network-policy", "policy-uid", ownerReferences=[OWN_POLICY])
    desk.caches.policies.upsert(convert(NETWORK_POLICIES, {"metadata": head, "spec": {}}))


def silently_unready(desk: Desk) -> None:
    """The assigner has not been told: whatever it believes, the cache is asked."""
    box = desk.caches.sandboxes.objects[MEMBER]
    desk.caches.sandboxes.objects[MEMBER] = moved(box, 99, **UNREADY)


def silently_claimed(desk: Desk) -> None:
    box = to_json(desk.caches.sandboxes.objects[MEMBER])
    box["metadata"]["ownerReferences"] = [{**OWN_POLICY, "uid": "another-uid"}]
    desk.caches.sandboxes.objects[MEMBER] = convert(SANDBOXES, box)


def silently_another(desk: Desk) -> None:
    box = to_json(desk.caches.sandboxes.objects[MEMBER])
    box["metadata"]["uid"] = "another-uid"
    desk.caches.sandboxes.objects[MEMBER] = convert(SANDBOXES, box)


def doomed(desk: Desk) -> None:
    desk.caches.sandboxes.mark_deleting(MEMBER, Uid("warm-uid"))


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
    assert desk.bind() is None
    assert list(desk.assigner.reservations()) == before, "nothing stays reserved"
    assert desk.urgent.idle
    assert desk.announced == []
    assert list(desk.controller.memory) == []


def test_what_becomes_ready_while_an_older_claim_waits_is_not_for_a_newcomer() -> None:
    desk = Desk()
    desk.member(status=UNREADY)
    assert desk.assigner.line_up(LATER, Uid("pool-uid")) == ()
    desk.member()
    assert desk.bind() is None
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
    assert desk.bind(NOT_THIS_ONE[name]) is None
    assert desk.nothing_kept
    assert desk.bind() is not None, "though any other"


def test_metadata_that_contradicts_the_members_own_is_left_to_the_reconcile() -> None:
    desk = Desk()
    desk.member(pod_meta={"labels": {"sandbox.users.io/x": "z"}})
    assert desk.bind(a_claim(additionalPodMetadata={"labels": {"sandbox.users.io/x": "y"}})) is None
    assert desk.nothing_kept


async def test_bound_only_while_the_loop_is_at_work() -> None:
    desk = Desk()
    loop = desk.controller.loop
    loop.at_work = False  # as it is made
    assert desk.bind() is None
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    binding = desk.bound()
    binding.abandoned()
    loop.stop()
    assert desk.bind() is None
    await running
    assert desk.bind() is None


def waiting(desk: Desk) -> None:
    """Another claim comes while the only member is promised, and another one warms: it waits."""
    desk.member("cold", status=UNREADY)
    answer = desk.assigner.acquire(LATER, Uid("pool-uid"), START, START.replace(hour=1))
    assert isinstance(answer, Wait)


@pytest.mark.parametrize("submitted", [False, True])
def test_abandoned_gives_the_member_back_and_wakes_who_waits(submitted: bool) -> None:
    desk = Desk()
    binding = desk.bound()
    waiting(desk)
    desk.woken()
    if submitted:
        desk.written(binding)
    binding.abandoned()
    assert [(claimant, member.key) for claimant, member in desk.assigner.reservations()] == [(LATER, MEMBER)]
    assert [name for name, _ in desk.woken()] == ["later"]
    assert desk.urgent.idle
    assert list(desk.controller.memory) == []
    assert len(desk.measures.times) == 0
    assert (desk.events.heard, desk.story.of(("claim", KEY))) == ([], ())


def test_abandoned_and_nobody_waits() -> None:
    desk = Desk()
    desk.bound().abandoned()
    assert desk.nothing_kept
    assert isinstance(desk.assigner.acquire(LATER, Uid("pool-uid"), START, START), Take)


def test_two_claims_never_get_one_sandbox() -> None:
    desk = Desk()
    assert desk.bound().changes[0].key == MEMBER
    assert desk.bind(a_claim(meta={"name": "later", "uid": "later-uid"})) is None
    desk.member("other")
    assert desk.bound(a_claim(meta={"name": "later", "uid": "later-uid"})).changes[0].key == Key("default", "other")


def test_committed_is_known_told_and_counted_and_wakes_nobody() -> None:
    desk = Desk()
    binding = desk.bound()
    claim, taken = desk.written(binding)
    desk.clock.advance(0.25)
    binding.committed(claim, [taken])
    assert desk.caches.claims.get(KEY) is claim
    assert desk.caches.sandboxes.get(MEMBER) is taken
    assert list(desk.assigner.reservations()) == []
    assert desk.assigner.member(taken.metadata.uid) is None
    assert desk.urgent.idle
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
    binding = desk.bound()
    claim, taken = desk.written(binding)
    for one in order:
        if one == "sandbox":
            desk.caches.sandboxes.upsert(taken)
        else:
            desk.caches.claims.upsert(claim if one == "claim" else desk.sent)
    binding.committed(claim, [taken])
    assert list(desk.assigner.reservations()) == []
    assert desk.repairs() == {}
    assert desk.woken() == []
    pool = {"pool": "p", "namespace": "default", "launch_type": "warm"}
    assert desk.sample("sandpool_claim_ready_seconds_count", **pool) == 1


@pytest.mark.parametrize("heard", [(), ("sent",), ("sent", "claim"), ("sandbox",), ("sent", "sandbox")], ids=str)
def test_an_audit_meanwhile_finds_nothing_wrong(heard: tuple[str, ...]) -> None:
    desk = Desk()
    binding = desk.bound()
    claim, taken = desk.written(binding)
    if "sent" in heard:
        desk.caches.claims.upsert(desk.sent)
    if "claim" in heard:
        desk.caches.claims.upsert(claim)
    if "sandbox" in heard:
        desk.caches.sandboxes.upsert(taken)
    assert desk.repairs() == {}
    binding.committed(claim, [taken])
    assert desk.repairs() == {}
    assert desk.woken() == []


@pytest.mark.parametrize("order", EITHER_ORDER, ids=" ".join)
@pytest.mark.parametrize("end", ["unready", "gone"])
def test_a_sandbox_that_has_moved_on_since_wakes_its_claim(order: tuple[str, ...], end: str) -> None:
    """The watch may tell of the next state, of a commit that both share, before anybody has told of the claim."""
    desk = Desk()
    binding = desk.bound()
    claim, taken = desk.written(binding)
    newer = moved(taken, int(claim.metadata.resource_version) + 1, **UNREADY)
    for one in order:
        if one != "sandbox":
            desk.caches.claims.upsert(claim if one == "claim" else desk.sent)
            continue
        desk.caches.sandboxes.upsert(newer)
        if end == "gone":
            desk.caches.sandboxes.missing(MEMBER, taken.metadata.uid)
    binding.committed(claim, [taken])
    assert desk.woken() == [("c", Priority.URGENT)]
    assert list(desk.assigner.reservations()) == []


def test_what_happens_to_the_sandbox_afterwards_wakes_its_claim() -> None:
    desk = Desk()
    binding = desk.bound()
    claim, taken = desk.written(binding)
    binding.committed(claim, [taken])
    desk.woken()
    desk.caches.sandboxes.upsert(moved(taken, 1000, **UNREADY))
    assert desk.woken() == [("c", Priority.URGENT)]


def test_a_claim_that_ends_some_day_is_looked_at_when_nobody_waits() -> None:
    desk = Desk()
    wanted = a_claim(lifecycle={"shutdownTime": "2026-01-01T01:00:00Z"})
    binding = desk.bound(wanted)
    claim, taken = desk.written(binding, wanted)
    binding.committed(claim, [taken])
    assert desk.woken() == [("c", Priority.BACKGROUND)]


@pytest.mark.parametrize("change", [{"generation": 4}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=str)
def test_a_claim_that_wants_something_else_afterwards_is_looked_at(change: dict[str, Any]) -> None:
    desk = Desk()
    binding = desk.bound()
    claim, taken = desk.written(binding)
    binding.committed(claim, [taken])
    body = to_json(claim)
    body["metadata"] |= {"resourceVersion": "1000", **change}
    desk.caches.claims.upsert(convert(CLAIMS, body))
    assert [name for name, _ in desk.woken()] == ["c"]


def test_a_status_that_somebody_else_writes_afterwards_is_put_right() -> None:
    desk = Desk()
    binding = desk.bound()
    claim, taken = desk.written(binding)
    binding.committed(claim, [taken])
    again = stamped(claim, 1000)
    desk.caches.claims.upsert(again)
    assert desk.woken() == [], "the same status"
    desk.caches.claims.upsert(convert(CLAIMS, to_json(stamped(claim, 1001)) | {"status": {"sandbox": {"name": "x"}}}))
    assert [name for name, _ in desk.woken()] == ["c"]


def test_a_claim_that_is_gone_before_its_commit_is_known() -> None:
    desk = Desk()
    binding = desk.bound()
    claim, taken = desk.written(binding)
    desk.caches.claims.upsert(claim)
    desk.caches.claims.missing(KEY, claim.metadata.uid)
    binding.committed(claim, [taken])
    assert desk.caches.claims.get(KEY) is None
    assert desk.caches.sandboxes.get(MEMBER) is taken
    assert desk.nothing_kept
    assert desk.repairs() == {}


def test_a_claim_that_nobody_ever_heard_of() -> None:
    """It was made and deleted between two lists: the second is newer than anything of it."""
    desk = Desk()
    binding = desk.bound()
    claim, taken = desk.written(binding)
    desk.caches.claims.replace((), Revision(1000))
    desk.caches.sandboxes.replace((), Revision(1000))
    binding.committed(claim, [taken])
    assert len(desk.caches.claims) == len(desk.caches.sandboxes) == 0
    desk.woken()  # that what was kept for it is gone
    assert desk.nothing_kept
    assert desk.repairs() == {}


def test_a_claim_that_is_served_after_another_has_waited_takes_nothing_from_it() -> None:
    """A member that becomes ready is the first one's in line, not the next one's to come."""
    desk = Desk()
    desk.bound()
    waiting(desk)
    desk.member("cold")
    assert desk.bind(a_claim(meta={"name": "last", "uid": "last-uid"})) is None
    assert {claimant.uid for claimant, _ in desk.assigner.reservations()} == {"claim-uid", "later-uid"}


def test_of_claims_that_wait_the_order_is_noted_whatever_the_clock_says() -> None:
    desk = Desk()
    seen = []
    for step in (0.0, 0.0, 0.5, -0.25, 0.0, 7.0):
        desk.clock.advance(step)
        seen.append(desk.inline.observed(a_claim())[labels.CONTROLLER_FIRST_OBSERVED_AT])
    assert seen == sorted(set(seen))
    assert seen[-1] == micro(desk.clock.now())


def test_what_is_noted_already_stays_and_nothing_is_noted_where_annotations_are_off() -> None:
    known = {labels.CONTROLLER_FIRST_OBSERVED_AT: "2026-01-01T00:00:00.000000Z"}
    desk = Desk()
    assert desk.inline.observed(a_claim(meta={"annotations": known})) == {}
    desk.controller.loop.at_work = False
    assert desk.inline.observed(a_claim()) == {}, "who does not look at claims has not seen it"
    assert Desk(Options(annotations=False)).inline.observed(a_claim()) == {}


def others(desk: Desk, count: int) -> None:
    """Claims that wait for a sandbox of another pool."""
    for number in range(count):
        meta = desk.head(f"other-{number}", f"other-{number}-uid")
        desk.caches.claims.upsert(a_claim(meta=meta, warmPoolRef={"name": "another"}))


CUSTOM: dict[str, Any] = {"env": [{"name": "A", "value": "b"}]}
FULL = Options(bounds=Bounds(waiting=3))


def test_a_claim_that_a_ready_member_could_serve_is_never_too_many() -> None:
    desk = Desk(FULL)
    others(desk, 3)
    assert desk.inline.overloaded(a_claim()) is None
    desk.member(status=UNREADY)
    assert desk.inline.overloaded(a_claim()) is not None


def test_one_that_starts_a_sandbox_of_its_own_is_counted_whatever_is_ready() -> None:
    desk = Desk(FULL)
    custom = a_claim(**CUSTOM)
    assert custom.spec.customised
    assert desk.inline.overloaded(custom) is None
    others(desk, 3)
    busy = desk.inline.overloaded(custom)
    assert busy is not None
    assert 1 <= busy.retry_after <= 30
    assert "3 claims of namespace default wait" in busy.why


def test_the_expected_wait_for_a_member_is_nothing_to_one_that_starts_its_own() -> None:
    desk = Desk(Options(bounds=Bounds(wait=5.0)))
    desk.member(status=UNREADY)
    desk.assigner.outlook = lambda pool: Outlook(waiting=9, rate=1.0, expected=10.0)  # type: ignore[method-assign]
    busy = desk.inline.overloaded(a_claim())
    assert busy is not None
    assert "expected to wait 10 s" in busy.why
    assert desk.inline.overloaded(a_claim(**CUSTOM)) is None


def test_new_claims_pause_once_many_wait_for_their_pool() -> None:
    desk, none = Desk(), {"spec": {"warmPoolRef": {"name": "none"}}}
    body = {"spec": {"warmPoolRef": {"name": "p"}}}
    desk.member(status=UNREADY)
    assert (desk.inline.delay("default", body), desk.inline.overflow("default", body)) == (0.0, None)
    for number in range(MANY):
        desk.assigner.line_up(Claimant(Uid(f"u{number}"), Key("default", f"c{number}")), Uid("pool-uid"))
    assert desk.inline.delay("default", body) > 0.0
    told = desk.inline.overflow("default", body)
    assert told is not None
    assert (told.retry_after, f"{MANY} claims wait for this pool" in told.why) == (1, True)
    assert (desk.inline.delay("default", none), desk.inline.overflow("default", none)) == (0.0, None)


def test_a_claim_is_bound_if_it_can_be_else_annotated_or_refused() -> None:
    desk = Desk(FULL)
    waits = desk.inline.creating(a_claim(**CUSTOM))
    assert isinstance(waits, Annotate)
    assert set(waits.annotations) == {labels.CONTROLLER_FIRST_OBSERVED_AT}
    others(desk, 3)
    refused = desk.inline.creating(a_claim(**CUSTOM))
    assert isinstance(refused, Refusal)
    assert refused.why.startswith("cannot wait for a sandbox now: ")
    assert isinstance(desk.inline.creating(a_claim()), InlineBinding), "one that gets its sandbox is never too many"


def test_the_pool_that_a_claim_would_wait_for() -> None:
    ref = {"warmPoolRef": {"name": "p"}}
    assert awaited_pool("default", {"spec": ref}) == Key("default", "p")
    for more in ({"env": [{"name": "A", "value": "b"}]}, {"volumeClaimTemplates": [{"metadata": {"name": "v"}}]}):
        assert awaited_pool("default", {"spec": {**ref, **more}}) is None, "it starts a sandbox of its own"
    for spec in (None, [], {}, {"warmPoolRef": "p"}, {"warmPoolRef": {"name": 1}}):  # type: ignore[var-annotated]
        assert awaited_pool("default", {"spec": spec}) is None
