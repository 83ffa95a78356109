"""The annotations of a claim: never Ready without its sandbox's name and when it was first seen, whatever fails; when it was first ready follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from integration.controllers.claim_cluster import NOT_READY, Life, a_claim_cluster
from sandpool.base.errors import SandpoolError
from sandpool.controllers.claim.options import Options
from sandpool.kube.errors import (
    Conflict,
    Forbidden,
    InternalError,
    NotFound,
    Refused,
    ServerTimeout,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from sandpool.model import labels
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS
from sandpool.model.patches import merge_patch
from sandpool.model.reasons import Type

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")
ERRORS: tuple[SandpoolError, ...] = (
    Conflict("moved on"),
    ServerTimeout("late"),
    InternalError("broken"),
    Unavailable("down"),
    Unreachable("cut"),
    Refused("nobody there"),
    TooManyRequests("busy", retry_after=1),
    Forbidden("a policy says no"),
)


class Publications:
    """What every published state of claims says: whether they are Ready, and how they are annotated."""

    def __init__(self, life: Life) -> None:
        self.ready: list[tuple[str, dict[str, str]]] = []  # the sandbox that is shown, and the annotations beside it
        self._life = life

    async def follow(self) -> None:
        async with self._life.api.watch(CLAIMS, "default", initial=True) as events:
            async for event in events:
                claim = event.object
                if claim is not None and is_true(claim.status.conditions, Type.READY):
                    assert claim.status.sandbox is not None
                    self.ready.append((claim.status.sandbox.name, dict(claim.metadata.annotations)))

    def named(self) -> bool:
        """Whether none was ever Ready without what it must have then."""
        return bool(self.ready) and all(
            notes.get(labels.SANDBOX_NAME) == name and labels.CONTROLLER_FIRST_OBSERVED_AT in notes
            for name, notes in self.ready
        )


@asynccontextmanager
async def publications(life: Life) -> AsyncIterator[Publications]:
    seen = Publications(life)
    task = asyncio.create_task(seen.follow())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("way", ["warm", "warming", "cold"])
async def test_never_ready_without_the_annotations(way: str, error: SandpoolError) -> None:
    """However often they fail: the claim has its sandbox, and is Ready once it says so."""
    async with a_claim_cluster(Options(patience=1.0)) as life, publications(life) as seen:
        await life.furnish(1 if way == "warm" else 0)
        if way == "warming":
            await life.member("m0", ready=False)
        await life.settle()
        fault = life.faulty.on("patch", "sandboxclaims", times=6).refuse(error)
        claim = await life.claim()
        await life.settle(0.5)
        if way == "warming":
            await life.ready("m0")
        await life.settle(5)
        if way == "cold" and await life.sandbox("c") is not None:
            await life.ready("c")
        await life.settle(400)
        assert fault.met == 6
        assert await life.said() == IS_READY
        assert len(await life.owned(claim)) == 1
        assert seen.named(), seen.ready
        assert labels.CLAIM_FIRST_READY_AT in (await life.see()).metadata.annotations


async def test_a_binding_waits_for_an_annotation_that_takes_long() -> None:
    async with a_claim_cluster() as life, publications(life) as seen:
        await life.furnish()
        await life.settle()
        gate = asyncio.Event()
        life.faulty.on("patch", "sandboxclaims").hold(gate)
        await life.claim()
        await asyncio.sleep(1)  # of virtual time
        assert life.counted.count("patch", "sandboxes", "ok") == 1
        assert await life.has() == ""
        gate.set()
        await life.settle(1)
        assert await life.said() == IS_READY
        assert seen.named()


async def test_a_claim_that_takes_another_candidate_is_annotated_anew() -> None:
    async with a_claim_cluster() as life, publications(life) as seen:
        await life.furnish(2)
        await life.settle()
        life.faulty.on("patch", "sandboxes", "m0").refuse(NotFound("gone", details={"name": "m0"}))
        await life.claim()
        await life.settle(1)
        assert await life.has() == "m1"
        assert seen.named()
        assert {name for name, _ in seen.ready} == {"m1"}


async def test_annotations_that_the_server_refuses_are_told() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.settle()
        life.faulty.on("patch", "sandboxclaims", times=3).refuse(Forbidden("a policy says no"))
        await life.claim()
        await life.settle(0.5)
        assert await life.said() == ("False", "ReconcilerError")
        (ready,) = (await life.see()).status.conditions
        assert "could not annotate the claim" in ready.message
        assert "a policy says no" in ready.message
        assert "--disable-claim-observability-annotations" in ready.message
        await life.settle(30)
        assert await life.said() == IS_READY


async def test_a_claim_that_becomes_ready_again_names_its_sandbox_again() -> None:
    """Whoever took the annotations away meanwhile."""
    async with a_claim_cluster() as life, publications(life) as seen:
        await life.furnish()
        await life.claim()
        await life.settle()
        await life.says("m0", NOT_READY)
        await life.settle(5)
        gone = {"metadata": {"annotations": {labels.SANDBOX_NAME: None}}}
        await life.api.patch(CLAIMS, "c", merge_patch(gone), "default")
        await life.settle(5)
        seen.ready.clear()
        await life.ready("m0")
        await life.settle(5)
        assert await life.said() == IS_READY
        assert seen.named(), seen.ready
