"""Claims that wait: the oldest is served first, also while it starts cold, and what it started in vain is removed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from integration.controllers.claim_cluster import NOT_READY, Life, World, a_claim_cluster, a_life
from sandpool.controllers.claim.keep import SURPLUS_PER_SECOND
from sandpool.controllers.claim.options import Options
from sandpool.controlplane.api import LocalApi
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES
from sandpool.model.patches import merge_patch
from sandpool.model.times import seconds
from support.api.faulty_api import FaultyApi
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import START, a_cluster

pytestmark = pytest.mark.looptime


def as_one_machine(api: FlakyApi, life: Life) -> None:
    """The server asks this life of the controller before it stores a claim."""
    local = api.inner
    assert isinstance(local, LocalApi)
    local.objects.hooks.register(CLAIMS, life.controller.inline)


IS_READY = ("True", "DependenciesReady")
MISSING = ("False", "SandboxMissing")


async def test_a_cold_sandbox_is_shown_when_it_is_ready() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=1)
        await life.settle()
        claim = await life.claim()
        await life.settle(1)
        assert await life.owned(claim) == ["c"]
        assert await life.has() == ""
        assert life.writes == ["create sandboxes"], "a short wait is nobody's news"
        await life.settle(2)
        assert await life.said() == MISSING
        await life.says("c", NOT_READY)
        await life.settle(2)
        assert await life.said() == ("False", NOT_READY["reason"]), "what its sandbox says meanwhile is told"
        assert await life.has() == ""
        await life.ready("c")
        await life.settle()
        assert (await life.said(), await life.has()) == (IS_READY, "c")


async def test_a_member_that_is_ready_first_makes_the_cold_sandbox_superfluous() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=1)
        await life.settle()
        claim = await life.claim()
        await life.settle()
        assert await life.owned(claim) == ["c"]
        await life.member("m0")
        await life.settle(1)
        assert (await life.said(), await life.has()) == (IS_READY, "m0")
        assert await life.owned(claim) == ["m0"], "what was started in vain is gone, and enters no pool"
        assert await life.events() == [("Normal", "SandboxAdopted")]
        assert life.refused == []


async def test_a_cold_sandbox_that_is_ready_first_leaves_the_member_to_the_next() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=1)
        await life.settle()
        await life.claim("a")
        await life.settle(2)
        await life.claim("b")
        await life.settle()
        await life.ready("a")
        await life.settle()
        assert await life.has("a") == "a"
        await life.member("m0")
        await life.settle(1)
        assert await life.has("b") == "m0"
        assert await life.sandbox("b") is None


async def test_the_oldest_first_though_all_have_begun_to_start_cold() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=2)
        await life.settle()
        for name in ("z", "y", "x"):
            await life.claim(name)
            await life.settle(2)
        for number, name in enumerate(("z", "y", "x")):
            assert await life.has(name) == ""
            await life.member(f"m{number}")
            await life.settle(1)
            assert await life.has(name) == f"m{number}"


async def test_a_new_leader_serves_whoever_it_finds_waiting_in_order() -> None:
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(0, replicas=2)
        for name in ("z", "y", "x"):
            await world.claim(name)
            await asyncio.sleep(2)
        await world.member("m0")
        async with a_life(api) as life:
            await life.settle(1)
            assert [await life.has(name) for name in ("z", "y", "x")] == ["m0", "", ""]
            await life.member("m1")
            await life.settle(1)
            assert [await life.has(name) for name in ("z", "y", "x")] == ["m0", "m1", ""]
            assert life.repairs == 0


async def test_a_new_leader_that_finds_members_for_all_gives_them_away_in_order() -> None:
    """Not in the order in which it hears of the claims, which is that of their names."""
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(3, replicas=3)
        for name in ("z", "y", "x"):
            await world.claim(name)
            await asyncio.sleep(2)
        async with a_life(api) as life:
            await life.settle(1)
            taken = [await life.sandbox(await life.has(name)) for name in ("z", "y", "x")]
            revisions = [one.metadata.revision for one in taken if one is not None]
            assert revisions == sorted(revisions)
            assert len(revisions) == 3


async def test_a_leader_knows_the_order_of_what_it_heard_of_before_it_led() -> None:
    """Of claims that were made in the same second, also if somebody has written to the first of them since."""
    async with a_cluster() as api:
        world, slow, led = World(api), FaultyApi(api), asyncio.Event()
        await world.furnish(0, replicas=2)
        slow.on("list", "sandboxclaims").hold(led)

        async def crowd() -> None:
            await asyncio.sleep(1)
            for name in ("z", "y"):
                await world.claim(name)
            await api.patch(CLAIMS, "z", merge_patch({"metadata": {"labels": {"colour": "red"}}}), "default")
            await asyncio.sleep(1)
            led.set()

        crowding = asyncio.create_task(crowd())
        async with a_life(api, below=slow) as life:
            await crowding
            for number, name in enumerate(("z", "y")):
                await life.member(f"m{number}")
                await life.settle(1)
                assert await life.has(name) == f"m{number}"


@pytest.mark.parametrize("lives", [1, 3])
async def test_on_one_machine_the_order_within_a_second_outlasts_a_restart(lives: int) -> None:
    """Also of those who were told that they wait, and whose revision moved on with it."""
    names = ("z", "y", "x", "w", "v")
    slowly = Options(reports_per_second=0.5, patience=1000.0)
    async with a_cluster() as api:
        world, served = World(api), list[str]()
        await world.furnish(0, replicas=5)
        for number in range(len(names)):
            await world.member(f"m{number}", ready=False)
        for life_number in range(lives):
            async with a_life(api, slowly) as life:
                if life_number == 0:
                    as_one_machine(api, life)
                    for name in names:  # in one moment: the clock says nothing
                        await life.claim(name)
                await asyncio.sleep(2.5)
                if life_number == 0:
                    told = [await life.said("Ready", name) for name in names]
                    assert told == [MISSING, None, None, None, None], "one was told meanwhile"
                await life.crash()
        async with a_life(api, slowly) as life:
            await life.settle(1)
            for number in range(len(names)):
                await life.ready(f"m{number}")
                await life.settle(1)
                served += [name for name in names if name not in served and await life.has(name)]
            assert life.repairs == 0
        assert served == list(names)


async def test_a_leader_that_finds_a_cold_start_and_a_member_of_one_claim_shows_the_member() -> None:
    """Its predecessor ended between the transfer and the binding."""
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(0, replicas=1)
        async with a_life(api) as life:
            claim = await life.claim()
            await life.settle()
            await life.crash()
        await world.member("m0")
        async with a_life(api) as life:
            await life.settle(1)
            assert await life.has() == "m0"
            assert await life.owned(claim) == ["m0"]


async def test_a_pool_that_will_have_no_members_leaves_nobody_waiting() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=1)
        await life.settle()
        await life.claim()
        await life.settle()
        assert await life.has() == ""
        await life.api.patch(POOLS, "p", merge_patch({"spec": {"replicas": 0}}), "default")
        await life.settle()
        assert await life.has() == "c", "there is nothing else to come: it is shown as it starts"


async def test_a_claim_that_ends_while_it_waits_leaves_its_turn_to_the_next() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=2)
        await life.settle()
        for name in ("a", "b"):
            await life.claim(name)
            await life.settle(2)
        await life.api.delete(CLAIMS, "a", "default")
        await life.settle()
        await life.member("m0")
        await life.settle(1)
        assert await life.has("b") == "m0"


async def test_a_claim_that_ends_while_its_sandbox_is_made_leaves_its_turn_to_the_next() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=2)
        await life.settle()
        made = asyncio.Event()
        life.faulty.on("create", "sandboxes", "a").hold(made)
        for name in ("a", "b"):
            await life.claim(name)
            await asyncio.sleep(2)
        await life.api.delete(CLAIMS, "a", "default")
        await asyncio.sleep(1)
        await life.member("m0")
        await asyncio.sleep(1)
        assert await life.has("b") == "m0", "nothing is kept for a claim that is gone"
        made.set()


async def test_a_claim_that_is_given_more_time_has_its_place_at_once() -> None:
    """Also while it is still being told that it has ended."""
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=1)
        await life.member("warming", ready=False)
        await life.settle()
        told = asyncio.Event()
        life.faulty.on("patch_status", "sandboxclaims", "old").hold(told)
        await life.claim("old", lifecycle={"shutdownTime": seconds(START + timedelta(seconds=1))})
        await asyncio.sleep(3)
        await life.edit("old", lifecycle={"shutdownTime": seconds(START + timedelta(hours=1))})
        await asyncio.sleep(1)
        await life.claim("new")
        await asyncio.sleep(1)
        await life.ready("warming")
        await asyncio.sleep(1)
        told.set()
        await asyncio.sleep(1)
        assert [await life.has(name) for name in ("old", "new")] == ["warming", ""]


async def test_who_is_just_telling_that_it_waits_is_not_overtaken_for_it() -> None:
    """Past capacity such a write may wait long for its own turn. The claim that is called meanwhile gives it up."""
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=1)
        await life.member("warming", ready=False)
        await life.settle()
        life.faulty.on("patch_status", times=1).delay(50.0)
        await life.claim("old")
        await asyncio.sleep(3)
        assert await life.said("Ready", "old") is None, "what it waits for is on its way to the server"
        await life.ready("warming")
        await asyncio.sleep(1)
        assert (await life.said("Ready", "old"), await life.has("old")) == (IS_READY, "warming")
        await life.settle(100)
        assert (await life.said("Ready", "old"), await life.has("old")) == (IS_READY, "warming")


async def test_what_was_started_in_vain_is_removed_at_a_bounded_pace() -> None:
    """Others wait for the same server. All claims are served at once, and what they do not need goes a few at a time."""
    count, pace = 48, round(SURPLUS_PER_SECOND)
    async with a_claim_cluster() as life:
        await life.furnish(0, replicas=1)
        await life.settle()
        names = [f"c{number}" for number in range(count)]
        for name in names:
            await life.claim(name)
        while len(await cold(life)) < count:  # nothing becomes ready: more and more try a sandbox of their own
            await life.settle(10)
        for number in range(count):
            await life.member(f"m{number}", ready=False)
        for number in range(count):
            await life.ready(f"m{number}")
        await asyncio.sleep(0.1)
        assert [await life.has(name) for name in names] == [f"m{number}" for number in range(count)]
        left = [len(await cold(life))]
        while left[-1]:
            await asyncio.sleep(1)
            left.append(len(await cold(life)))
        gone = [before - after for before, after in pairwise([count, *left])]
        assert max(gone) <= pace + 1
        assert len(gone) <= 1 + count // pace + 1, "and no slower than that"
        assert life.refused == []


async def cold(life: World) -> list[str]:
    """Sandboxes that claims have started for themselves."""
    boxes = (await life.api.list(SANDBOXES, "default")).items
    return [box.metadata.name for box in boxes if box.metadata.name.startswith("c")]
