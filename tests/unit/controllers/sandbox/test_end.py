from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sandpool.kube.api import Preconditions
from sandpool.model.labels import POD_NAME
from sandpool.model.metadata import Revision, Uid
from sandpool.model.times import seconds
from unit.controllers.sandbox.views import (
    FOREIGN,
    GONE,
    NOW,
    plan_of,
    pod,
    sandbox,
    service,
    templates,
    verbs,
    volume_claim,
)


def at(moment: timedelta, **spec: Any) -> dict[str, Any]:
    return {"shutdownTime": seconds(NOW + moment), **spec}


PAST = at(timedelta(seconds=-5))


@pytest.mark.parametrize(
    ("spec", "over", "again"),
    [
        ({}, False, None),
        (at(timedelta(hours=2)), False, NOW + timedelta(hours=2)),
        (at(timedelta(seconds=1)), False, NOW + timedelta(seconds=1)),
        (at(timedelta(0)), True, None),
        (PAST, True, None),
    ],
)
def test_when_it_ends(spec: dict[str, Any], over: bool, again: Any) -> None:
    plan = plan_of(sandbox(spec=spec), pod())
    assert (plan.expired, plan.look_again_at) == (over, again)


def test_retained_loses_pod_and_service_but_no_storage() -> None:
    box = sandbox(spec={**PAST, "service": True, **templates("data")})
    assert verbs(plan_of(box, pod(), service(), volume_claim())) == ["delete Pod box", "delete Service box"]


def test_the_pod_is_found_by_owner_whatever_its_name() -> None:
    assert verbs(plan_of(sandbox(spec=PAST, annotations={POD_NAME: "other"}), pod("other"))) == ["delete Pod other"]


def test_deleted_goes_too_unless_it_was_changed_meanwhile() -> None:
    plan = plan_of(sandbox(spec={**PAST, "shutdownPolicy": "Delete"}), pod())
    assert verbs(plan) == ["delete Pod box", "delete Sandbox box"]
    assert plan.steps[1].preconditions == Preconditions(Uid("uid-box"), Revision(7))  # type: ignore[union-attr]


@pytest.mark.parametrize("owner", [FOREIGN, None])
def test_others_survive(owner: Any) -> None:
    assert verbs(plan_of(sandbox(spec=PAST), pod(owner=owner), service())) == ["delete Service box"]


def test_nothing_to_delete_is_an_end_as_well() -> None:
    plan = plan_of(sandbox(spec=PAST))
    assert (plan.expired, plan.steps) == (True, ())


def test_a_suspended_sandbox_ends_too() -> None:
    assert plan_of(sandbox(spec={**PAST, "operatingMode": "Suspended"})).expired


def test_what_is_going_is_not_deleted_again() -> None:
    assert plan_of(sandbox(spec=PAST), pod(deletionTimestamp=GONE), service(deletionTimestamp=GONE)).steps == ()
