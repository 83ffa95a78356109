"""What a pool's status says, when it is written, and what becomes an Event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sandpool.controllers.pool.status import Haste, event_of, haste, status_of, status_patch
from sandpool.controllers.pool.view import Obstacle, PoolView
from sandpool.loop.events import Kind
from sandpool.model.conditions import Condition, find
from sandpool.model.labels import WARM_POOL
from sandpool.model.names import name_hash
from sandpool.model.pool import SandboxWarmPoolStatus
from sandpool.model.reasons import Reason
from unit.controllers.pool.views import NOW, a_member, a_view, later, ready

NO_TEMPLATE: dict[str, Any] = {"template": None, "obstacle": Obstacle(Reason.TEMPLATE_NOT_FOUND, "no template")}


def said(view: PoolView, type_: str) -> tuple[str, str]:
    condition = find(status_of(view, NOW).conditions, type_)
    assert condition is not None
    return condition.status, condition.reason


def test_counts() -> None:
    members = [ready(1), ready(2, stale=True), a_member(3), a_member(4, stale=True), ready(5, leaving=True)]
    status = status_of(a_view(members, 4), NOW)
    assert (status.replicas, status.ready_replicas) == (4, 2)
    assert (status.updated_replicas, status.updated_ready_replicas) == (2, 1)
    assert status.selector == f"{WARM_POOL}={name_hash('p')}"
    assert status.observed_generation == 4


@pytest.mark.parametrize(("count", "reason"), [(0, "MembersNotReady"), (1, "MembersNotReady"), (3, "MembersReady")])
def test_ready(count: int, reason: str) -> None:
    members = [ready(n) for n in range(count)] + [a_member(n) for n in range(count, 3)]
    view = a_view(members, 3)
    assert status_of(view, NOW).ready_replicas == count
    assert said(view, "Ready") == (str(count == 3), reason)


def test_nothing_wanted_is_ready() -> None:
    assert said(a_view([], 0), "Ready") == ("True", "MembersReady")


PROGRESS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "full": ({"members": [ready(n) for n in range(3)]}, ("False", "UpToDate")),
    "empty": ({}, ("True", "Replenishing")),
    "not ready yet": ({"members": [a_member(n) for n in range(3)]}, ("True", "Replenishing")),
    "rolling": (
        {"members": [ready(1, stale=True)], "strategy": "RollingUpdate", "replicas": 1},
        ("True", "RollingOut"),
    ),
    "recreating": ({"members": [ready(1, stale=True)], "strategy": "Recreate", "replicas": 1}, ("True", "RollingOut")),
    "stale and left so": ({"members": [ready(1, stale=True)], "replicas": 1}, ("False", "UpToDate")),
    "no template": (NO_TEMPLATE, ("False", "TemplateNotFound")),
    "no policy": ({"obstacle": Obstacle(Reason.NETWORK_POLICY_PENDING, "m")}, ("False", "NetworkPolicyPending")),
    "no node": ({"members": [a_member(1, age=301, placed=False)], "replicas": 1}, ("False", "NotProgressing")),
    "no node for a short while": (
        {"members": [a_member(1, age=299, placed=False)], "replicas": 1},
        ("True", "Replenishing"),
    ),
    "given up": ({"given_up": "Sandbox p-1 was replaced"}, ("False", "NotProgressing")),
    "not accepted": ({"failed": "quota"}, ("False", "CreationFailed")),
    "not accepted, nor missing": ({"failed": "quota", "replicas": 0}, ("False", "UpToDate")),
}


@pytest.mark.parametrize("case", PROGRESS)
def test_progress(case: str) -> None:
    given, expected = PROGRESS[case]
    assert said(a_view(**given), "Progressing") == expected


def progress(view: PoolView) -> str:
    condition = find(status_of(view, NOW).conditions, "Progressing")
    assert condition is not None
    return condition.message


def test_members_that_stay_though_the_template_changed_are_told() -> None:
    old = [ready(1, stale=True), ready(2, stale=True), ready(3)]
    assert progress(a_view(old)) == (
        "2 of 3 members were made before SandboxTemplate t changed, and stay until claimed"
    )
    assert progress(a_view([ready(n) for n in range(3)])) == "Nothing is left to do"


def test_what_is_wrong_with_a_member_is_quoted_before_it_is_given_up() -> None:
    broken = a_member(1, age=90, failing=True, message="Error seen: no such class")
    assert progress(a_view([broken, a_member(2)])) == (
        "2 of 3 members exist, 0 are ready; Sandbox p-00000001 says: Error seen: no such class"
    )
    slow = a_member(1, age=90, message="The pod is Pending")
    assert progress(a_view([slow, a_member(2)])) == "2 of 3 members exist, 0 are ready", "what takes time is no news"


def healthy(view: PoolView) -> Condition | None:
    return find(status_of(view, NOW).conditions, "Healthy")


def test_a_member_that_cannot_start_is_told_at_once_and_taken_back() -> None:
    assert healthy(a_view([a_member(1, message="The pod is Pending")])) is None
    view = a_view([ready(1), a_member(2, failing=True, message="The pod is held up: x")])
    told = healthy(view)
    assert told is not None
    assert (told.status, told.reason) == ("False", "MembersNotStarting")
    assert told.message == "Sandbox p-00000002: The pod is held up: x"
    nowhere = healthy(a_view([a_member(1, failing=True, placed=False, message="0/3 nodes")]))
    assert nowhere is not None
    assert nowhere.message == "Sandbox p-00000001: Unschedulable: 0/3 nodes"
    pool = msgspec.structs.replace(view.pool, status=status_of(view, NOW))
    repaired = a_view([ready(1), ready(2)])
    after = status_of(PoolView(pool, repaired.template, repaired.roster), NOW)
    assert find(after.conditions, "Healthy") is None
    assert haste(pool.status, after) is Haste.SOON


def test_without_a_template_nothing_is_up_to_date() -> None:
    view = a_view([ready(n) for n in range(3)], **NO_TEMPLATE)
    assert status_of(view, NOW).updated_replicas == 0
    assert said(view, "Ready") == ("False", "TemplateNotFound")


def test_no_difference_no_patch() -> None:
    view = a_view([ready(n) for n in range(3)])
    status = status_of(view, NOW)
    pool = msgspec.structs.replace(view.pool, status=status)
    later_view = PoolView(pool, view.template, view.roster)
    assert status_patch(pool, status_of(later_view, later(60))) is None


def test_the_patch_is_for_this_very_pool_and_writes_zeros() -> None:
    view = a_view([], 0)
    patch = status_patch(view.pool, status_of(view, NOW))
    assert patch is not None
    test, change = patch.body
    assert test == {"op": "test", "path": "/metadata/uid", "value": "pool-uid"}
    assert {key: change["value"][key] for key in ("replicas", "readyReplicas")} == {"replicas": 0, "readyReplicas": 0}
    assert change["path"] == "/status"


def status(
    ready: int = 1, generation: int = 1, reason: str = "UpToDate", *, full: bool = False
) -> SandboxWarmPoolStatus:
    conditions = (
        Condition(type="Progressing", status="False", last_transition_time=NOW, reason=reason, message="m"),
        Condition(type="Ready", status=str(full), last_transition_time=NOW, reason="MembersReady", message="m"),
    )
    return SandboxWarmPoolStatus(ready_replicas=ready, observed_generation=generation, conditions=conditions)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (status(), status(generation=2), Haste.NOW),
        (status(0), status(1), Haste.SOON),
        (status(0), status(3, full=True), Haste.NOW),
        (status(2), status(3, full=True), Haste.LATER),
        (status(0), status(0, full=True), Haste.LATER),
        (status(2), status(0), Haste.SOON),
        (status(2), status(3), Haste.LATER),
        (status(), status(reason="NotProgressing"), Haste.SOON),
        (status(), status(reason="Replenishing"), Haste.LATER),
        (status(), status(reason="RollingOut"), Haste.NOW),
        (status(3, reason="RollingOut"), status(2, reason="RollingOut"), Haste.LATER),
    ],
)
def test_haste(old: SandboxWarmPoolStatus, new: SandboxWarmPoolStatus, expected: Haste) -> None:
    assert haste(old, new) is expected


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("UpToDate", "Replenishing", None),
        ("Replenishing", "NotProgressing", (Kind.WARNING, "WarmPoolNotProgressing")),
        ("NotProgressing", "NotProgressing", None),
        ("NotProgressing", "Replenishing", (Kind.NORMAL, "WarmPoolProgressing")),
        ("Replenishing", "CreationFailed", (Kind.WARNING, "WarmPoolNotProgressing")),
        ("UpToDate", "TemplateNotFound", (Kind.WARNING, "TemplateNotFound")),
        ("TemplateNotFound", "Replenishing", None),
        ("Replenishing", "NetworkPolicyPending", None),
    ],
)
def test_news(old: str, new: str, told: tuple[Kind, str] | None) -> None:
    found = event_of(status(reason=old), status(reason=new))
    assert (found and (found.kind, found.reason)) == told
