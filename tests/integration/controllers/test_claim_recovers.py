"""Claims whose way is blocked for a while: nothing is forgotten, nothing is held for nothing, and whoever can be served is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from integration.controllers.claim_cluster import Life, a_claim_cluster
from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import Conflict, Forbidden, InternalError, NotFound, TooManyRequests
from sandpool.model import labels
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key, Uid
from sandpool.model.patches import merge_patch

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")
TEAM = "sandbox.users.io/team"


# What an edit takes away


@pytest.mark.parametrize(
    "error",
    [InternalError("broken"), Conflict("moved on"), TooManyRequests("busy", retry_after=1)],
    ids=lambda error: type(error).__name__,
)
async def test_what_was_dropped_goes_although_the_first_try_failed(error: SandpoolError) -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim(additionalPodMetadata={"labels": {TEAM: "a"}})
        await life.settle()
        life.faulty.on("patch", "sandboxes").refuse(error)
        await life.edit(additionalPodMetadata=None)
        await life.settle(3)
        sandbox = await life.sandbox("m0")
        assert sandbox is not None
        assert sandbox.spec.pod_template.metadata is not None
        assert TEAM not in sandbox.spec.pod_template.metadata.labels
        claim = await life.see()
        assert [one.observed_generation for one in claim.status.conditions if one.type == "Ready"] == [2]


# What the annotations say


async def test_a_claim_that_lost_its_member_is_not_annotated_with_it() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.settle()
        life.faulty.on("patch", "sandboxes", "m0").refuse(NotFound("gone"))
        await life.claim()
        await life.settle()
        assert await life.has() == "c", "cold"
        assert labels.CLAIM_FIRST_READY_AT not in (await life.see()).metadata.annotations
        assert (await life.see()).metadata.annotations.get(labels.SANDBOX_NAME) != "m0"
        await life.api.delete(SANDBOXES, "m0", "default")
        await life.settle(30)
        await life.ready("c")
        await life.settle()
        notes = (await life.see()).metadata.annotations
        assert notes[labels.SANDBOX_NAME] == "c"
        assert notes[labels.CLAIM_FIRST_READY_AT] > "2026-01-01T00:00:30"


async def test_annotations_that_are_forbidden_are_tried_less_and_less_often() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        forbidden = life.faulty.on("patch", "sandboxclaims", times=10_000).refuse(Forbidden("not yours"))
        await life.claim()
        await life.settle(600)
        assert await life.said() == ("False", "ReconcilerError"), "never Ready without them"
        assert life.counted.count("patch", "sandboxclaims") < 25
        forbidden.times = 0
        await life.settle(60)
        assert await life.said() == IS_READY


# Whoever cannot start cold takes what comes


async def blocked_by_name(life: Life) -> None:
    await life.api.create(SANDBOXES, {"metadata": {"name": "c"}, "spec": {"podTemplate": {"spec": POD}}}, "default")


async def blocked_by_template(life: Life) -> None:
    await life.api.delete(TEMPLATES, "t", "default")


async def blocked_by_quota(life: Life) -> None:
    life.faulty.on("create", "sandboxes", times=10_000).refuse(Forbidden("exceeded quota"))


POD = {"containers": [{"name": "main", "image": "python"}]}


@pytest.mark.parametrize("block", [blocked_by_name, blocked_by_template, blocked_by_quota])
async def test_a_member_that_becomes_ready_late_is_not_left_idle(block: object) -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.member("m0", ready=False)
        await block(life)  # type: ignore[operator]
        await life.claim()
        await life.settle(400)
        assert await life.has() == ""
        told = await life.said()
        assert told is not None
        assert told[0] == "False"
        await life.ready("m0")
        await life.settle(1)
        assert await life.has() == "m0"
        assert await life.said() == IS_READY


async def test_a_claim_that_stands_by_does_not_spin() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.member("m0", ready=False)
        await blocked_by_name(life)
        await life.claim()
        await life.settle(3600)
        assert life.reconciles < 10
        assert len(life.writes) < 5


# What a member cannot have, a new sandbox may


async def test_a_claim_that_only_the_old_members_contradict_starts_cold() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        pod = {"podTemplate": {"metadata": {"labels": {TEAM: "ours"}}}}
        await life.api.patch(SANDBOXES, "m0", merge_patch({"spec": pod}), "default")
        await life.settle()
        await life.claim("a", additionalPodMetadata={"labels": {TEAM: "mine"}})
        await life.settle()
        assert await life.has("a") == "a"
        await life.claim("b")
        await life.settle()
        assert await life.has("b") == "m0"


# Nothing is held for nothing


async def test_a_member_is_not_kept_for_a_claim_that_the_server_does_not_let_take_it() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.settle()
        life.faulty.on("patch", "sandboxes", "m0", times=3).refuse(Forbidden("a policy says no"))
        await life.claim("a")
        await life.settle(5)
        assert life.reconciled("error") == 3
        await life.claim("b")
        await life.settle(0.1)
        assert await life.has("b") == "m0", "the next try of a is seconds away"


async def test_a_deleted_claim_whose_watch_is_late_takes_no_second_member() -> None:
    """The sandbox of a deleted claim is collected, and the watch of sandboxes is faster than that of claims."""
    async with a_claim_cluster() as life:
        await life.furnish(2)
        claim = await life.claim()
        await life.settle()
        first = await life.has()
        life.api.flow.clear()
        await life.api.delete(CLAIMS, "c", "default")
        await life.api.delete(SANDBOXES, first, "default")
        key = Key("default", first)
        sandbox = life.caches.sandboxes.get(key)
        assert sandbox is not None
        life.caches.sandboxes.missing(key, sandbox.metadata.uid)
        await life.settle(1)
        assert await life.owned(claim) == []
        life.api.flow.set()


# When the clock is set


async def test_a_wait_does_not_grow_when_the_clock_is_set_back() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.member("m0", ready=False)
        await life.claim()
        await life.settle(1)
        set_clock(life, timedelta(hours=-1))
        await life.settle(25)
        assert await life.has() == "c", "it started cold"


async def test_an_end_that_a_clock_jumps_over_is_not_missed() -> None:
    """As after a night in which the machine slept: the clock of the wall went on, that of the timers stood still."""
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim(lifecycle={"shutdownTime": "2026-01-01T08:00:00Z"})
        await life.settle(10)
        set_clock(life, timedelta(hours=9))
        await life.settle(120)
        assert await life.said() == ("False", "ClaimExpired")


def set_clock(life: Life, by: timedelta) -> None:
    life.clock.jump(by)


# When nobody answers


@pytest.mark.parametrize("made", [False, True], ids=["before it is made", "before it is answered"])
@pytest.mark.parametrize(
    ("members", "call"),
    [
        (2, ("patch", "sandboxes")),
        (2, ("patch_status", "sandboxclaims")),
        (2, ("patch", "sandboxclaims")),
        (0, ("create", "sandboxes")),
        (0, ("patch_status", "sandboxclaims")),
    ],
)
async def test_a_call_that_hangs_for_ever(members: int, call: tuple[str, str], made: bool) -> None:
    async with a_claim_cluster() as life:
        await life.furnish(members)
        await life.settle()
        fault = life.faulty.on(*call)
        fault.hold_answer(asyncio.Event()) if made else fault.hold(asyncio.Event())
        await life.claim()
        await asyncio.sleep(120)
        await life.settle()
        assert fault.met == 1
        claim = await life.see()
        assert await life.owned(claim) == [await life.has()]
        assert life.assigner.counts(await pool_uid(life)).reserved == 0
        other = await life.claim("d")
        await life.settle(30)
        assert len(await life.owned(other)) == 1


async def pool_uid(life: Life) -> Uid:
    return (await life.api.get(POOLS, "p", "default")).metadata.uid


# A sandbox that is gone, and a pool that is not there


@pytest.mark.parametrize("when", ["later", "while it is told"])
async def test_a_claim_that_lost_its_sandbox_and_has_no_pool_is_served_when_the_pool_is_back(when: str) -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim()
        await life.settle()
        assert await life.has() == "m0"
        await life.api.delete(POOLS, "p", "default")
        await life.settle()
        observability = asyncio.Event()
        if when == "while it is told":
            life.faulty.on("patch_status", "sandboxclaims").hold(observability)
        await life.api.delete(SANDBOXES, "m0", "default")
        await asyncio.sleep(0.1)
        await life.pool()
        await asyncio.sleep(0.1)
        observability.set()
        await life.settle(3)
        assert await life.has() == "c", "it started one of its own"
