from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.controllers.claim.binding import binding, bound_conditions, bound_status
from sandpool.model.claim import SandboxClaim
from sandpool.model.codec import convert, to_json
from sandpool.model.conditions import find
from sandpool.model.kinds import CLAIMS
from sandpool.model.patches import Patch, PatchError, apply_json_patch
from sandpool.model.reasons import Reason
from support.simulated.claim_parts import a_claim, a_member, condition

NOW = datetime(2026, 2, 2, tzinfo=UTC)
READY = a_member(status={"conditions": [condition(observedGeneration=1)], "podIPs": ["10.0.0.1", "fd00::1"]})
NOT_READY = condition(status="False", reason="SandboxNotReady")


def applied(patch: Patch, to: SandboxClaim | dict[str, Any]) -> SandboxClaim:
    body = to_json(to) if isinstance(to, SandboxClaim) else to
    return convert(CLAIMS, apply_json_patch(body, patch.body))


def test_everything_in_one_write() -> None:
    claim = a_claim()
    bound = applied(binding(claim, bound_status(claim, READY, NOW)), claim)
    assert bound.status.sandbox is not None
    assert bound.status.sandbox.name == "warm"
    assert bound.status.sandbox.pod_ips == ("10.0.0.1", "fd00::1")
    ready = find(bound.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.message) == ("True", "DependenciesReady", "m")
    assert ready.observed_generation == 3, "of the claim, not of the sandbox"
    assert ready.last_transition_time == NOW


def test_beside_conditions() -> None:
    claim = a_claim(status={"conditions": [condition("Healthy", reason="AsExpected"), NOT_READY]})
    bound = applied(binding(claim, bound_status(claim, READY, NOW)), claim)
    assert [(one.type, one.status) for one in bound.status.conditions] == [("Healthy", "True"), ("Ready", "True")]


@pytest.mark.parametrize("status", [None, {"conditions": [NOT_READY]}])
def test_the_first_decides(status: dict[str, Any] | None) -> None:
    claim = a_claim(status=status)
    other = applied(binding(claim, bound_status(claim, a_member(name="other"), NOW)), claim)
    with pytest.raises(PatchError):
        applied(binding(claim, bound_status(claim, READY, NOW)), other)


def test_another_claim_of_the_name_fails() -> None:
    with pytest.raises(PatchError):
        applied(binding(a_claim(), bound_status(a_claim(), READY, NOW)), a_claim(meta={"uid": "another"}))


def test_an_empty_status_looks_like_none_and_needs_the_other_form() -> None:
    claim = a_claim()
    body = {**to_json(claim), "status": {}}
    with pytest.raises(PatchError):
        applied(binding(claim, bound_status(claim, READY, NOW)), body)
    bound = applied(binding(claim, bound_status(claim, READY, NOW), has_status=True), body)
    assert bound.status.sandbox is not None


def test_a_lost_sandbox_is_replaced_only_while_it_is_the_one_bound() -> None:
    lost = a_claim(status={"sandbox": {"name": "lost", "podIPs": ["1.2.3.4"]}})
    patch = binding(lost, bound_status(lost, READY, NOW))
    bound = applied(patch, lost)
    assert bound.status.sandbox is not None
    assert bound.status.sandbox.name == "warm"
    with pytest.raises(PatchError):
        applied(patch, a_claim(status={"sandbox": {"name": "newer"}}))
    nameless = a_claim(status={"sandbox": {"podIPs": ["1.2.3.4"]}})
    assert (
        applied(binding(nameless, bound_status(nameless, READY, NOW)), nameless).status.sandbox == bound.status.sandbox
    )


def test_never_ready_by_itself() -> None:
    """What is published is what the sandbox says, whatever it says."""
    for reason in ("DependenciesNotReady", "SandboxSuspended", "SandboxExpired", "PodFailed"):
        member = a_member(status={"conditions": [condition(status="False", reason=reason)]})
        ready = find(bound_conditions(a_claim(), member, NOW), "Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("False", reason)
    silent = find(bound_conditions(a_claim(), a_member(), NOW), "Ready")
    assert silent is not None
    assert (silent.status, silent.reason) == ("False", Reason.SANDBOX_NOT_READY)


def test_finished_is_copied_with_its_time_and_removed_when_it_is_over() -> None:
    done = a_member(status={"conditions": [condition("Finished", reason="PodSucceeded")]})
    claim = a_claim(status={"conditions": [condition("Finished", reason="PodFailed")]})
    finished = find(bound_conditions(claim, done, NOW), "Finished")
    assert finished is not None
    assert finished.reason == "PodSucceeded"
    assert finished.last_transition_time == datetime(2026, 1, 1, tzinfo=UTC), "the TTL counts from it"
    assert find(bound_conditions(claim, READY, NOW), "Finished") is None
