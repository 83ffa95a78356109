"""A sandbox as a member of its pool."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.controllers.pool.roster import Member, missing_marks, read_member
from sandpool.model import labels
from sandpool.model.codec import convert
from sandpool.model.kinds import SANDBOXES
from sandpool.model.names import name_hash
from sandpool.model.sandbox import Sandbox
from support.simulated.claim_parts import a_member as a_sandbox
from support.simulated.claim_parts import member_body

CREATED = "2026-01-01T00:00:00Z"


def read(*conditions: dict[str, Any], **more: Any) -> Member:
    body = {"creationTimestamp": CREATED, **more}
    return read_member(a_sandbox(status={"conditions": list(conditions)}, **body), "p", stale=False)


def said(type_: str, status: str, minute: int, reason: str = "R", message: str = "m") -> dict[str, Any]:
    at = f"2026-01-01T00:{minute:02d}:00Z"
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def at(minute: int) -> datetime:
    return datetime(2026, 1, 1, 0, minute, tzinfo=UTC)


def test_one_that_has_said_nothing_is_not_ready() -> None:
    member = read()
    assert (member.ready, member.placed, member.since, member.created) == (False, True, at(0), at(0))
    assert member.message == "it has not reported yet"


def test_one_whose_pod_is_held_up_is_failing_and_says_why() -> None:
    member = read(said("Ready", "False", 1), said("Healthy", "False", 1, "PodNotStarting", "why"))
    assert (member.failing, member.message) == (True, "why")
    member = read(said("Ready", "False", 1), said("Healthy", "False", 1, "ControllerTrouble", "why"))
    assert (member.failing, member.message) == (False, "m")
    assert not read(said("Ready", "True", 1), said("Healthy", "False", 1, "PodNotStarting", "why")).failing


def test_its_patience_counts_from_the_last_change_of_ready() -> None:
    assert read(said("Ready", "False", 7)).since == at(7)


def test_its_patience_counts_from_when_it_had_a_node() -> None:
    assert read(said("Ready", "False", 1), said("PodScheduled", "True", 9)).since == at(9)


@pytest.mark.parametrize(
    ("status", "reason", "placed"),
    [("False", "Unschedulable", False), ("False", "SchedulingGated", True), ("Unknown", "Unschedulable", True)],
)
def test_without_a_node(status: str, reason: str, placed: bool) -> None:
    member = read(said("Ready", "False", 1), said("PodScheduled", status, 9, reason, "0/3 nodes"))
    assert (member.placed, member.since) == (placed, at(1))
    assert member.message == ("m" if placed else "0/3 nodes")


@pytest.mark.parametrize(
    ("status", "reason", "failing"),
    [("False", "ReconcilerError", True), ("False", "DependenciesNotReady", False), ("True", "ReconcilerError", False)],
)
def test_something_is_wrong_with_it(status: str, reason: str, failing: bool) -> None:
    assert read(said("Ready", status, 1, reason)).failing is failing


def test_ready() -> None:
    assert read(said("Ready", "True", 3)).ready


def test_leaving() -> None:
    assert read(deletionTimestamp=CREATED).leaving


def test_marks() -> None:
    assert missing_marks(a_sandbox(), "p") == {}
    assert missing_marks(a_sandbox(), "other") == {labels.WARM_POOL: name_hash("other")}
    bare = _bare({labels.TEMPLATE_REF: "t"})
    assert missing_marks(bare, "p") == {
        labels.LAUNCH_TYPE: "warm",
        labels.WARM_POOL: name_hash("p"),
        labels.TEMPLATE_REF_HASH: name_hash("t"),
    }
    assert labels.TEMPLATE_REF_HASH not in missing_marks(_bare({}), "p"), "nobody knows what it was made from"


def _bare(annotations: dict[str, str]) -> Sandbox:
    return convert(SANDBOXES, member_body(labels={}, annotations=annotations))
