"""Which changes wake which claims."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from conformance.bodies import pool as pool_body
from conformance.bodies import template as template_body
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Caches, Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.triggers import Triggers
from sandpool.loop.cache import Cache
from sandpool.loop.controller import Controller
from sandpool.loop.outcome import Done
from sandpool.model.claim import SandboxClaim
from sandpool.model.codec import convert
from sandpool.model.kinds import CLAIMS, NETWORK_POLICIES, NODES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.labels import SANDBOX_NAME
from sandpool.model.metadata import Key
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.clocks.manual_clock import ManualClock
from support.simulated.claim_parts import POOL, claim_body, condition, member_body

GOING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
READY = {"conditions": [condition()], "podIPs": ["10.0.0.1"]}


async def nothing(key: Key) -> Done:
    return Done()


class Desk:
    def __init__(self) -> None:
        self.caches = Caches(
            Cache(CLAIMS), Cache(SANDBOXES), Cache(POOLS), Cache(TEMPLATES), Cache(NETWORK_POLICIES), Cache(NODES)
        )
        self.clock = ManualClock()
        self.memory = Memory(self.clock.now)
        self.loop: Controller[Key] = Controller("claim", nothing, self.clock, Metrics(), ReconcileHistory())
        self.ended: list[SandboxClaim] = []
        self._revisions = count(1)
        Triggers(self.loop, Observer(self.caches), self.memory, Options(moment=1.0), self.ended.append).connect()

    def head(self, name: str, uid: str = "", namespace: str = "default", **meta: Any) -> dict[str, Any]:
        revision = str(next(self._revisions))
        return {"name": name, "uid": uid or f"{name}-uid", "namespace": namespace, "resourceVersion": revision, **meta}

    def claim(self, name: str = "c", *, status: dict[str, Any] | None = None, **meta: Any) -> SandboxClaim:
        claim = convert(CLAIMS, claim_body() | {"metadata": self.head(name, **meta), "status": status or {}})
        self.caches.claims.upsert(claim)
        return claim

    def pool(self, name: str = "p", *, template: str = "t", replicas: int = 1, **more: Any) -> None:
        spec = {"sandboxTemplateRef": {"name": template}, "replicas": replicas}
        body = pool_body(name) | {"metadata": self.head(name, **more), "spec": spec}
        self.caches.pools.upsert(convert(POOLS, body))

    def template(self, name: str = "t", *, namespace: str = "default", **meta: Any) -> None:
        body = template_body(name) | {"metadata": self.head(name, namespace=namespace, **meta)}
        self.caches.templates.upsert(convert(TEMPLATES, body))

    def policy(self, name: str, **meta: Any) -> None:
        body = {"metadata": self.head(name, **meta), "spec": {}}
        self.caches.policies.upsert(convert(NETWORK_POLICIES, body))

    def sandbox(self, name: str = "m", owner: str = "c", status: dict[str, Any] | None = None, **meta: Any) -> None:
        owners = [{**POOL, "kind": "SandboxClaim", "name": owner, "uid": f"{owner}-uid"}]
        head = self.head(name, **{"ownerReferences": owners, **meta})
        self.caches.sandboxes.upsert(convert(SANDBOXES, member_body() | {"metadata": head, "status": status or READY}))

    def gone(self, cache: Cache[Any], name: str) -> None:
        obj = cache.get(Key("default", name))
        assert obj is not None
        cache.mark_deleting(obj.metadata.key, obj.metadata.uid)
        cache.gone(obj.metadata.key, obj.metadata.uid)

    def woken(self) -> list[str]:
        names = []
        while (item := self.loop.queue.take_nowait()) is not None:
            names.append(item.key.name)
            self.loop.queue.done(item.key, settled=True)
        return names


BOUND = {"sandbox": {"name": "m"}}


def a_desk() -> Desk:
    """One claim of each sort, everybody awake and asleep again."""
    desk = Desk()
    desk.template()
    desk.pool()
    desk.claim("unbound")
    desk.claim("bound", status=BOUND)
    desk.claim("going", **GOING)
    desk.claim("away", namespace="elsewhere")
    desk.woken()
    return desk


def test_a_pool_wakes_only_its_own_unbound_claims() -> None:
    desk = a_desk()
    desk.pool(template="other")
    assert desk.woken() == ["unbound"]
    desk.gone(desk.caches.pools, "p")
    assert desk.woken() == ["unbound"]
    desk.pool(uid="another")
    assert desk.woken() == ["unbound"]
    desk.pool("q")
    assert desk.woken() == []


def test_what_a_pool_says_of_itself_wakes_nobody() -> None:
    desk = a_desk()
    desk.pool(replicas=9)
    desk.pool(labels={"a": "b"})
    assert desk.woken() == []


def test_a_template_wakes_the_unbound_claims_of_all_its_pools_each_once() -> None:
    desk = a_desk()
    desk.pool("q")
    desk.gone(desk.caches.templates, "t")
    assert desk.woken() == ["unbound"]
    desk.template(uid="another")
    assert desk.woken() == ["unbound"]
    desk.template(uid="another", generation=2)
    assert desk.woken() == ["unbound"]
    desk.template(uid="another", generation=2, labels={"a": "b"})
    assert desk.woken() == []
    desk.template("other")
    assert desk.woken() == []


def test_a_policy_wakes_who_waits_for_it() -> None:
    desk = a_desk()
    desk.policy("t-network-policy")
    assert desk.woken() == ["unbound"]
    desk.policy("other-network-policy")
    assert desk.woken() == []


@pytest.mark.parametrize(
    ("status", "soon"),
    [
        ({**READY, "podIPs": ["10.0.0.2"]}, True),
        ({**READY, "conditions": [condition("Ready", "False", "X")]}, True),
        ({**READY, "conditions": [condition("Ready", "True", "SandboxExpired")]}, True),
        ({**READY, "conditions": [condition(), condition("Finished", "True", "PodFailed")]}, True),
        ({**READY, "conditions": [condition(message="other")]}, False),
    ],
)
def test_a_sandbox_wakes_its_claim_at_once_or_in_a_moment(status: dict[str, Any], soon: bool) -> None:
    desk = a_desk()
    desk.claim("c")
    desk.sandbox()
    desk.woken()
    desk.sandbox(status=status)
    assert desk.woken() == (["c"] if soon else [])
    desk.clock.advance(1.0)
    assert desk.woken() == ([] if soon else ["c"])


@pytest.mark.parametrize(
    "change",
    [
        {"status": {**READY, "conditions": [condition(observedGeneration=9)]}},
        {"status": {**READY, "conditions": [condition(), condition("PodScheduled", "True", "X")]}},
        {"status": {**READY, "nodeName": "n2"}},
        {"labels": {"a": "b"}},
        {"generation": 4},
    ],
    ids=str,
)
def test_what_a_claim_does_not_forward_wakes_nobody(change: dict[str, Any]) -> None:
    desk = a_desk()
    desk.claim("c")
    desk.sandbox()
    desk.woken()
    desk.sandbox(**change)
    desk.clock.advance(100.0)
    assert desk.woken() == []


def test_a_sandbox_that_goes_wakes_its_claim_and_who_wants_the_name() -> None:
    desk = a_desk()
    desk.claim("c")
    desk.sandbox("unbound")
    desk.woken()
    desk.sandbox("unbound", **GOING)
    assert desk.woken() == ["c"]
    desk.gone(desk.caches.sandboxes, "unbound")
    assert sorted(desk.woken()) == ["c", "unbound"]


def test_a_sandbox_that_changes_hands_wakes_both() -> None:
    desk = a_desk()
    desk.claim("c")
    desk.claim("d")
    desk.sandbox()
    desk.woken()
    desk.sandbox(owner="d")
    assert sorted(desk.woken()) == ["c", "d"]


def test_what_a_claim_takes_itself_is_no_news() -> None:
    desk = a_desk()
    notes = desk.memory.of(desk.claim("c"))
    desk.woken()
    notes.at_work, notes.taking = True, "m"
    desk.sandbox()
    assert desk.woken() == []
    desk.sandbox("another")
    assert desk.woken() == ["c"]


def test_a_status_that_we_wrote_is_no_news_and_any_other_is() -> None:
    desk = a_desk()
    claim = desk.claim("c")
    desk.woken()
    written = {"sandbox": {"name": "m"}, "conditions": [condition()]}
    desk.memory.of(claim).published = convert(CLAIMS, claim_body() | {"status": written}).status
    desk.claim("c", status=written)
    assert desk.woken() == []
    desk.claim("c", status={"sandbox": {"name": "another"}})
    assert desk.woken() == ["c"]


@pytest.mark.parametrize(
    "change", [{"generation": 2}, GOING, {"labels": {"agents.x-k8s.io/sandbox-name": "x"}}], ids=str
)
def test_a_claim_that_wants_something_else(change: dict[str, Any]) -> None:
    desk = a_desk()
    desk.claim("c")
    desk.woken()
    desk.claim("c", annotations={"a": "b"}, labels={"a": "b"})
    assert desk.woken() == []
    desk.claim("c", **change)
    assert desk.woken() == ["c"]


def test_a_claim_that_is_gone_is_cleared_up_after() -> None:
    desk = a_desk()
    desk.claim("c")
    desk.woken()
    desk.gone(desk.caches.claims, "c")
    assert [claim.metadata.name for claim in desk.ended] == ["c"]
    desk.claim("d")
    desk.claim("d", uid="another")
    assert [claim.metadata.uid for claim in desk.ended] == ["c-uid", "d-uid"], "its successor is another claim"
    assert desk.woken() == ["d"]


def test_an_annotation_that_names_another_sandbox_wakes_its_claim_in_a_while() -> None:
    desk = a_desk()
    desk.claim("bound", status=BOUND, annotations={SANDBOX_NAME: "m"})
    desk.claim("unbound", annotations={SANDBOX_NAME: "lost"})
    desk.clock.advance(60)
    assert desk.woken() == []
    desk.claim("bound", status=BOUND, annotations={SANDBOX_NAME: "lost"})
    assert desk.woken() == []
    desk.clock.advance(Options().annotate_again)
    assert desk.woken() == ["bound"]
    desk.claim("bound", status=BOUND, annotations={SANDBOX_NAME: "lost", "a": "b"})
    desk.clock.advance(60)
    assert desk.woken() == [], "once for each wrong name"
