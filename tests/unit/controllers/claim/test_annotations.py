"""The annotations that other tools read: exactly what is missing, never twice, never a guess where the truth is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sandpool.controllers.claim.annotations import annotations_patch
from sandpool.controllers.claim.memory import Notes
from sandpool.model.labels import CLAIM_FIRST_READY_AT, CONTROLLER_FIRST_OBSERVED_AT, SANDBOX_NAME
from support.simulated.claim_parts import a_claim, condition

SEEN = datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
NOW = SEEN + timedelta(seconds=1)
READY = {"conditions": [condition()]}
ALL = {SANDBOX_NAME: "warm", CONTROLLER_FIRST_OBSERVED_AT: "x", CLAIM_FIRST_READY_AT: "y"}


def patched(meta: dict[str, Any], status: dict[str, Any] | None = None, ready: datetime | None = None) -> Any:
    patch = annotations_patch(a_claim(meta=meta, status=status), "warm", Notes(SEEN, first_ready=ready), NOW)
    return None if patch is None else patch.body


def test_a_new_claim_gets_all_three() -> None:
    assert patched({}) == {
        "metadata": {
            "uid": "claim-uid",
            "annotations": {
                SANDBOX_NAME: "warm",
                CONTROLLER_FIRST_OBSERVED_AT: "2026-01-01T00:00:00.123456Z",
                CLAIM_FIRST_READY_AT: "2026-01-01T00:00:01.123456Z",
            },
        }
    }


def test_what_is_there_stays() -> None:
    assert patched({"annotations": ALL}) is None
    assert patched({"annotations": {"a": "b", **ALL}}, READY) is None


def test_only_what_is_missing() -> None:
    body = patched({"annotations": {**ALL, SANDBOX_NAME: "another"}})
    assert body["metadata"]["annotations"] == {SANDBOX_NAME: "warm"}


def test_ready_before_anybody_noted_when() -> None:
    body = patched({"annotations": {SANDBOX_NAME: "warm", CONTROLLER_FIRST_OBSERVED_AT: "x"}}, READY)
    assert body["metadata"]["annotations"] == {CLAIM_FIRST_READY_AT: "unknown"}


def test_a_moment_that_we_noted_ourselves_is_not_unknown() -> None:
    body = patched({"annotations": {SANDBOX_NAME: "warm", CONTROLLER_FIRST_OBSERVED_AT: "x"}}, READY, SEEN)
    assert body["metadata"]["annotations"] == {CLAIM_FIRST_READY_AT: "2026-01-01T00:00:00.123456Z"}


def test_the_old_label_moves() -> None:
    body = patched({"annotations": ALL, "labels": {SANDBOX_NAME: "warm"}})
    assert body["metadata"] == {"uid": "claim-uid", "labels": {SANDBOX_NAME: None}}
