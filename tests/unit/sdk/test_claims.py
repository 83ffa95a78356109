"""What a claim asks for, and what has become of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.kube.errors import Unreadable
from sandpool.model.names import dns_label
from sandpool.model.reasons import TERMINAL_FOR_CLIENTS
from sandpool.sdk.claims import (
    TERMINAL,
    State,
    checked,
    checked_labels,
    claim_body,
    failure,
    generated_name,
    info_of,
    mode_reached,
    ours,
    ready,
    shutdown_time,
    waiting_for,
)
from sandpool.sdk.errors import ClaimFailed, PoolNotFound

NOW = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)


def claim(status: str = "", reason: str = "", message: str = "", sandbox: str = "", **metadata: Any) -> dict[str, Any]:
    body = claim_body("box", "python", {}, None, NOW, "word", "c0ffee")
    body["metadata"] |= {"namespace": "default", "uid": "u", **metadata}
    body["status"] = {}
    if status:
        body["status"]["conditions"] = [{"type": "Ready", "status": status, "reason": reason, "message": message}]
    if sandbox:
        body["status"]["sandbox"] = {"name": sandbox, "podIPs": ["10.0.0.1"]}
    return body


@given(pool=st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,250}[a-z0-9])?", fullmatch=True), draw=st.integers(0, 2**96))
def test_a_generated_name_is_a_label(pool: str, draw: int) -> None:
    assert dns_label(generated_name(pool, draw)) == []


def test_generated_names_differ_as_their_draws_do() -> None:
    assert len({generated_name("python", draw * 7919) for draw in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    ("ttl", "end"),
    [(10, "2026-01-02T03:04:16Z"), (0.4, "2026-01-02T03:04:06Z"), (timedelta(hours=1), "2026-01-02T04:04:06Z")],
)
def test_a_time_to_live_is_never_cut_short(ttl: float | timedelta, end: str) -> None:
    assert shutdown_time(ttl, NOW) == end


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), timedelta(0), 1e18, "10m", []])
def test_a_time_to_live_that_is_none(ttl: Any) -> None:
    with pytest.raises(ValueError, match="ttl"):
        shutdown_time(ttl, NOW)


def test_the_claim_that_is_written() -> None:
    body = claim_body("box", "python", {"team": "a"}, 60, NOW, "word", "c0ffee")
    assert body["spec"] == {
        "warmPoolRef": {"name": "python"},
        "lifecycle": {"shutdownTime": "2026-01-02T03:05:06Z", "shutdownPolicy": "Delete"},
    }
    assert body["metadata"]["labels"] == {
        "team": "a",
        "agents.x-k8s.io/created-by": "sandpool-sdk",
        "sandpool.dev/client": "c0ffee",
    }
    assert "env" not in body["spec"]  # it would cost the warm start
    assert ours(body, "word")
    assert not ours(body, "other")


@pytest.mark.parametrize("reason", sorted(TERMINAL))
def test_a_reason_that_is_final_fails_at_once(reason: str) -> None:
    wrong = failure(claim("False", reason, "because"))
    assert isinstance(wrong, ClaimFailed)
    assert wrong.reason == reason
    assert "because" in str(wrong)
    assert "sandpool why claim/box" in str(wrong)
    assert info_of(claim("False", reason)).state is State.FAILED


def test_all_reasons_that_controllers_call_final_are_final() -> None:
    assert {str(reason) for reason in TERMINAL_FOR_CLIENTS} <= TERMINAL


def test_a_missing_pool() -> None:
    assert isinstance(failure(claim("False", "WarmPoolNotFound", "no pool")), PoolNotFound)


@pytest.mark.parametrize("reason", ["SandboxMissing", "SandboxNotReady", "ReconcilerError", "AdoptionConflict"])
def test_a_passing_reason_is_waited_for(reason: str) -> None:
    waiting = claim("False", reason, "a moment")
    assert failure(waiting) is None
    assert not ready(waiting)
    assert waiting_for(waiting, None) == f"a moment ({reason})"
    assert info_of(waiting).state is State.PENDING


def warm_pool(replicas: int = 3, *, ready: int | None = None, progress: str = "") -> dict[str, Any]:
    told = (
        [{"type": "Progressing", "status": "True", "reason": "Replenishing", "message": progress}] if progress else []
    )
    status = {} if ready is None else {"readyReplicas": ready, "conditions": told}
    return {"metadata": {"name": "python"}, "spec": {"replicas": replicas}, "status": status}


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (None, "it waits for a sandbox of pool 'python'; there is no status yet"),
        (warm_pool(), "no controller has observed its pool 'python' yet: is one running?"),
        (warm_pool(0, ready=0), "pool 'python' keeps no sandboxes (replicas: 0), so one is being started for it"),
        (
            warm_pool(3, ready=0, progress="3 of 3 members exist, 0 are ready; Sandbox python-x says: ErrImagePull"),
            "it waits for a sandbox of pool 'python', which has 0 of 3 ready (3 of 3 members exist, 0 are ready; "
            "Sandbox python-x says: ErrImagePull (Replenishing))",
        ),
        (
            warm_pool(3, ready=3, progress="x"),
            "it waits for a sandbox of pool 'python', which has 3 of 3 ready",
        ),
    ],
)
def test_a_claim_that_says_nothing_yet_waits_for_its_pool(pool: dict[str, Any] | None, words: str) -> None:
    """A controller writes a wait into a claim only after a while: no words do not mean that nobody looks after it."""
    assert waiting_for(claim(), pool) == words


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"run": 7}, r"labels\['run'\] is 7, of type int; values must be str, such as '7'"),
        ({"run": None}, r"labels\['run'\] is None, of type NoneType"),
        ({7: "run"}, r"the name 7 in labels is int"),
        (["run=7"], "labels is list; give a mapping"),
    ],
)
def test_labels_that_are_not_text_are_refused_in_pythons_terms(labels: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        checked_labels(labels)


def test_labels_are_copied() -> None:
    given_labels = {"run": "7"}
    assert checked_labels(given_labels) == given_labels
    assert checked_labels(given_labels) is not given_labels


def test_ready_needs_a_sandbox() -> None:
    assert not ready(claim("True", "DependenciesReady"))
    assert ready(claim("True", "DependenciesReady", sandbox="python-x"))


def test_info() -> None:
    info = info_of(claim("True", "DependenciesReady", "fine", "python-x", creationTimestamp="2026-01-02T03:04:05Z"))
    assert (info.name, info.pool, info.sandbox, info.state) == ("box", "python", "python-x", State.READY)
    assert info.created == NOW.replace(microsecond=0)
    assert info.addresses == ("10.0.0.1",)
    assert info_of(claim("False", "SandboxSuspended")).state is State.SUSPENDED
    assert info_of(claim("True", deletionTimestamp="2026-01-02T03:04:05Z")).state is State.TERMINATING


def test_a_condition_about_an_older_spec_does_not_count() -> None:
    box: dict[str, Any] = {"status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}}
    assert mode_reached(box, "Running", 1)
    assert not mode_reached(box, "Running", 2)
    assert not mode_reached(box, "Suspended", 1)


@pytest.mark.parametrize("answer", [{}, {"metadata": []}, {"metadata": {}}, {"metadata": {"uid": 7}}])
def test_what_is_no_claim(answer: dict[str, Any]) -> None:
    with pytest.raises(Unreadable, match="API server"):
        checked(answer)
    assert checked(claim()) == claim()
