"""Pools and sandboxes, as a scraper sees them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from sandpool.controllers.assigner.facts import Cause, Claimant, Take, member_of, pool_of
from sandpool.model import labels
from sandpool.model.claim import EnvVar
from sandpool.model.metadata import Uid
from sandpool.model.sandbox import Sandbox
from support.simulated.claim_parts import POOL
from support.simulated.measured_world import World, key, owner

P = {"namespace": "default", "pool": "p"}
DEFAULT_POOL = [{**POOL, "uid": "default-p-uid"}]
CREATION = "agent_sandbox_creation_latency_ms"


def test_a_pool_tells_what_it_has_and_who_waits() -> None:
    world = World()
    pool = world.pool(replicas=5)
    world.assigner.put_pool(pool_of(pool, template_known=True))
    for name, ready in (("a", True), ("b", True), ("w", False)):
        sandbox = world.sandbox(name, ready=ready, owners=DEFAULT_POOL)
        sandbox = msgspec.structs.replace(
            sandbox, status=msgspec.structs.replace(sandbox.status, pod_ips=("10.0.0.1",))
        )
        member = member_of(sandbox, stale=False)
        assert member is not None
        world.assigner.put_member(member)
    now = world.clock.now()
    for number in range(3):
        claimant = Claimant(Uid(f"u{number}"), key(f"c{number}"))
        decision = world.assigner.acquire(claimant, pool.metadata.uid, now, now + timedelta(seconds=9))
        assert isinstance(decision, Take) == (number < 2)
        if number == 0:
            world.assigner.commit(claimant.uid)
    assert world.text("sandpool_pool_") == [
        'sandpool_pool_desired{namespace="default",pool="p"} 5.0',
        'sandpool_pool_ready{namespace="default",pool="p"} 0.0',
        'sandpool_pool_warming{namespace="default",pool="p"} 1.0',
        'sandpool_pool_reserved{namespace="default",pool="p"} 1.0',
        'sandpool_pool_waiting{namespace="default",pool="p"} 1.0',
        'sandpool_pool_oldest_wait_seconds{namespace="default",pool="p"} 0.0',
        'sandpool_pool_expected_wait_seconds{namespace="default",pool="p"} 0.0',
        'sandpool_pool_starts_per_second{namespace="default",pool="p"} 0.0',
        'sandpool_pool_claimed{namespace="default",pool="p"} 0.0',
        'sandpool_pool_hits_total{namespace="default",pool="p"} 0.0',
        'sandpool_pool_misses_total{namespace="default",pool="p"} 0.0',
    ]


def test_hits_misses_and_what_is_held() -> None:
    world = World()
    world.pool()
    warm, cold, special = (world.claim(name) for name in ("warm", "cold", "special"))
    spec = msgspec.structs.replace(special.spec, env=(EnvVar(name="A", value="1"),))
    special = world.put(world.claims, msgspec.structs.replace(special, spec=spec))
    world.sandbox("s1", ready=True, owners=DEFAULT_POOL)
    world.handed(warm, "s1")
    world.handed(cold, "cold", launch="cold", ready=False)
    world.handed(special, "special", launch="cold", ready=False)
    world.handed(warm, "s1", ready=False)  # a change of a claimed sandbox hands nothing over
    held = world.bound(warm, "s1")
    world.bound(cold, "cold", ready=False)
    assert world.sample("sandpool_pool_hits_total", **P) == 1
    assert world.sample("sandpool_pool_misses_total", **P) == 1, "one with env could not have had a warm member"
    assert world.sample("sandpool_pool_claimed", **P) == 2
    world.drop(world.claims, held)
    assert world.sample("sandpool_pool_claimed", **P) == 1
    line = {"namespace": "default", "sandbox_template": "t", "warmpool_name": "p", "created_by": "unknown"}
    read = "agent_sandbox_claim_creation_total"
    assert world.sample(read, launch_type="warm", pod_condition="ready", **line) == 1
    assert world.sample(read, launch_type="cold", pod_condition="not_ready", **line) == 2


def test_waits_of_pools_that_share_a_line_are_not_added_up() -> None:
    world = World(most=1)
    for name in ("named", "old", "young"):
        pool = world.pool(name)
        world.clock.advance(15.0)
        world.assigner.put_pool(pool_of(pool, template_known=True))
        world.assigner.line_up(Claimant(Uid(name), key(name)), pool.metadata.uid)
    world.clock.advance(5.0)
    shared = {"namespace": "__other__", "pool": "__other__"}
    assert world.sample("sandpool_pool_waiting", **shared) == 2
    assert world.sample("sandpool_pool_oldest_wait_seconds", **shared) == 20.0


def test_cold_starts_are_told_by_reason_and_vanish_with_their_pool() -> None:
    world = World()
    pool = world.pool()
    for cause in (Cause.SOONER, Cause.SOONER, Cause.ENV):
        world.measures.started_cold(world.claim(), cause)
    assert world.sample("sandpool_pool_cold_starts_total", reason="sooner", **P) == 2
    assert world.sample("sandpool_pool_cold_starts_total", reason="env", **P) == 1
    world.drop(world.pools, pool)
    assert world.text("sandpool_pool_cold_starts_total") == []


def test_a_reference_that_anybody_can_write_counts_nothing() -> None:
    world = World()
    world.pool()
    claim = world.claim()
    world.sandbox("forged", owners=[{**owner(claim), "uid": "made-up"}])
    world.sandbox("stray", owners=[{**owner(claim), "name": "nobody"}])
    assert world.text("agent_sandbox_claim_creation_total") == []


def test_series_of_a_deleted_pool_vanish() -> None:
    world = World()
    pool, other = world.pool(), world.pool("q", template="u")
    for name, of in (("c", "p"), ("d", "q")):
        claim = world.claim(name, pool=of)
        world.handed(claim, name)
        world.bound(claim, name)
    world.drop(world.pools, pool)
    scrape = world.metrics.expose().decode()
    assert 'pool="p"' not in scrape
    assert 'warmpool_name="p"' not in scrape
    assert 'sandbox_template="t"' not in scrape
    assert 'warmpool_name="q"' in scrape
    assert 'sandbox_template="u"' in scrape
    world.drop(world.pools, other)
    world.pool("q", template="u", uid="another")
    assert world.sample("sandpool_pool_hits_total", namespace="default", pool="q") == 0


def test_a_template_stays_named_while_one_pool_refers_to_it() -> None:
    world = World()
    first = world.pool()
    world.pool("q")
    claim = world.claim(pool="q")
    world.bound(claim, "s")
    name = "agent_sandbox_claim_controller_startup_latency_ms_count"
    world.drop(world.pools, first)
    assert world.sample(name, launch_type="unknown", sandbox_template="t") == 1
    world.pool("q", template="new")
    assert world.sample(name, launch_type="unknown", sandbox_template="t") is None


def test_a_claim_on_a_missing_pool_is_nobodys() -> None:
    world = World()
    claim = world.claim(pool="x" * 200)
    world.bound(claim, "s")
    assert "xxx" not in world.metrics.expose().decode()
    count = "agent_sandbox_claim_controller_startup_latency_ms_count"
    assert world.sample(count, launch_type="unknown", sandbox_template="__unknown__") == 1


def test_the_number_of_names_is_bounded() -> None:
    world = World(most=2)
    pools = [world.pool(f"p{n}", template=f"t{n}", replicas=1) for n in range(5)]
    for number in range(5):
        claim = world.claim(f"c{number}", pool=f"p{number}")
        world.handed(claim, f"s{number}")
        world.bound(claim, f"s{number}")
    other = {"namespace": "__other__", "pool": "__other__"}
    assert len(world.text("sandpool_pool_desired")) == 3
    assert world.sample("sandpool_pool_desired", **other) == 3
    assert world.sample("sandpool_pool_hits_total", **other) == 3
    assert world.sample("sandpool_claim_ready_seconds_count", launch_type="warm", **other) == 3
    by_template = world.text("agent_sandbox_claim_controller_startup_latency_ms_count")
    assert sorted(line.partition('template="')[2].partition('"')[0] for line in by_template) == [
        "__other__",
        "t0",
        "t1",
    ]
    world.drop(world.pools, pools[0])
    world.pool("new", template="tnew")
    assert world.sample("sandpool_pool_desired", namespace="default", pool="new") == 3, "a place became free"


def test_annotations_of_tenants_never_become_labels() -> None:
    world = World()
    world.pool()
    for number in range(50):
        marks = {labels.CREATED_BY: f"me-{number}", labels.LAUNCH_TYPE: f"odd-{number}"}
        world.sandbox(f"s{number}", owners=DEFAULT_POOL, labels=marks, annotations={labels.TEMPLATE_REF: f"x-{number}"})
    assert world.text("agent_sandboxes") == [
        'agent_sandboxes{created_by="unknown",expired="false",launch_type="cold",namespace="default",'
        'owned_by="SandboxWarmPool",ready_condition="false",sandbox_template="unknown"} 50.0'
    ]


def test_a_member_that_an_old_version_owns_is_its_pools() -> None:
    world = World()
    old = {**DEFAULT_POOL[0], "apiVersion": "extensions.agents.x-k8s.io/v1alpha1"}
    world.sandbox("old", owners=[old])
    world.sandbox("foreign", owners=[{**old, "apiVersion": "example.com/v1"}])
    shown = [line.partition('owned_by="')[2].partition('"')[0] for line in world.text("agent_sandboxes")]
    assert sorted(shown) == ["None", "SandboxWarmPool"]


def test_the_census_follows_every_step() -> None:
    world = World(filled=False)
    notes: dict[str, Any] = {"annotations": {labels.TEMPLATE_REF: "t"}}
    sandbox = world.sandbox("a", owners=DEFAULT_POOL, **notes)
    world.sandbox("b", ready=True, owners=DEFAULT_POOL, **notes)
    world.fill()

    def counted(template: str, ready: str) -> float | None:
        return world.sample(
            "agent_sandboxes", namespace="default", ready_condition=ready, expired="false", launch_type="warm",
            sandbox_template=template, owned_by="SandboxWarmPool", created_by="controller",
        )  # fmt: skip

    assert (counted("unknown", "false"), counted("unknown", "true")) == (1, 1)
    world.pool()
    assert (counted("t", "false"), counted("t", "true")) == (1, 1), "the pool came later and vouches for the name"
    world.sandbox("a", ready=True, owners=DEFAULT_POOL, **notes)
    assert (counted("t", "false"), counted("t", "true")) == (None, 2)
    world.drop(world.sandboxes, sandbox)
    assert counted("t", "true") == 1


@pytest.mark.parametrize(
    ("state", "status", "spec", "meta"),
    [
        ("starting", [], {}, {}),
        ("ready", [("Ready", "True", "DependenciesReady")], {}, {}),
        ("suspended", [("Ready", "False", "SandboxSuspended")], {"operating_mode": "Suspended"}, {}),
        ("finished", [("Ready", "False", "X"), ("Finished", "True", "PodSucceeded")], {}, {}),
        ("expired", [("Ready", "False", "SandboxExpired"), ("Finished", "True", "X")], {}, {}),
        ("leaving", [("Ready", "True", "X")], {}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
)
def test_states(state: str, status: list[tuple[str, str, str]], spec: dict[str, str], meta: dict[str, Any]) -> None:
    world = World()
    sandbox = world.sandbox("s", owners=DEFAULT_POOL, **meta)
    told = [{"type": a, "status": b, "reason": c, "message": "", "lastTransitionTime": None} for a, b, c in status]
    sandbox = msgspec.structs.replace(
        sandbox,
        spec=msgspec.structs.replace(sandbox.spec, **spec),
        status=msgspec.convert({"conditions": told}, type(sandbox.status)),
    )
    world.put(world.sandboxes, sandbox)
    assert world.text("sandpool_sandboxes") == [f'sandpool_sandboxes{{namespace="default",state="{state}"}} 1.0']


def test_a_start_is_timed_to_the_millisecond_also_without_a_claim() -> None:
    world = World()
    world.sandbox("bare", owners=[{**POOL, "controller": False}], labels={})
    world.clock.advance(0.125)
    world.sandbox("bare", ready=True, owners=[{**POOL, "controller": False}], labels={})
    here = {"namespace": "default", "launch_type": "cold", "sandbox_template": "unknown"}
    assert world.sample(f"{CREATION}_sum", **here) == 125
    world.sandbox("bare", ready=False)
    world.sandbox("bare", ready=True)
    assert world.sample(f"{CREATION}_count", **here) == 1


def test_starts_that_say_nothing_are_not_timed() -> None:
    world = World(filled=False)
    old = world.sandbox("old")
    world.fill()
    world.sandbox("old", ready=True)
    asleep = world.sandbox("asleep")
    spec = msgspec.structs.replace(asleep.spec, operating_mode="Suspended")
    world.put(world.sandboxes, msgspec.structs.replace(asleep, spec=spec))
    world.sandbox("asleep", ready=True)
    gone = world.sandbox("gone")
    world.drop(world.sandboxes, gone)
    assert world.text(CREATION) == []
    assert world.measures.timed == 0
    assert isinstance(old, Sandbox)


def test_namespaces_make_room_for_others_when_they_are_empty() -> None:
    world = World(most=2)
    boxes = {}
    for name in ("n1", "n2", "n3"):
        world.sandbox(name, namespace=name)
        boxes[name] = world.sandbox(name, ready=True, namespace=name)

    def shown() -> list[str]:
        return [line.partition('namespace="')[2].partition('"')[0] for line in world.text(f"{CREATION}_count")]

    assert shown() == ["n1", "n2", "__other__"]
    world.drop(world.sandboxes, boxes["n1"])
    world.sandbox("n4", namespace="n4")
    world.sandbox("n4", ready=True, namespace="n4")
    assert shown() == ["n2", "__other__", "n4"]


def test_a_step_looks_at_nothing_but_its_object() -> None:
    """A thousand sandboxes later a claim still costs the same: no cache is walked."""
    world = World()
    world.pool()
    for number in range(1000):
        world.sandbox(f"s{number}", ready=True, owners=DEFAULT_POOL)
    walked = 0

    def forbidden() -> None:
        nonlocal walked
        walked += 1

    for cache in (world.claims, world.sandboxes):
        cache.objects = _Watched(cache.objects, forbidden)  # type: ignore[arg-type]
    claim = world.claim()
    world.handed(claim, "s1")
    world.bound(claim, "s1")
    world.metrics.expose()
    assert walked == 0


class _Watched(dict):  # type: ignore[type-arg]
    """A dict that tells when somebody goes through it."""

    def __init__(self, content: dict[object, object], told: object) -> None:
        super().__init__(content)
        self._told = told

    def __iter__(self) -> object:  # type: ignore[override]
        self._told()  # type: ignore[operator]
        return super().__iter__()

    def values(self) -> object:  # type: ignore[override]
        self._told()  # type: ignore[operator]
        return super().values()

    def items(self) -> object:  # type: ignore[override]
        self._told()  # type: ignore[operator]
        return super().items()
