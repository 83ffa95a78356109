"""Each invariant can be violated: one step that must be found out, and one like it that is right."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from sandpool.model.blueprint import secure_pod_spec
from sandpool.model.claim import (
    BoundSandbox,
    EnvVar,
    Lifecycle,
    PoolRef,
    SandboxClaim,
    SandboxClaimSpec,
    SandboxClaimStatus,
)
from sandpool.model.conditions import Condition
from sandpool.model.core import Service
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.labels import TEMPLATE_REF_HASH
from sandpool.model.metadata import Metadata, OwnerReference, Revision, Uid
from sandpool.model.names import name_hash
from sandpool.model.pod import Phase, Pod, PodCondition, PodIp, PodStatus
from sandpool.model.pool import SandboxWarmPool, SandboxWarmPoolSpec, TemplateRef, UpdateStrategy
from sandpool.model.sandbox import PodTemplate, Sandbox, SandboxSpec, SandboxStatus
from sandpool.model.template import SandboxTemplate, SandboxTemplateSpec
from sandpool.simulation.invariants.knowledge import Knowledge
from sandpool.simulation.invariants.ledger import Ledger
from sandpool.simulation.invariants.order import BESIDES, EACH, Waits
from sandpool.simulation.invariants.population import within_limits
from sandpool.simulation.invariants.readiness import truthful
from sandpool.simulation.invariants.safety import JUDGES
from sandpool.simulation.steps import Author, Sight, Step

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEADER = "leader-1"


def meta(
    name: str, owner: OwnerReference | None = None, uid: str = "", namespace: str = "red", **more: Any
) -> Metadata:
    owners = () if owner is None else (owner,)
    return Metadata(name=name, namespace=namespace, uid=Uid(uid or f"uid-{name}"), owner_references=owners, **more)


def owned(kind: str, name: str) -> OwnerReference:
    return OwnerReference(api_version="x/v1", kind=kind, name=name, uid=Uid(f"uid-{name}"), controller=True)


BY_POOL, BY_CLAIM, BY_OTHER = (
    owned("SandboxWarmPool", "pool"),
    owned("SandboxClaim", "claim"),
    owned("SandboxClaim", "other"),
)


def pod_spec(image: str = "a") -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"containers": [{"name": "main", "image": image}]}))


TEMPLATE = SandboxTemplate(
    metadata=meta("template"), spec=SandboxTemplateSpec(pod_template=PodTemplate(spec=pod_spec()))
)


def box(
    name: str = "box",
    owner: OwnerReference | None = BY_POOL,
    *,
    ready: bool = True,
    service: bool | None = None,
    **more: Any,
) -> Sandbox:
    spec = msgspec.Raw(msgspec.json.encode(secure_pod_spec(TEMPLATE.spec)))
    labels = {TEMPLATE_REF_HASH: name_hash("template")}
    said = Condition(
        type="Ready", status="True" if ready else "False", reason="X", message="", last_transition_time=None
    )
    return Sandbox(
        metadata=meta(name, owner, labels=labels, **more),
        spec=SandboxSpec(pod_template=PodTemplate(spec=spec), service=service),
        status=SandboxStatus(conditions=(said,), pod_ips=("10.0.0.1",)),
    )


POD = Pod(
    metadata=meta("box", owned("Sandbox", "box")),
    status=PodStatus(
        phase=Phase.RUNNING,
        conditions=(PodCondition(type="Ready", status="True"),),
        pod_ips=(PodIp(ip="10.0.0.1"),),
    ),
)


def service(of: str) -> Service:
    return Service(metadata=meta("box", owned("Sandbox", of)))


def claim(
    name: str = "claim", shows: str = "", *, env: bool = False, ends: int | None = None, **more: Any
) -> SandboxClaim:
    lifecycle = None if ends is None else Lifecycle(shutdown_time=NOW + timedelta(seconds=ends))
    variables = (EnvVar(name="A", value="b"),) if env else ()
    return SandboxClaim(
        metadata=meta(name, **more),
        spec=SandboxClaimSpec(warm_pool_ref=PoolRef(name="pool"), env=variables, lifecycle=lifecycle),
        status=SandboxClaimStatus(sandbox=BoundSandbox(name=shows) if shows else None),
    )


def pool(strategy: str = "Recreate", replicas: int = 1) -> SandboxWarmPool:
    spec = SandboxWarmPoolSpec(
        sandbox_template_ref=TemplateRef(name="template"),
        replicas=replicas,
        update_strategy=UpdateStrategy(type=strategy),
    )
    return SandboxWarmPool(metadata=meta("pool"), spec=spec)


def step(old: Any, new: Any, controller: str = "claim", at: float = 10.0, **saw: Any) -> Step:
    obj = new if new is not None else old
    resource = SANDBOXES if isinstance(obj, Sandbox) else CLAIMS
    author = Author(LEADER, controller, f"{controller}-1", None, at, Sight(**saw))
    return Step(at, author, resource, str(obj.metadata.key), Revision(1), old, new)


def ledger(*objects: Any) -> Ledger:
    """What is there before the step."""
    kept = Ledger()
    for obj in objects:
        kept.enter(step(None, obj, "user"))
        if isinstance(obj, Sandbox):
            kept.makers[obj.metadata.uid] = LEADER
            kept.givers.pop(obj.metadata.uid, None)
    return kept


def given(name: str, *objects: Any) -> Ledger:
    """The same, where the leader itself has got its claim the sandbox of that name."""
    kept = ledger(*objects)
    kept.givers[Uid(f"uid-{name}")] = LEADER
    return kept


def judged(before: Ledger, change: Step) -> list[str]:
    def all_of_them() -> Iterator[str]:
        for judge in JUDGES:
            yield from judge(before, change)
        yield from truthful(before, change)

    return list(all_of_them())


LEAVING = NOW
CASES: dict[str, tuple[Ledger, Step, str]] = {
    "taken from its pool": (ledger(claim(), box()), step(box(), box(owner=BY_CLAIM)), ""),
    "handed on": (ledger(box(owner=BY_CLAIM)), step(box(owner=BY_CLAIM), box(owner=BY_OTHER)), "1: "),
    "two owners": (
        ledger(),
        step(
            None,
            msgspec.structs.replace(
                box(),
                metadata=msgspec.structs.replace(box().metadata, owner_references=(BY_POOL, BY_CLAIM)),
            ),
            "pool",
        ),
        "1: ",
    ),
    "a second gift": (
        given("first", claim(), box("first", BY_CLAIM), box()),
        step(box(), box(owner=BY_CLAIM)),
        "1: ",
    ),
    "a member before what was started cold": (
        given("claim", claim(), box("claim", BY_CLAIM), box()),
        step(box(), box(owner=BY_CLAIM)),
        "",
    ),
    "the same, of a claim that shows what it has lost": (
        given("claim", claim(shows="lost"), box("claim", BY_CLAIM), box()),
        step(box(), box(owner=BY_CLAIM)),
        "",
    ),
    "the same, of a claim that shows what it has": (
        given("claim", claim(shows="first"), box("claim", BY_CLAIM), box("first", BY_CLAIM), box()),
        step(box(), box(owner=BY_CLAIM)),
        "1: ",
    ),
    "the same, of a claim that shows what was started cold": (
        given("claim", claim(shows="claim"), box("claim", BY_CLAIM), box()),
        step(box(), box(owner=BY_CLAIM)),
        "1: ",
    ),
    "with variables": (ledger(claim(env=True), box()), step(box(), box(owner=BY_CLAIM)), "6: "),
    "to another namespace": (ledger(claim(namespace="blue"), box()), step(box(), box(owner=BY_CLAIM)), "7: "),
    "claimed, then touched by its pool": (
        ledger(claim(), box(owner=BY_CLAIM)),
        step(box(owner=BY_CLAIM), box(owner=BY_CLAIM), "pool"),
        "3: ",
    ),
    "claimed, then deleted by its pool": (
        ledger(claim(), box(owner=BY_CLAIM)),
        step(box(owner=BY_CLAIM), None, "pool"),
        "3: ",
    ),
    "unclaimed, deleted by its pool": (ledger(box()), step(box(), None, "pool"), ""),
    "created with a sandbox that is not its own": (
        ledger(box()),
        step(None, claim(shows="box"), "user"),
        "1: ",
    ),
    "created without a sandbox": (ledger(box()), step(None, claim(env=True), "user"), ""),
    "shown, then deleted": (
        ledger(claim(shows="box"), box(owner=BY_CLAIM)),
        step(box(owner=BY_CLAIM), None),
        "3: ",
    ),
    "surplus, deleted": (ledger(claim(shows="other"), box(owner=BY_CLAIM)), step(box(owner=BY_CLAIM), None), ""),
    "shows its own": (ledger(claim(), box(owner=BY_CLAIM)), step(claim(), claim(shows="box")), ""),
    "shows what it started cold before it is ready": (
        ledger(claim(), box("claim", BY_CLAIM, ready=False)),
        step(claim(), claim(shows="claim"), pool=pool()),
        "order: ",
    ),
    "the same, where it knew of no pool that may have members": (
        ledger(claim(), box("claim", BY_CLAIM, ready=False)),
        step(claim(), claim(shows="claim")),
        "",
    ),
    "shows another's": (ledger(claim(), box(owner=BY_OTHER)), step(claim(), claim(shows="box")), "1: "),
    "shows two": (
        ledger(claim(shows="box"), box(owner=BY_CLAIM), box("second", BY_CLAIM)),
        step(claim(shows="box"), claim(shows="second")),
        "1: ",
    ),
    "stale under Recreate": (
        ledger(claim(), box()),
        step(
            box(),
            box(owner=BY_CLAIM),
            pool=pool(),
            template=msgspec.structs.replace(
                TEMPLATE, spec=SandboxTemplateSpec(pod_template=PodTemplate(spec=pod_spec("b")))
            ),
        ),
        "5: ",
    ),
    "fresh under Recreate": (
        ledger(claim(), box()),
        step(box(), box(owner=BY_CLAIM), pool=pool(), template=TEMPLATE),
        "",
    ),
    "without a template": (ledger(claim(), box()), step(box(), box(owner=BY_CLAIM), pool=pool()), "5: "),
    "without a template, on replenish": (
        ledger(claim(), box()),
        step(box(), box(owner=BY_CLAIM), pool=pool("OnReplenish")),
        "",
    ),
    "ended early": (ledger(claim(ends=20)), step(claim(ends=20), None), "10: "),
    "ended in time": (ledger(claim(ends=10)), step(claim(ends=10), None), ""),
    "served after its end": (
        ledger(claim(ends=5), box()),
        step(box(), box(owner=BY_CLAIM), claim=claim(ends=5), began=6.0),
        "10: ",
    ),
    "sandbox ended early": (ledger(box(owner=None)), step(box(owner=None), None, "sandbox"), "10: "),
    "another of that name": (
        ledger(box(uid="new")),
        step(box(uid="new"), box(uid="new"), "sandbox", object=box()),
        "uid: ",
    ),
    "no longer ready, for no reason": (
        ledger(box()),
        step(
            box(),
            box(ready=False),
            "sandbox",
            pod=POD,
        ),
        "8: ",
    ),
    "no longer ready, though it has its Service": (
        ledger(box(service=True)),
        step(box(service=True), box(ready=False, service=True), "sandbox", pod=POD, service=service("box")),
        "8: ",
    ),
    "no longer ready, for its Service is gone": (
        ledger(box(service=True)),
        step(box(service=True), box(ready=False, service=True), "sandbox", pod=POD),
        "",
    ),
    "no longer ready, for the Service is that of an earlier one": (
        ledger(box(service=True)),
        step(box(service=True), box(ready=False, service=True), "sandbox", pod=POD, service=service("earlier")),
        "",
    ),
    "no longer ready, for its pod is gone": (ledger(box()), step(box(), box(ready=False), "sandbox"), ""),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_judged(name: str) -> None:
    before, change, expected = CASES[name]
    found = judged(before, change)
    if expected:
        assert len(found) == 1, found
        assert found[0].startswith(expected)
    else:
        assert found == []


def _made(members: int, limits: list[tuple[float, int]], made_by: str = LEADER) -> list[str]:
    kept = ledger(pool(), *(box(f"m{number}") for number in range(members)))
    kept.makers.update(dict.fromkeys(kept.makers, made_by))
    kept.born.update(dict.fromkeys(kept.born, Revision(9)))
    known = {LEADER: Knowledge(limits={Uid("uid-pool"): limits})}
    return list(within_limits(kept, step(None, box("new"), "pool"), known, {LEADER: Revision(5)}))


@pytest.mark.parametrize(
    ("members", "limits", "violated"),
    [
        (1, [(0.0, 2)], False),
        (2, [(0.0, 2)], True),
        (2, [(0.0, 3), (9.0, 2)], True),  # it knew of the lower limit before it asked
        (2, [(0.0, 3), (10.0, 2)], False),  # it learned of it in that moment
        (0, [], True),  # it never heard of such a pool
    ],
)
def test_a_pool_makes_no_more_than_its_leader_knew_it_may(
    members: int, limits: list[tuple[float, int]], violated: bool
) -> None:
    assert bool(_made(members, limits)) is violated


def test_members_of_another_leader_do_not_count() -> None:
    assert _made(2, [(0.0, 2)], made_by="leader-2") == []


@pytest.mark.parametrize(("left", "violated"), [(2, False), (1, True)])
def test_a_rollout_leaves_enough(left: int, violated: bool) -> None:
    change = step(box(), None, "pool", left=left, floor=2)
    assert bool(list(within_limits(ledger(box()), change, {}, {}))) is violated


def _waited(*ends: SandboxClaim | None, writes: int) -> list[str]:
    """One claim waits when the calm begins; so many writes later it is in each of these states."""
    waits = Waits([claim()])
    found = [what for _ in range(writes) for what in waits.step(step(None, box("other"), "pool"))]
    old: SandboxClaim | None = claim()
    for new in ends:
        found += waits.step(step(old, new, "claim"))
        old = new
    return found


def test_a_wait_ends_within_so_many_writes() -> None:
    most = EACH + BESIDES
    assert _waited(claim(shows="box"), writes=most - 1) == []
    (found,) = _waited(claim(shows="box"), claim(shows="box"), writes=most)
    assert found.startswith("wait: claim red/claim is served")
    assert _waited(claim(), writes=2 * most) == [], "whether it should have been served is asked in the end"
    assert _waited(None, writes=2 * most) == [], "nobody waits for it any more"
