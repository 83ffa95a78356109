"""What one look at a sandbox costs, in Python calls: three for each claim, and the refill makes two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sandpool.controllers.sandbox.observe import Observer
from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.plan import plan_sandbox
from sandpool.controllers.sandbox.pod import metadata_delta
from sandpool.controllers.sandbox.status import NO_TROUBLE, status_of, unborn
from sandpool.controllers.sandbox.triggers import Haste, pod_haste
from sandpool.model.labels import CREATED_BY, PROPAGATED_ANNOTATIONS, SAFE_TO_EVICT, TEMPLATE_REF_HASH, WARM_POOL
from sandpool.model.pod import Pod
from support.api.counted_calls import calls_of
from unit.controllers.sandbox.views import (
    IDENTITY,
    MADE_FROM,
    NOW,
    POOL,
    SCHEDULED,
    caches_of,
    owner_object,
    pod,
    sandbox,
    view_of,
)

MARKS = {WARM_POOL: "1", TEMPLATE_REF_HASH: "2", CREATED_BY: "controller"}
MEMBER = sandbox(owner=POOL, labels=MARKS, template={"labels": {WARM_POOL: "1", TEMPLATE_REF_HASH: "2"}})
EVICTABLE = {SAFE_TO_EVICT: "true", PROPAGATED_ANNOTATIONS: SAFE_TO_EVICT}
SERVING = pod(labels={**IDENTITY, **MARKS}, annotations={**MADE_FROM, **EVICTABLE})


def calls(work: Callable[[], object]) -> int:
    return calls_of(work) - 1  # the work itself


def starting(**changes: Any) -> Pod:
    return pod(**{"phase": "Pending", "ips": (), "conditions": [SCHEDULED], **changes})


def test_to_look_at_a_member_is_a_few_calls() -> None:
    pool = owner_object(POOL)[1]
    caches = caches_of(MEMBER, SERVING, pool)
    observer, key = Observer(caches), MEMBER.metadata.key
    assert calls(lambda: observer.view(key)) <= 18
    once, view = view_of(MEMBER, SERVING, pool), view_of(MEMBER, SERVING, pool)
    assert plan_sandbox(once, Options(), NOW).steps == ()
    assert status_of(once, NO_TROUBLE, Options(), NOW).pod_ips  # and what all sandboxes share is worked out now
    assert calls(lambda: plan_sandbox(view, Options(), NOW)) <= 50
    assert calls(lambda: status_of(view, NO_TROUBLE, Options(), NOW)) <= 50


def test_a_pod_that_is_as_it_should_be_is_a_few_calls() -> None:
    assert metadata_delta(MEMBER, SERVING, Options(), owner_alive=True) == {}
    assert calls(lambda: metadata_delta(MEMBER, SERVING, Options(), owner_alive=True)) <= 22


def test_what_changes_nothing_of_a_pod_is_not_looked_into() -> None:
    later = msgspec.structs.replace(SERVING, metadata=msgspec.structs.replace(SERVING.metadata, resource_version="9"))
    never = Haste.NEVER
    assert pod_haste(SERVING, later, MEMBER, lambda _: True) is never
    assert calls(lambda: pod_haste(SERVING, later, MEMBER, lambda _: True)) <= 4


def test_the_status_of_a_member_whose_pod_does_not_run_yet_is_not_worked_out() -> None:
    pool = owner_object(POOL)[1]
    assert unborn(view_of(MEMBER, starting(), pool), NO_TROUBLE)
    assert unborn(view_of(MEMBER, starting(conditions=[]), pool), NO_TROUBLE)
    stuck = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    assert not unborn(view_of(MEMBER, starting(conditions=[stuck]), pool), NO_TROUBLE)
    assert not unborn(view_of(MEMBER, SERVING, pool), NO_TROUBLE)
    assert not unborn(view_of(MEMBER, pool), NO_TROUBLE)
    assert not unborn(view_of(MEMBER, starting(phase="Failed"), pool), NO_TROUBLE)
