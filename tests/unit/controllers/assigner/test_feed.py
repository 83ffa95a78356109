"""From caches to the assigner: what is said, what is not, and who is woken."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from conformance.bodies import core, pod_spec
from conformance.bodies import pool as pool_body
from conformance.bodies import template as template_body
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Cold, Counts, Decision, Member, Pool, Take, Wait, Woken
from sandpool.controllers.assigner.feed import Feed
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.loop.cache import Cache
from sandpool.model import labels
from sandpool.model.blueprint import blueprint_hash
from sandpool.model.codec import convert
from sandpool.model.kinds import NODES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key, Object, Uid
from sandpool.model.pod import Node
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from support.simulated.claim_parts import MEMBER_LABELS, POOL, condition, member_body

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POOL_UID = Uid("pool-uid")
READY = {"conditions": [condition()], "podIPs": ["10.0.0.1"], "nodeName": "n1"}
IMAGE: dict[str, Any] = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}


class Counted(Assigner):
    """Counts what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def put_member(self, member: Member) -> Woken:
        self.told.append(f"put {member.key.name}")
        return super().put_member(member)

    def drop_member(self, uid: Uid, taker: Uid | None = None) -> Woken:
        self.told.append(f"drop {uid} for {taker}")
        return super().drop_member(uid, taker)

    def put_pool(self, pool: Pool) -> Woken:
        self.told.append(f"pool {pool.key.name}")
        return super().put_pool(pool)


class Desk:
    """The caches, fed by hand, and the assigner behind them."""

    def __init__(self) -> None:
        self.sandboxes: Cache[Sandbox] = Cache(SANDBOXES)
        self.pools: Cache[SandboxWarmPool] = Cache(POOLS)
        self.templates: Cache[SandboxTemplate] = Cache(TEMPLATES)
        self.nodes: Cache[Node] = Cache(NODES)
        self.assigner = Counted()
        self.woken: list[Claimant] = []
        self._revisions = count(1)
        staleness = Staleness(self.pools, self.templates)
        feed = Feed(self.assigner, staleness, self.sandboxes, self.pools, self.templates, self.nodes, self.woken.extend)
        feed.connect()

    def revision(self) -> dict[str, str]:
        return {"resourceVersion": str(next(self._revisions))}

    def put(self, cache: Cache[Any], obj: Object) -> None:
        cache.upsert(obj)

    def template(
        self, *, generation: int = 1, uid: str = "t-uid", meta: dict[str, Any] | None = None, **spec: Any
    ) -> None:
        head = {"name": "t", "namespace": "default", "uid": uid, "generation": generation, **(meta or {})}
        body = template_body("t", **spec) | {"metadata": head | self.revision()}
        self.put(self.templates, convert(TEMPLATES, body))

    def pool(self, name: str = "p", uid: str = "pool-uid", template: str = "t", **spec: Any) -> None:
        head = {"name": name, "namespace": "default", "uid": uid, **spec.pop("meta", {})}
        body = pool_body(name, sandboxTemplateRef={"name": template}, **spec) | {"metadata": head | self.revision()}
        self.put(self.pools, convert(POOLS, body))

    def member(self, name: str = "m0", *, status: dict[str, Any] | None = None, **meta: Any) -> Sandbox:
        blueprint = blueprint_hash(convert(TEMPLATES, template_body("t")).spec)
        marks = {**MEMBER_LABELS, labels.TEMPLATE_HASH: blueprint}
        head = {"name": name, "uid": f"{name}-uid", "namespace": "default", "labels": marks, **meta, **self.revision()}
        body = member_body(**head) | {"status": READY if status is None else status}
        sandbox = convert(SANDBOXES, body)
        self.put(self.sandboxes, sandbox)
        return sandbox

    def node(self, name: str = "n1", **spec: Any) -> None:
        body = core("Node", name, spec=spec) | {"metadata": {"name": name, "uid": f"{name}-uid", **self.revision()}}
        self.put(self.nodes, convert(NODES, body))

    def furnish(self, **pool: Any) -> None:
        self.template()
        self.pool(**pool)

    def ask(self, claim: str = "c") -> Decision:
        claimant = Claimant(Uid(claim), Key("default", claim))
        return self.assigner.acquire(claimant, POOL_UID, NOW, NOW + timedelta(seconds=10))

    @property
    def counts(self) -> Counts:
        return self.assigner.counts(POOL_UID)


