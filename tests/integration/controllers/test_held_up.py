"""A pod that cannot start is told, with its own reason, by everything that waits for it: in seconds, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sandpool.model.conditions import Condition, find
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.resource import Resource
from sandpool.node.runtimes.fake import START_ERROR
from sandpool.sdk.claims import waiting_for
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ControlPlane, a_control_plane

SECONDS = 5.0
"""Of virtual time, until whoever is asked names the reason."""
NOWHERE = {"nodeSelector": {"no": "such"}}


def virtually(work: Callable[[ControlPlane], Awaitable[None]]) -> None:
    async def main() -> None:
        async with a_control_plane() as plane:
            await work(plane)

    run_virtually(main())


async def broken(plane: ControlPlane, reason: str, members: int) -> None:
    """A pool whose pods do not start for that reason."""
    pod = {"containers": [{"name": "main", "image": "python"}], **(NOWHERE if reason == "Unschedulable" else {})}
    notes = {} if reason == "Unschedulable" else {START_ERROR: reason}
    body = {"podTemplate": {"metadata": {"annotations": notes}, "spec": pod}}
    await plane.user.create(TEMPLATES, {"metadata": {"name": "python"}, "spec": body}, "default")
    await plane.pool(members)


async def said(plane: ControlPlane, resource: Resource, name: str, type_: str) -> Condition | None:  # type: ignore[type-arg]
    return find((await plane.user.get(resource, name, "default")).status.conditions, type_)


async def told(plane: ControlPlane, resource: Resource, name: str, type_: str, word: str) -> Condition:  # type: ignore[type-arg]
    """The condition once it names the reason, which it does in seconds."""

    async def names_it() -> bool:
        found = await said(plane, resource, name, type_)
        return found is not None and found.status == "False" and word in found.message

    await plane.until(names_it, SECONDS)
    found = await said(plane, resource, name, type_)
    assert found is not None
    return found


REASONS = [("ErrImagePull", "ImagePullBackOff"), ("CrashLoopBackOff", "CrashLoopBackOff"), ("Unschedulable",) * 2]


@pytest.mark.parametrize(("reason", "word"), REASONS)
def test_a_pool_and_a_claim_that_waits_for_it_name_the_reason(reason: str, word: str) -> None:
    async def story(plane: ControlPlane) -> None:
        await broken(plane, reason, 2)
        healthy = await told(plane, POOLS, "python", "Healthy", word)
        assert healthy.reason == "MembersNotStarting"
        members = {one.metadata.name for one in await plane.sandboxes()}
        assert any(f"Sandbox {name}: " in healthy.message for name in members)
        for name in members:
            assert (await told(plane, SANDBOXES, name, "Healthy", word)).reason == "PodNotStarting"
        await plane.claim("mine")
        ready = await told(plane, CLAIMS, "mine", "Ready", word)
        assert ready.reason == "SandboxMissing", "it may yet be served"
        body = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": ready.message}]}}
        assert word in waiting_for(body), "what ClaimTimeout quotes"

    virtually(story)


@pytest.mark.parametrize(("reason", "word"), REASONS)
def test_a_claim_that_starts_a_sandbox_of_its_own_names_the_reason(reason: str, word: str) -> None:
    async def story(plane: ControlPlane) -> None:
        await broken(plane, reason, 0)
        await plane.claim("mine")
        await told(plane, CLAIMS, "mine", "Ready", word)

    virtually(story)


def test_what_is_mended_is_served_and_nothing_is_said_of_it_any_more() -> None:
    async def story(plane: ControlPlane) -> None:
        await broken(plane, "ErrImagePull", 2)
        await told(plane, POOLS, "python", "Healthy", "ImagePullBackOff")
        await plane.claim("mine")
        pod = {"containers": [{"name": "main", "image": "python:mended"}]}
        fine = {"podTemplate": {"metadata": {"annotations": {START_ERROR: None}}, "spec": pod}}
        await plane.edit(TEMPLATES, "python", **fine)
        await plane.served(["mine"])
        await plane.filled(2)

        async def silent() -> bool:
            return await said(plane, POOLS, "python", "Healthy") is None

        await plane.until(silent, SECONDS)
        assert all(find(one.status.conditions, "Healthy") is None for one in await plane.sandboxes())

    virtually(story)


def test_a_sandbox_that_breaks_after_it_was_handed_out_is_told_by_its_claim() -> None:
    async def story(plane: ControlPlane) -> None:
        await plane.template()
        await plane.pool(1)
        await plane.filled(1)
        claim = await plane.claim("mine")
        await plane.served(["mine"])
        claim = await plane.get_claim("mine")
        assert find(claim.status.conditions, "Healthy") is None
        assert claim.status.sandbox is not None
        name = claim.status.sandbox.name
        broken_pod = {"podTemplate": {"metadata": {"annotations": {START_ERROR: "CreateContainerConfigError"}}}}
        await plane.edit(SANDBOXES, name, **broken_pod, operatingMode="Suspended")
        await plane.until(lambda: _suspended(plane, name))
        await plane.edit(SANDBOXES, name, operatingMode="Running")
        assert (await told(plane, CLAIMS, "mine", "Healthy", "CreateContainerConfigError")).reason == "PodNotStarting"

    virtually(story)


async def _suspended(plane: ControlPlane, name: str) -> bool:
    found = await said(plane, SANDBOXES, name, "Suspended")
    return found is not None and found.true


def test_a_start_that_goes_well_says_nothing_and_writes_nothing_for_it() -> None:
    async def story(plane: ControlPlane) -> None:
        await plane.template()
        await plane.pool(3)
        await plane.filled(3)
        assert plane.distant.sums["sandbox", "patch_status", "sandboxes"] == 3
        assert all(find(one.status.conditions, "Healthy") is None for one in await plane.sandboxes())
        assert await said(plane, POOLS, "python", "Healthy") is None

    virtually(story)
