"""What one warm claim costs, and three hundred at once: counted, so it does not depend on the machine."""

from __future__ import annotations

import asyncio

import pytest

from integration.controllers.claim_cluster import a_claim_cluster
from sandpool.controllers.claim.options import Options
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.patches import merge_patch
from sandpool.model.times import parse

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")


WRITES = ["patch sandboxclaims", "patch sandboxclaims", "patch sandboxes", "patch_status sandboxclaims"]
"""Which sandbox, the transfer, the binding; and when it was first ready, which is a second event of a claim that is Ready."""


async def test_one_warm_claim_is_four_writes_and_one_reconcile() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(3)
        await life.settle()
        await life.claim()
        await life.settle(1)
        assert await life.said() == IS_READY
        assert sorted(life.writes) == WRITES
        assert life.refused == []
        assert life.counted.count("get") == life.counted.count("list") == 0
        assert life.reconciles == 1, life.told()
        assert await life.events() == [("Normal", "SandboxAdopted")]
        await life.settle(100)
        assert len(life.writes) == 4
        assert life.reconciles == 1


async def test_two_round_trips_to_ready() -> None:
    """Every call takes a second: transfer and naming beside each other, then the binding, and the moment when nobody waits any more."""
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.settle()
        life.faulty.on("", times=100).delay(1.0)
        began = asyncio.get_running_loop().time()
        await life.claim()
        while await life.said() != IS_READY:
            await asyncio.sleep(0.05)
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.1)
        named = {labels.SANDBOX_NAME, labels.CONTROLLER_FIRST_OBSERVED_AT}
        assert set((await life.see()).metadata.annotations) == named, "when it was first ready held it up"
        assert life.counted.count("patch", "sandboxclaims", "ok") == 1
        await life.settle()
        assert life.counted.count("patch", "sandboxclaims", "ok") == 2
        assert set((await life.see()).metadata.annotations) == named | {labels.CLAIM_FIRST_READY_AT}


async def test_the_annotations_tell_the_truth() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        claim = await life.claim()
        await life.settle()
        notes = (await life.see()).metadata.annotations
        assert notes[labels.SANDBOX_NAME] == "m0"
        seen, ready = (parse(notes[key]) for key in (labels.CONTROLLER_FIRST_OBSERVED_AT, labels.CLAIM_FIRST_READY_AT))
        assert claim.metadata.creation_timestamp is not None
        assert claim.metadata.creation_timestamp <= seen <= ready


async def test_the_annotations_can_be_switched_off() -> None:
    async with a_claim_cluster(Options(annotations=False)) as life:
        await life.furnish()
        await life.claim()
        await life.settle()
        assert await life.said() == IS_READY
        assert life.writes == ["patch sandboxes", "patch_status sandboxclaims"]
        assert (await life.see()).metadata.annotations == {}


async def test_metadata_of_the_pod_travels_with_the_transfer() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim(additionalPodMetadata={"labels": {"sandbox.users.io/team": "a"}})
        await life.settle(1)
        assert len(life.writes) == 4
        taken = await life.sandbox("m0")
        assert taken is not None
        assert taken.spec.pod_template.metadata is not None
        assert taken.spec.pod_template.metadata.labels == {"sandbox.users.io/team": "a"}


async def test_three_hundred_at_once() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(300)
        await life.settle()
        claims = await asyncio.gather(*(life.claim(f"c{number}") for number in range(300)))
        await life.settle(1)
        taken = [await life.has(claim.metadata.name) for claim in claims]
        assert len(set(taken)) == 300
        assert {await life.said("Ready", claim.metadata.name) for claim in claims} == {IS_READY}
        assert life.counted.writes == 1200
        assert life.refused == []
        assert life.counted.count("get") == 0
        assert life.reconciles == 300
        assert life.assigner.counts((await life.api.get(CLAIMS, "c0", "default")).metadata.uid).reserved == 0
        assert await everything_owned_once(life.api, claims)


async def everything_owned_once(api: object, claims: list[SandboxClaim]) -> bool:
    sandboxes = (await api.list(SANDBOXES, "default")).items  # type: ignore[attr-defined]
    owners = [one.metadata.controller.uid for one in sandboxes if one.metadata.controller is not None]
    return sorted(owners) == sorted(claim.metadata.uid for claim in claims)


async def test_what_does_not_concern_a_claim_wakes_nobody() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim()
        await life.settle(1)
        await life.api.patch(CLAIMS, "c", merge_patch({"metadata": {"annotations": {"a": "b"}}}), "default")
        await life.api.patch(SANDBOXES, "m0", merge_patch({"metadata": {"annotations": {"a": "b"}}}), "default")
        await life.settle(10)
        assert life.reconciles == 1
        assert len(life.writes) == 4