def gone(cache: Cache[Any], obj: Object) -> None:
    assert cache.mark_deleting(obj.metadata.key, obj.metadata.uid)
    cache.gone(obj.metadata.key, obj.metadata.uid)


def test_a_ready_member_is_offered() -> None:
    desk = Desk()
    desk.furnish()
    desk.member()
    assert isinstance(desk.ask(), Take)


@pytest.mark.parametrize("order", ["pool first", "member first", "template last"])
def test_in_any_order(order: str) -> None:
    desk = Desk()
    steps = {
        "pool first": (desk.template, desk.pool, desk.member),
        "member first": (desk.member, desk.pool, desk.template),
        "template last": (desk.pool, desk.member, desk.template),
    }[order]
    for step in steps:
        step()  # type: ignore[operator]
    assert desk.counts == Counts(ready=1)


def test_what_the_assigner_does_not_read_is_not_told() -> None:
    desk = Desk()
    desk.furnish()
    desk.member()
    before = list(desk.assigner.told)
    desk.member(annotations={"a": "b"})
    desk.member(status={**READY, "selector": "x"})
    desk.template(meta={"labels": {"a": "b"}})
    desk.template(generation=2, envVarsInjectionPolicy="Allowed")
    assert desk.assigner.told == before


def test_ready_comes_and_goes() -> None:
    desk = Desk()
    desk.furnish()
    desk.member(status={})
    assert desk.counts == Counts(warming=1)
    desk.member()
    assert desk.counts == Counts(ready=1)
    desk.member(status={"conditions": [condition("Ready", "False", "X")], "podIPs": ["10.0.0.1"]})
    assert desk.counts == Counts(warming=1)


def test_who_waits_is_woken_by_a_member_that_becomes_ready() -> None:
    desk = Desk()
    desk.furnish()
    desk.member(status={})
    assert isinstance(desk.ask(), Wait)
    desk.member()
    assert [claimant.key.name for claimant in desk.woken] == ["c"]
    assert isinstance(desk.ask(), Take)


def test_the_taker_is_not_woken_by_its_own_transfer() -> None:
    desk = Desk()
    desk.furnish()
    desk.member()
    assert isinstance(desk.ask(), Take)
    desk.member(owners=[{**POOL, "kind": "SandboxClaim", "name": "c", "uid": "c"}])
    assert desk.woken == []
    assert desk.counts == Counts()


def test_whoever_is_robbed_is_woken() -> None:
    desk = Desk()
    desk.furnish()
    desk.member()
    desk.ask()
    desk.member(owners=[{**POOL, "kind": "SandboxClaim", "name": "d", "uid": "d"}])
    assert [claimant.key.name for claimant in desk.woken] == ["c"]


def test_a_member_that_is_gone() -> None:
    desk = Desk()
    desk.furnish()
    member = desk.member()
    gone(desk.sandboxes, member)
    assert desk.counts == Counts()
    assert isinstance(desk.ask(), Cold)


def test_a_sandbox_that_loses_its_marks_is_no_member() -> None:
    desk = Desk()
    desk.furnish()
    desk.member()
    desk.member(labels={"a": "b"})
    assert desk.counts == Counts()


def test_a_template_edit_that_changes_the_blueprint_judges_members_anew() -> None:
    desk = Desk()
    desk.furnish(updateStrategy={"type": "Recreate"})
    desk.member()
    assert desk.counts == Counts(ready=1)
    desk.template(generation=2, **IMAGE)
    assert desk.counts == Counts()
    desk.template(generation=3)
    assert desk.counts == Counts(ready=1)


def test_an_edit_of_another_template_concerns_nobody() -> None:
    desk = Desk()
    desk.furnish(updateStrategy={"type": "Recreate"})
    desk.member()
    before = list(desk.assigner.told)
    other = {"name": "u", "namespace": "default", "uid": "u-uid", "generation": 2} | desk.revision()
    desk.put(desk.templates, convert(TEMPLATES, template_body("u", **IMAGE) | {"metadata": other}))
    assert desk.assigner.told == before


