"""A namespace whose quota is used up: what pools, claims and sandboxes say, how often they try, and that they go on when there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sandpool.model.conditions import find
from sandpool.model.kinds import CLAIMS, PODS, RESOURCE_QUOTAS, SANDBOXES
from sandpool.model.patches import merge_patch
from sandpool.model.reasons import Type
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ControlPlane, a_control_plane

PODS_LIMIT = 2
CLAIM_COUNT = "count/sandboxclaims.extensions.agents.x-k8s.io"
BOX_COUNT = "count/sandboxes.agents.x-k8s.io"


def virtually(work: Callable[[ControlPlane], Awaitable[None]]) -> None:
    async def main() -> None:
        async with a_control_plane() as plane:
            await work(plane)

    run_virtually(main())


async def limit(plane: ControlPlane, **hard: Any) -> None:
    await plane.user.create(RESOURCE_QUOTAS, {"metadata": {"name": "few"}, "spec": {"hard": hard}}, "default")


async def raise_to(plane: ControlPlane, **hard: Any) -> None:
    await plane.user.patch(RESOURCE_QUOTAS, "few", merge_patch({"spec": {"hard": hard}}), "default")


async def said_of_pool(plane: ControlPlane) -> str:
    return " ".join(condition.message for condition in (await plane.get_pool()).status.conditions)


def test_a_pool_whose_sandboxes_do_not_fit_says_so_and_fills_when_they_do() -> None:
    async def work(plane: ControlPlane) -> None:
        await limit(plane, **{BOX_COUNT: 2})
        await plane.template()
        await plane.pool(4)

        async def told() -> bool:
            return f"exceeded quota: few, requested: {BOX_COUNT}=1, used: {BOX_COUNT}=2" in await said_of_pool(plane)

        await plane.until(told, seconds=10)
        assert len(await plane.sandboxes()) == 2
        plane.distant.clear()
        await asyncio.sleep(60)
        tried = [made for _, made in plane.distant.failures]
        assert len(tried) < 15, "it waits longer each time"
        await raise_to(plane, **{BOX_COUNT: 4})
        await plane.filled(4)
        assert "exceeded quota" not in await said_of_pool(plane)

    virtually(work)


def test_a_sandbox_whose_pod_does_not_fit_says_so() -> None:
    async def work(plane: ControlPlane) -> None:
        await limit(plane, pods=0)
        await plane.user.create(
            SANDBOXES,
            {
                "metadata": {"name": "box"},
                "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "python"}]}}},
            },
            "default",
        )

        async def told() -> bool:
            box = await plane.user.get(SANDBOXES, "box", "default")
            return any("exceeded quota: few, requested: pods=1" in each.message for each in box.status.conditions)

        await plane.until(told, seconds=10)
        await raise_to(plane, pods=1)

        async def ready() -> bool:
            box = await plane.user.get(SANDBOXES, "box", "default")
            found = find(box.status.conditions, Type.READY)
            return found is not None and found.status == "True"

        await plane.until(ready)

    virtually(work)


def test_a_claim_that_starts_cold_says_why_it_waits() -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.template()
        await plane.pool(0)
        await limit(plane, pods=0)
        await plane.claim("mine")

        async def told() -> bool:
            claim = await plane.get_claim("mine")
            return any("exceeded quota: few" in each.message for each in claim.status.conditions)

        await plane.until(told, seconds=15)
        await raise_to(plane, pods=3)
        await plane.served(["mine"])

    virtually(work)


def test_places_that_a_released_claim_leaves_are_taken() -> None:
    async def work(plane: ControlPlane) -> None:
        await limit(plane, pods=PODS_LIMIT)
        await plane.template()
        await plane.pool(PODS_LIMIT)
        await plane.filled(PODS_LIMIT)
        await plane.claim("mine")
        await plane.served(["mine"])
        await asyncio.sleep(5)
        assert len((await plane.user.list(PODS, "default")).items) == PODS_LIMIT
        await plane.user.delete(CLAIMS, "mine", "default")
        await plane.filled(PODS_LIMIT)

    virtually(work)


def test_claims_themselves_are_counted_also_those_that_are_served_at_once() -> None:
    async def work(plane: ControlPlane) -> None:
        await limit(plane, **{CLAIM_COUNT: 3})
        await plane.template()
        await plane.pool(6)
        await plane.filled(6)
        asked = await asyncio.gather(*(plane.claim(f"c{n}") for n in range(6)), return_exceptions=True)
        refused = [str(answer) for answer in asked if isinstance(answer, Exception)]
        assert len(refused) == 3
        assert all(
            f"exceeded quota: few, requested: {CLAIM_COUNT}=1, used: {CLAIM_COUNT}=3" in text for text in refused
        )
        await plane.served([f"c{n}" for n in range(3)])

    virtually(work)
