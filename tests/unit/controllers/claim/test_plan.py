"""What a claim needs next: one row, one decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from conformance.bodies import pool as pool_body
from sandpool.controllers.claim.plan import cold_step, next_step
from sandpool.controllers.claim.pod_metadata import USER_DOMAINS
from sandpool.controllers.claim.steps import (
    Ask,
    Bind,
    CleanUp,
    Create,
    Hold,
    Keep,
    Leave,
    Look,
    Mark,
    Refuse,
    Remove,
    Start,
    describe,
)
from sandpool.controllers.claim.view import ClaimView
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.codec import convert
from sandpool.model.kinds import POOLS
from sandpool.model.metadata import Uid
from sandpool.model.sandbox import Sandbox
from support.simulated.claim_parts import POOL as POOL_OWNER
from support.simulated.claim_parts import a_claim, a_member, a_template, condition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POOL = convert(POOLS, pool_body("p") | {"metadata": {"name": "p", "namespace": "default", "uid": "pool-uid"}})
TEMPLATE = a_template(envVarsInjectionPolicy="Allowed")
MINE = {**POOL_OWNER, "kind": "SandboxClaim", "name": "c", "uid": "claim-uid"}
EARLIER = {**MINE, "uid": "an-earlier-uid"}
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
ENV: dict[str, Any] = {"env": [{"name": "A", "value": "1"}]}


def mine(name: str = "m", *, uid: str = "", launch: str = "warm", **meta: Any) -> Sandbox:
    return a_member(name=name, uid=uid or f"{name}-uid", owners=[MINE], labels={labels.LAUNCH_TYPE: launch}, **meta)


def bound(name: str = "m", *conditions: dict[str, Any]) -> dict[str, Any]:
    return {"sandbox": {"name": name}, "conditions": list(conditions)}


def ends(later: float, policy: str = "Retain") -> dict[str, Any]:
    moment = (NOW + timedelta(seconds=later)).isoformat()
    return {"lifecycle": {"shutdownTime": moment, "shutdownPolicy": policy}}


EXPIRED = condition("Ready", "False", "ClaimExpired")


@dataclass(frozen=True)
class Case:
    name: str
    claim: SandboxClaim
    step: type | tuple[type, Any]
    owned: tuple[Sandbox, ...] = ()
    view: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("it is being deleted", a_claim(meta=GOING, status=bound()), Leave, (mine(),)),
    Case("bound to what it owns", a_claim(status=bound()), (Keep, "m"), (mine("x"), mine())),
    Case("bound to what goes away", a_claim(status=bound()), (Keep, "m"), (mine(**GOING),)),
    Case("bound to what is not seen", a_claim(status=bound()), (Look, "m"), (mine("x"),)),
    Case("bound to what is lost for sure", a_claim(status=bound()), (Bind, "x"), (mine("x"),), {"looked": True}),
    Case("lost, and nothing else", a_claim(status=bound()), Ask, view={"looked": True}),
    Case("owns one that nobody told of", a_claim(), (Bind, "m"), (mine(),)),
    Case("owns several", a_claim(), (Bind, "x"), (mine("x"), mine())),
    Case("owns one that goes away", a_claim(), Ask, (mine(),), {"going": frozenset({Uid("m-uid")})}),
    Case("owns a warm one and wants variables", a_claim(**ENV), Start, (mine(),)),
    Case("owns a cold one and wants variables", a_claim(**ENV), (Bind, "m"), (mine(launch="cold"),)),
    Case("wants variables", a_claim(**ENV), Start),
    Case("plain", a_claim(), Ask),
    Case("no pool", a_claim(), (Refuse, "WarmPoolNotFound"), view={"pool": None}),
    Case(
        "bad metadata goes before a missing pool",
        a_claim(additionalPodMetadata={"labels": {"team": "a"}}),
        (Refuse, "InvalidMetadata"),
        view={"pool": None},
    ),
    Case(
        "bad metadata, but bound",
        a_claim(additionalPodMetadata={"labels": {"a": "b"}}, status=bound()),
        (Keep, "m"),
        (mine(),),
    ),
    Case("its time has not come", a_claim(**ends(1)), Ask),
    Case("its time has come", a_claim(**ends(0)), Mark),
    Case("its time has come, bound", a_claim(status=bound(), **ends(-9)), Mark, (mine(),)),
    Case("told, delete", a_claim(status=bound("m", EXPIRED), **ends(0, "Delete")), (Remove, False), (mine(),)),
    Case(
        "told, foreground",
        a_claim(status=bound("m", EXPIRED), **ends(0, "DeleteForeground")),
        (Remove, True),
        (mine(),),
    ),
    Case("told, retain", a_claim(status=bound("m", EXPIRED), **ends(0)), (CleanUp, ["m", "x"]), (mine(), mine("x"))),
    Case("told, retain, not seen", a_claim(status=bound("m", EXPIRED), **ends(0)), (Look, "m"), (mine("x"),)),
    Case(
        "told, retain, on its way",
        a_claim(status=bound("m", EXPIRED), **ends(0)),
        (CleanUp, []),
        (mine(),),
        {"going": frozenset({Uid("m-uid")})},
    ),
    Case("told, given more time", a_claim(status={"conditions": [EXPIRED]}, **ends(60)), Ask),
]


def essence(step: object) -> object:
    match step:
        case Keep(sandbox) | Bind(sandbox) | Create(sandbox):
            return sandbox.metadata.name
        case Look(name):
            return name
        case Refuse(reason, _):
            return reason
        case Remove(foreground):
            return foreground
        case CleanUp(sandboxes):
            return [one.metadata.name for one in sandboxes]
    return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_next_step(case: Case) -> None:
    view = ClaimView(case.claim, case.owned, **{"pool": POOL, "template": TEMPLATE, **case.view})
    step = next_step(view, USER_DOMAINS, NOW)
    kind, value = case.step if isinstance(case.step, tuple) else (case.step, None)
    assert type(step) is kind, describe(step)
    assert essence(step) == value
    assert describe(step)


FOREIGN = a_member(name="c", uid="foreign", owners=[{**MINE, "kind": "Other", "uid": "other"}])
OLD = a_member(name="c", uid="old", owners=[EARLIER])
COLD_CASES: list[tuple[str, dict[str, Any], dict[str, Any], type, Any]] = [
    ("all there", {}, {}, Create, "c"),
    ("no pool", {}, {"pool": None}, Refuse, "WarmPoolNotFound"),
    ("no template", {}, {"template": None}, Refuse, "TemplateNotFound"),
    ("no walls yet", {}, {"unprotected": "the policy is missing"}, Hold, None),
    ("a foreign sandbox has the name", {}, {"named": FOREIGN}, Refuse, "ReconcilerError"),
    ("an earlier claim's sandbox has the name", {}, {"named": OLD}, Hold, None),
    ("our own of that name goes away", {}, {"named": mine("c", launch="cold", **GOING)}, Hold, None),
    ("variables that are allowed", ENV, {}, Create, "c"),
    ("variables that are not", ENV, {"template": a_template()}, Refuse, "EnvVarsInjectionRejected"),
    (
        "storage that is not",
        {"volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]},
        {},
        Refuse,
        "VolumeClaimTemplatesError",
    ),
]


@pytest.mark.parametrize(("name", "asks", "has", "kind", "value"), COLD_CASES, ids=[case[0] for case in COLD_CASES])
def test_cold_step(name: str, asks: dict[str, Any], has: dict[str, Any], kind: type, value: object) -> None:
    view = ClaimView(a_claim(**asks), **{"pool": POOL, "template": TEMPLATE, **has})
    step = cold_step(view, USER_DOMAINS)
    assert type(step) is kind, describe(step)
    assert essence(step) == value
    assert describe(step)


def test_surplus_is_what_the_status_does_not_name() -> None:
    view = ClaimView(a_claim(status=bound()), (mine("x"), mine(), mine("y")))
    assert [one.metadata.name for one in view.surplus] == ["x", "y"]


def test_nothing_is_surplus_before_a_status_names_one() -> None:
    """The first binding that lands decides: until then nobody knows which one it will be."""
    assert ClaimView(a_claim(), (mine("x"), mine())).surplus == ()


def test_nothing_is_surplus_while_the_bound_one_goes_away() -> None:
    view = ClaimView(a_claim(status=bound()), (mine("x"), mine()), going=frozenset({Uid("m-uid")}))
    assert view.surplus == ()


def test_what_is_surplus_and_on_its_way_is_not_deleted_twice() -> None:
    view = ClaimView(a_claim(status=bound()), (mine("x"), mine()), going=frozenset({Uid("x-uid")}))
    assert view.surplus == ()


def test_a_view_is_a_value() -> None:
    view = ClaimView(a_claim())
    assert view == ClaimView(msgspec.structs.replace(a_claim()))
