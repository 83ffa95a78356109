"""What a claim's status says, and the patch that makes it say so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.controllers.claim.status import ended, forwarded, misleads, same, status_patch, unbound
from sandpool.model.conditions import find
from sandpool.model.patches import PatchError, apply_json_patch
from sandpool.model.reasons import TERMINAL_FOR_CLIENTS, Reason
from support.simulated.claim_parts import a_claim, a_member, claim_body, condition

NOW = datetime(2026, 2, 1, tzinfo=UTC)
READY = {"conditions": [condition()], "podIPs": ["10.0.0.1"]}
FINISHED = condition("Finished", "True", "PodSucceeded", observedGeneration=9)


def test_ready_is_forwarded_with_the_claims_generation() -> None:
    status = forwarded(a_claim(), a_member(status={**READY, "conditions": [condition(observedGeneration=9)]}), NOW)
    ready = find(status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.message, ready.observed_generation) == (
        "True",
        "DependenciesReady",
        "m",
        3,
    )
    assert status.sandbox is not None
    assert (status.sandbox.name, status.sandbox.pod_ips) == ("warm", ("10.0.0.1",))


def test_a_sandbox_that_says_nothing_yet() -> None:
    ready = find(forwarded(a_claim(), a_member(), NOW).conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.message) == ("False", "SandboxNotReady", "Sandbox is not ready")


def test_a_sandbox_that_goes_away_is_not_ready_whatever_it_said() -> None:
    leaving = a_member(status=READY, deletionTimestamp="2026-01-01T00:00:00Z")
    ready = find(forwarded(a_claim(), leaving, NOW).conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "DependenciesNotReady")


def test_trouble_is_told_beside_ready_and_taken_back() -> None:
    claim, sandbox = a_claim(), a_member(status=READY)
    fine = forwarded(claim, sandbox, NOW)
    assert find(fine.conditions, "Healthy") is None, "nothing to tell, nothing told"
    ill = forwarded(claim, sandbox, NOW, (Reason.CONTROLLER_TROUBLE, "x"))
    assert [(one.type, one.status) for one in ill.conditions] == [("Ready", "True"), ("Healthy", "False")]
    again = forwarded(a_claim(status={"conditions": [condition(), condition("Healthy", "False", "X")]}), sandbox, NOW)
    healthy = find(again.conditions, "Healthy")
    assert healthy is not None
    assert (healthy.status, healthy.reason) == ("True", "AsExpected")


def test_a_pod_that_does_not_start_is_told_unless_something_worse_is() -> None:
    held_up = condition("Healthy", "False", "PodNotStarting", message="why")
    sandbox = a_member(status={"conditions": [condition(status="False", reason="DependenciesNotReady"), held_up]})
    told = find(forwarded(a_claim(), sandbox, NOW).conditions, "Healthy")
    assert told is not None
    assert (told.status, told.reason, told.message) == ("False", "PodNotStarting", "why")
    worse = find(forwarded(a_claim(), sandbox, NOW, (Reason.CONTROLLER_TROUBLE, "x")).conditions, "Healthy")
    assert worse is not None
    assert worse.reason == "ControllerTrouble"


def test_without_a_sandbox_nothing_of_the_last_one_is_left() -> None:
    old = {"sandbox": {"name": "lost"}, "conditions": [condition(), FINISHED, condition("Healthy", "False", "X")]}
    status = unbound(a_claim(status=old), "SandboxMissing", "m", NOW)
    assert [(one.type, one.status) for one in status.conditions] == [("Ready", "False")]
    assert status.sandbox is None


@pytest.mark.parametrize("there", [True, False])
def test_an_end_keeps_how_the_work_ended(there: bool) -> None:
    claim = a_claim(status={"sandbox": {"name": "warm"}, "conditions": [condition(), FINISHED]})
    sandbox = a_member(status={"conditions": [condition(), FINISHED]}) if there else None
    status = ended(claim, sandbox, NOW)
    assert {one.type: one.reason for one in status.conditions} == {"Ready": "ClaimExpired", "Finished": "PodSucceeded"}
    assert (status.sandbox is not None) == there


@pytest.mark.parametrize("reason", [*sorted(TERMINAL_FOR_CLIENTS), "WarmPoolNotFound", "DependenciesReady"])
def test_what_a_claim_that_waits_must_not_go_on_saying(reason: str) -> None:
    assert misleads(a_claim(status={"conditions": [condition("Ready", "False", reason)]}))


def test_what_a_claim_that_waits_may_go_on_saying() -> None:
    assert not misleads(a_claim())
    assert not misleads(a_claim(status={"conditions": [condition("Ready", "False", "SandboxMissing")]}))


def test_order_alone_is_no_difference() -> None:
    one = a_claim(status={"conditions": [condition(), FINISHED]}).status
    other = a_claim(status={"conditions": [FINISHED, condition()]}).status
    assert same(one, other)
    assert not same(one, a_claim(status={"conditions": [condition()]}).status)


def document(status: dict[str, Any] | None, **meta: Any) -> dict[str, Any]:
    return claim_body(meta=meta) | ({} if status is None else {"status": status})


SEEN = {"conditions": [condition("Ready", "False", "SandboxMissing")]}
BOUND = {"sandbox": {"name": "warm"}, **SEEN}


@pytest.mark.parametrize(
    ("seen", "server", "lands"),
    [
        (None, None, True),
        (None, {}, False),
        (None, BOUND, False),
        (SEEN, SEEN, True),
        (SEEN, BOUND, False),
        (BOUND, BOUND, True),
        (BOUND, {"sandbox": {"name": "another"}}, False),
        (BOUND, SEEN, False),
    ],
)
def test_a_patch_lands_only_where_the_claim_is_bound_as_it_was_seen(
    seen: dict[str, Any] | None, server: dict[str, Any] | None, lands: bool
) -> None:
    claim = a_claim(status=seen)
    patch = status_patch(claim, unbound(claim, "SandboxMissing", "new", NOW), has_status=seen is not None)
    assert isinstance(patch.body, list)
    if not lands:
        with pytest.raises(PatchError):
            apply_json_patch(document(server), patch.body)
        return
    after: Any = apply_json_patch(document(server), patch.body)
    assert after["status"]["conditions"][0]["message"] == "new"
    assert "sandbox" not in after["status"]


def test_an_empty_status_needs_the_other_form() -> None:
    claim = a_claim()
    patch = status_patch(claim, unbound(claim, "SandboxMissing", "new", NOW), has_status=True)
    assert isinstance(patch.body, list)
    after: Any = apply_json_patch(document({}), patch.body)
    assert after["status"]["conditions"][0]["message"] == "new"


@pytest.mark.parametrize(("uid", "generation"), [("claim-uid", 4), ("another", 3)])
def test_an_end_is_told_of_this_very_claim_and_this_very_spec(uid: str, generation: int) -> None:
    claim = a_claim()
    patch = status_patch(claim, ended(claim, None, NOW), has_status=False, pinned=True)
    assert isinstance(patch.body, list)
    apply_json_patch(document(None), patch.body)
    with pytest.raises(PatchError):
        apply_json_patch(document(None, uid=uid, generation=generation), patch.body)
