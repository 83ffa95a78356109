"""Conditions, their reasons, and when things end."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.model.claim import (
    ClaimShutdownPolicy,
    Lifecycle,
    PoolRef,
    SandboxClaim,
    SandboxClaimSpec,
    SandboxClaimStatus,
)
from sandpool.model.conditions import (
    MAX_MESSAGE,
    MAX_REASON,
    REASON_PATTERN,
    Condition,
    Truth,
    find,
    fit_message,
    fit_reason,
    is_true,
    put,
    without,
)
from sandpool.model.expiry import claim_end, expired
from sandpool.model.reasons import TERMINAL_FOR_CLIENTS, Reason, Type
from support.simulated.model_search import unhurried

NOW = datetime(2026, 1, 1, 12, 0, 0, 999, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def ready(status: Truth, reason: str = "Because", now: datetime = NOW, generation: int = 1) -> tuple[Condition, ...]:
    return put((), "Ready", status, reason, "", generation=generation, now=now)


def test_the_first_time_is_now_in_whole_seconds() -> None:
    (condition,) = ready(Truth.TRUE)
    assert condition.last_transition_time == NOW.replace(microsecond=0)
    assert condition.true


def test_the_time_moves_only_with_the_status() -> None:
    before = ready(Truth.FALSE)
    (same_status,) = put(before, "Ready", Truth.FALSE, "Other", "new words", generation=2, now=LATER)
    assert same_status.last_transition_time == before[0].last_transition_time
    assert (same_status.reason, same_status.message, same_status.observed_generation) == ("Other", "new words", 2)
    (other_status,) = put(before, "Ready", Truth.TRUE, "Other", "", generation=2, now=LATER)
    assert other_status.last_transition_time == LATER.replace(microsecond=0)


def test_nothing_new_is_the_same_tuple() -> None:
    before = ready(Truth.TRUE)
    assert put(before, "Ready", Truth.TRUE, "Because", "", generation=1, now=LATER) is before
    assert without(before, "Suspended") is before


def test_a_condition_keeps_its_place() -> None:
    conditions = put(ready(Truth.TRUE), "Finished", Truth.TRUE, "Done", "", generation=1, now=NOW)
    conditions = put(conditions, "Ready", Truth.FALSE, "Gone", "", generation=1, now=NOW)
    assert [condition.type for condition in conditions] == ["Ready", "Finished"]
    assert [condition.type for condition in without(conditions, "Ready")] == ["Finished"]
    assert find(conditions, "Nothing") is None
    assert not is_true(conditions, "Ready")
    assert is_true(conditions, "Finished")


@pytest.mark.parametrize(
    ("given_reason", "fitting"),
    [("Unschedulable", "Unschedulable"), ("has space", "has_space"), ("9lives", "lives"), ("", "Unknown"), ("a:", "a")],
)
def test_reasons_are_made_to_fit(given_reason: str, fitting: str) -> None:
    assert fit_reason(given_reason) == fitting


@unhurried
@given(st.text(max_size=2000))
def test_every_reason_fits_the_schema(text: str) -> None:
    fitting = fit_reason(text)
    assert re.fullmatch(REASON_PATTERN, fitting)
    assert len(fitting) <= MAX_REASON
    assert fit_reason(fitting) == fitting


def test_long_messages_are_cut() -> None:
    assert fit_message("x" * MAX_MESSAGE) == "x" * MAX_MESSAGE
    assert len(fit_message("x" * (MAX_MESSAGE + 1))) == MAX_MESSAGE
    assert fit_message("x" * (MAX_MESSAGE + 1)).endswith("(cut)")


def test_every_reason_is_one_and_says_what_it_means() -> None:
    for reason in Reason:
        assert re.fullmatch(REASON_PATTERN, reason)
        assert fit_reason(reason) == reason
        assert reason.meaning.endswith(".")
        for place in reason.conditions:
            kind, type_ = place.split(" ")
            assert kind in ("Sandbox", "Claim", "Pool")
            assert type_ in list(Type)


def test_trouble_with_a_bound_claim_never_looks_final_to_clients() -> None:
    healthy = {reason for reason in Reason if "Claim Healthy" in reason.conditions}
    assert healthy
    assert not healthy & TERMINAL_FOR_CLIENTS
    assert all("Claim Ready" in reason.conditions for reason in TERMINAL_FOR_CLIENTS)


def claim(lifecycle: Lifecycle | None, *conditions: Condition) -> SandboxClaim:
    spec = SandboxClaimSpec(warm_pool_ref=PoolRef(name="p"), lifecycle=lifecycle)
    return SandboxClaim(spec=spec, status=SandboxClaimStatus(conditions=conditions))


def finished(status: Truth = Truth.TRUE) -> Condition:
    return put((), "Finished", status, "PodSucceeded", "", generation=1, now=NOW)[0]


@pytest.mark.parametrize(
    ("lifecycle", "conditions", "end"),
    [
        (None, (), None),
        (Lifecycle(), (), None),
        (Lifecycle(shutdown_time=LATER), (), LATER),
        (Lifecycle(ttl_seconds_after_finished=10), (), None),
        (Lifecycle(ttl_seconds_after_finished=10), (finished(Truth.FALSE),), None),
        (Lifecycle(ttl_seconds_after_finished=0), (finished(),), NOW.replace(microsecond=0)),
        (
            Lifecycle(ttl_seconds_after_finished=10, shutdown_time=LATER),
            (finished(),),
            NOW.replace(microsecond=0) + timedelta(seconds=10),
        ),
        (Lifecycle(ttl_seconds_after_finished=999, shutdown_time=LATER), (finished(),), LATER),
    ],
)
def test_the_end_of_a_claim(
    lifecycle: Lifecycle | None, conditions: tuple[Condition, ...], end: datetime | None
) -> None:
    assert claim_end(claim(lifecycle, *conditions)) == end


def test_the_moment_itself_is_the_end() -> None:
    assert expired(NOW, NOW)
    assert not expired(LATER, NOW)
    assert not expired(None, NOW)


def test_claims_are_retained_unless_they_say_otherwise() -> None:
    assert Lifecycle().shutdown_policy == ClaimShutdownPolicy.RETAIN