def test_another_template_for_the_pool_makes_its_members_stale() -> None:
    desk = Desk()
    desk.furnish(updateStrategy={"type": "Recreate"})
    other = {"name": "u", "namespace": "default", "uid": "u-uid", "generation": 1} | desk.revision()
    desk.put(
        desk.templates, convert(TEMPLATES, template_body("u", podTemplate={"spec": pod_spec()}) | {"metadata": other})
    )
    desk.member()
    desk.pool(template="u", updateStrategy={"type": "Recreate"})
    assert desk.counts == Counts()


@pytest.mark.parametrize(("strategy", "left"), [("OnReplenish", 1), ("Recreate", 0), ("RollingUpdate", 0)])
@pytest.mark.parametrize("leaving", [False, True])
def test_a_template_that_goes(strategy: str, left: int, leaving: bool) -> None:
    desk = Desk()
    desk.furnish(updateStrategy={"type": strategy})
    desk.member()
    if leaving:
        desk.template(meta={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]})
    else:
        template = desk.templates.get(Key("default", "t"))
        assert template is not None
        gone(desk.templates, template)
    assert desk.counts == Counts(ready=left)
    desk.template(uid="another-uid")
    assert desk.counts == Counts(ready=1)


@pytest.mark.parametrize("end", ["template", "pool"])
def test_what_nobody_can_judge_any_more_is_not_remembered_as_stale(end: str) -> None:
    desk = Desk()
    desk.furnish(updateStrategy={"type": "Recreate"})
    desk.member()
    desk.template(generation=2, **IMAGE)
    assert [member.stale for member in desk.assigner.members()] == [True]
    cache: Cache[Any] = desk.templates if end == "template" else desk.pools
    found = cache.get(Key("default", end[0]))
    assert found is not None
    gone(cache, found)
    assert [member.stale for member in desk.assigner.members()] == [False]
    assert desk.counts == Counts(), "nor is it offered"
    assert isinstance(desk.ask(), Cold)


def test_under_another_template_that_is_missing_nothing_is_offered() -> None:
    desk = Desk()
    desk.furnish(updateStrategy={"type": "Recreate"})
    desk.member(status={})
    assert isinstance(desk.ask(), Wait)
    desk.template(generation=2, **IMAGE)
    desk.member()
    desk.woken.clear()
    desk.pool(template="missing", updateStrategy={"type": "Recreate"})
    assert desk.assigner.held_by(Uid("c")) is None
    assert desk.counts.ready == desk.counts.warming == 0


def test_a_pool_that_goes_or_is_another_one() -> None:
    desk = Desk()
    desk.furnish()
    desk.member()
    pool = desk.pools.get(Key("default", "p"))
    assert pool is not None
    gone(desk.pools, pool)
    assert isinstance(desk.ask(), Cold)
    desk.pool(uid="another-uid")
    assert isinstance(desk.ask(), Cold)
    assert desk.assigner.counts(Uid("another-uid")) == Counts(), "members of the old one are not the new one's"


DRAINED: list[dict[str, Any]] = [
    {"unschedulable": True},
    {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
    {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
    {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
]
STAYING: list[dict[str, Any]] = [
    {},
    {"taints": [{"key": "example.com/sandboxes-only", "effect": "NoExecute"}]},
    {"taints": [{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]},
]


@pytest.mark.parametrize("spec", DRAINED, ids=str)
def test_nothing_is_offered_on_a_node_that_is_to_be_emptied(spec: dict[str, Any]) -> None:
    desk = Desk()
    desk.furnish()
    desk.member()
    desk.node(**spec)
    assert desk.counts == Counts()
    desk.node()
    assert desk.counts == Counts(ready=1)


@pytest.mark.parametrize("spec", STAYING, ids=str)
def test_other_nodes_stay_in_use(spec: dict[str, Any]) -> None:
    desk = Desk()
    desk.furnish()
    desk.member()
    desk.node(**spec)
    assert desk.counts == Counts(ready=1)


def test_a_node_that_is_gone_drains_nothing() -> None:
    desk = Desk()
    desk.furnish()
    desk.node(unschedulable=True)
    desk.member()
    node = desk.nodes.get(Key("", "n1"))
    assert node is not None
    gone(desk.nodes, node)
    assert desk.counts == Counts(ready=1)


def test_a_member_under_deletion_is_not_offered() -> None:
    desk = Desk()
    desk.furnish()
    desk.member()
    desk.member(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"])
    assert isinstance(desk.ask(), Cold)
