"""The end of a claim: on time, once, by its policy, told before anything is torn down."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from integration.controllers.claim_cluster import READY, Life, World, a_claim_cluster, a_life
from sandpool.kube.errors import NotFound
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.patches import merge_patch
from sandpool.model.times import seconds
from support.simulated.loop_cluster import START, a_cluster

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")
EXPIRED = ("False", "ClaimExpired")
FINISHED = {"type": "Finished", "status": "True", "reason": "PodSucceeded", "message": "done"}
DONE = {"type": "Ready", "status": "False", "reason": "PodSucceeded", "message": "done"}


def at(later: float) -> str:
    return seconds(START + timedelta(seconds=later))


def ends(later: float, policy: str | None = None) -> dict[str, object]:
    return {"shutdownTime": at(later), **({"shutdownPolicy": policy} if policy else {})}


async def there(world: World, name: str = "c") -> bool:
    try:
        await world.see(name)
    except NotFound:
        return False
    return True


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("policy", [None, "Retain"])
async def test_retain_keeps_the_claim_and_deletes_the_sandbox(policy: str | None, warm: bool) -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1 if warm else 0)
        await life.claim(lifecycle=ends(60, policy))
        await life.settle(1)
        name = await life.has()
        await asyncio.sleep(58)
        assert await life.sandbox(name) is not None, "not early"
        await life.settle(2)
        assert await life.sandbox(name) is None
        assert await life.said() == EXPIRED
        assert (await life.see()).status.sandbox is None
        writes = len(life.writes)
        await life.settle(1000)
        assert len(life.writes) == writes, "once"
        assert (await life.events()).count(("Normal", "ClaimExpired")) == 1


@pytest.mark.parametrize("policy", ["Delete", "DeleteForeground"])
async def test_delete_removes_the_claim_and_leaves_the_rest_to_the_collector(policy: str) -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(lifecycle=ends(60, policy))
        await life.settle(59)
        assert await there(life)
        await life.settle(2)
        deletes = [made for made in life.counted.calls if made.verb == "delete"]
        assert [(made.resource, made.outcome) for made in deletes] == [("sandboxclaims", "ok")]
        assert life.writes[-2:] == ["patch_status sandboxclaims", "delete sandboxclaims"], "told first"
        if policy == "Delete":
            assert not await there(life)
        else:
            left = (await life.see()).metadata
            assert left.leaving
            assert "foregroundDeletion" in left.finalizers


async def test_a_claim_from_the_past_never_gets_a_sandbox() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await asyncio.sleep(10)
        claim = await life.claim(lifecycle=ends(5))
        await life.settle()
        assert await life.said() == EXPIRED
        assert await life.owned(claim) == []
        assert life.writes == ["patch_status sandboxclaims"]


async def test_a_claim_expires_while_it_waits_and_gives_its_place_up() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.member("m0", ready=False)
        await life.settle()
        await life.claim(lifecycle=ends(5))
        await life.settle(6)
        assert await life.said() == EXPIRED
        await life.ready("m0")
        await life.claim("b")
        await life.settle()
        assert await life.has("b") == "m0"


async def test_time_to_live_after_the_work_is_done() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(lifecycle={"ttlSecondsAfterFinished": 30})
        await life.settle(5)
        await says_done(life)
        await life.settle(29)
        assert await life.said() == ("False", "PodSucceeded")
        await life.settle(2)
        assert await life.said() == EXPIRED
        assert await life.said("Finished") == ("True", "PodSucceeded"), "how the work ended stays readable"
        assert await life.sandbox("m0") is None


async def test_time_to_live_of_zero_is_told_before_it_is_done() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(lifecycle={"ttlSecondsAfterFinished": 0})
        await life.settle(5)
        await says_done(life)
        await life.settle(1)
        assert await life.said() == EXPIRED
        assert await life.said("Finished") == ("True", "PodSucceeded")
        assert await life.sandbox("m0") is None
        order = [write for write in life.writes if write.endswith("sandboxes") or "status" in write]
        assert order[:5] == [
            "patch sandboxes", "patch_status sandboxclaims",
            "patch_status sandboxclaims", "patch_status sandboxclaims", "delete sandboxes",
        ]  # fmt: skip


async def test_finished_without_a_time_to_live_changes_nothing() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim()
        await life.settle(5)
        await says_done(life)
        await life.settle(10_000)
        assert await life.sandbox("m0") is not None
        assert await there(life)


@pytest.mark.parametrize(("shutdown", "ttl", "end"), [(20, 120, 20), (120, 10, 15)])
async def test_the_earlier_one_counts(shutdown: int, ttl: int, end: int) -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(lifecycle={**ends(shutdown), "ttlSecondsAfterFinished": ttl})
        await life.settle(5)
        await says_done(life)
        await asyncio.sleep(now_until(life, end - 1))
        assert await life.said() != EXPIRED
        await life.settle(2.1)
        assert await life.said() == EXPIRED


def now_until(life: Life, later: float) -> float:
    return (START + timedelta(seconds=later) - life.clock.now()).total_seconds()


async def says_done(life: Life) -> None:
    stamp = seconds(life.clock.now())
    await life.says("m0", DONE | {"lastTransitionTime": stamp}, FINISHED | {"lastTransitionTime": stamp})


async def test_more_time_is_given_in_time() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(lifecycle=ends(60))
        await life.settle(50)
        await life.edit(lifecycle=ends(600))
        await life.settle(100)
        assert await life.said() == IS_READY
        await life.settle(500)
        assert await life.said() == EXPIRED


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_more_time_is_given_in_the_last_moment(policy: str) -> None:
    """The edit lands while the end is being told: it wins, because the end is told of the spec that was looked at."""
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(lifecycle=ends(60, policy))
        await life.settle(1)
        gate = asyncio.Event()
        fault = life.faulty.on("patch_status", "sandboxclaims").hold(gate)
        await asyncio.sleep(60)
        assert fault.met == 1
        await life.edit(lifecycle=ends(600, policy))
        gate.set()
        await life.settle(1)
        assert await life.said() == IS_READY
        assert await life.sandbox("m0") is not None
        assert life.counted.count("delete") == 0
        assert ("Normal", "ClaimExpired") not in await life.events(), "it was never told"


async def test_more_time_between_the_mark_and_the_delete_of_the_claim() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(lifecycle=ends(60, "Delete"))
        await life.settle(1)
        gate = asyncio.Event()
        fault = life.faulty.on("delete", "sandboxclaims").hold(gate)
        await asyncio.sleep(60)
        assert fault.met == 1
        await life.edit(lifecycle=ends(600, "Delete"))
        gate.set()
        await life.settle(1)
        assert await there(life)
        assert await life.said() == IS_READY, "it has its sandbox, and says so again"


async def test_a_retained_claim_that_is_given_more_time_gets_another_sandbox() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(2)
        await life.claim(lifecycle=ends(60))
        await life.settle(61)
        assert await life.said() == EXPIRED
        await life.edit(lifecycle=ends(600))
        await life.settle()
        assert await life.said() == IS_READY
        assert await life.has() == "m1"


async def test_an_end_that_is_taken_back_is_not_shown_while_the_claim_waits() -> None:
    """Clients stop waiting when they see it."""
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(lifecycle=ends(60))
        await life.settle(61)
        await life.member("m9", ready=False)
        await life.edit(lifecycle=ends(600))
        await life.settle(0.1)
        assert await life.said() == ("False", "SandboxMissing")


async def test_a_foreign_sandbox_in_the_status_is_not_deleted() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(2)
        await life.claim(lifecycle=ends(60))
        await life.settle(1)
        other = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "other", "controller": True}
        await life.api.delete(CLAIMS, "c", "default")
        await life.api.patch(SANDBOXES, "m0", merge_patch({"metadata": {"ownerReferences": [other]}}), "default")
        await life.claim("d", lifecycle=ends(0.0))
        bound = {"status": {"sandbox": {"name": "m0"}}}
        await life.api.patch_status(CLAIMS, "d", merge_patch(bound), "default")
        await life.settle(1)
        assert await life.sandbox("m0") is not None
        assert await life.said("Ready", "d") == EXPIRED
        assert (await life.see("d")).status.sandbox is None


async def test_a_sandbox_that_no_status_names_goes_with_the_rest() -> None:
    """It was handed over, and the controller died before it said so."""
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(1)
        claim = await world.claim(lifecycle=ends(-5))
        reference = {
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "name": "c",
            "uid": claim.metadata.uid, "controller": True,
        }  # fmt: skip
        await api.patch(SANDBOXES, "m0", merge_patch({"metadata": {"ownerReferences": [reference]}}), "default")
        async with a_life(api) as life:
            await life.settle(1)
            assert await life.sandbox("m0") is None
            assert await life.said() == EXPIRED


async def test_whoever_is_behind_deletes_nothing_that_came_later() -> None:
    """Another leader has seen that the claim was given more time, and gave it a sandbox; we see the sandbox first."""
    async with a_claim_cluster() as life:
        await life.furnish(1)
        claim = await life.claim(lifecycle=ends(5))
        await life.settle(10)
        assert await life.said() == EXPIRED
        life.api.flow.clear()
        await life.edit(lifecycle=ends(600))
        reference = {
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "name": "c",
            "uid": claim.metadata.uid, "controller": True,
        }  # fmt: skip
        await life.member("m9")
        owned = merge_patch({"metadata": {"ownerReferences": [reference]}})
        life.caches.sandboxes.upsert(await life.api.patch(SANDBOXES, "m9", owned, "default"))
        await life.settle(1)
        assert await life.sandbox("m9") is not None
        assert await life.has() == "m9"
        life.api.flow.set()


async def test_a_sandbox_that_is_held_stays_in_the_status_until_it_is_gone() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(lifecycle=ends(60))
        await life.settle(1)
        await life.api.patch(SANDBOXES, "m0", merge_patch({"metadata": {"finalizers": ["a/b"]}}), "default")
        await life.settle(61)
        assert await life.said() == EXPIRED
        assert await life.has() == "m0"
        assert life.counted.count("delete") == 1
        await life.api.patch(SANDBOXES, "m0", merge_patch({"metadata": {"finalizers": None}}), "default")
        await life.settle(1)
        assert await life.has() == ""


async def test_a_sandbox_that_expired_by_itself_is_forwarded() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim()
        await life.settle()
        await life.says("m0", READY | {"status": "False", "reason": "SandboxExpired"})
        await life.settle()
        assert await life.said() == ("False", "SandboxExpired")
        assert await life.has() == "m0"
