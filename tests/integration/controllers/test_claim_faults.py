"""The claim controller when calls fail, answers are lost, processes die and names come back: one claim, one sandbox, nothing leaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from integration.controllers.claim_cluster import SINCE, Life, World, a_claim_cluster, a_life
from sandpool.base.errors import SandpoolError
from sandpool.controllers.claim.options import Options
from sandpool.kube.errors import (
    Conflict,
    Forbidden,
    InternalError,
    Invalid,
    Refused,
    ServerTimeout,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from sandpool.model import labels
from sandpool.model.kinds import CLAIMS, NODES, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key
from sandpool.model.patches import merge_patch
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import a_cluster

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")
NAMED = {labels.SANDBOX_NAME, labels.CONTROLLER_FIRST_OBSERVED_AT}
ERRORS: tuple[SandpoolError, ...] = (
    Invalid("rejected"),
    Conflict("moved on"),
    ServerTimeout("late"),
    InternalError("broken"),
    Unavailable("down"),
    Unreachable("cut"),
    Refused("nobody there"),
    TooManyRequests("busy", retry_after=1),
)
WARM = (("patch", "sandboxes"), ("patch_status", "sandboxclaims"), ("patch", "sandboxclaims"))
COLD = (("create", "sandboxes"), ("patch_status", "sandboxclaims"))


async def has_exactly_one(life: World, name: str = "c") -> str:
    claim = await life.see(name)
    has = await life.has(name)
    assert await life.owned(claim) == [has]
    return has


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", WARM, ids=" ".join)
async def test_a_warm_claim_and_a_call_that_was_not_made(call: tuple[str, str], error: SandpoolError) -> None:
    async with a_claim_cluster() as life:
        await life.furnish(3)
        await life.settle()
        fault = life.faulty.on(*call).refuse(error)
        await life.claim()
        await life.settle(15)
        assert fault.met == 1
        assert await life.said() == IS_READY
        assert await has_exactly_one(life) == "m0", "no other member was touched"


@pytest.mark.parametrize("error", ERRORS[:6], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", WARM, ids=" ".join)
async def test_a_warm_claim_and_an_answer_that_was_lost(call: tuple[str, str], error: SandpoolError) -> None:
    async with a_claim_cluster() as life:
        await life.furnish(3)
        await life.settle()
        life.faulty.on(*call).lose(error)
        await life.claim()
        await life.settle(15)
        assert await life.said() == IS_READY
        assert await has_exactly_one(life) == "m0"
        followed = 1 if call == ("patch", "sandboxclaims") else 0  # when it was first ready
        assert life.counted.count(*call, "ok") == followed, "what had happened was found, not repeated"


@pytest.mark.parametrize("call", WARM[:2], ids=" ".join)
async def test_an_answer_lost_and_the_look_as_well(call: tuple[str, str]) -> None:
    """The reservation stays, and the next reconcile looks before it does anything else."""
    async with a_claim_cluster() as life:
        await life.furnish(3)
        await life.settle()
        life.api.flow.clear()  # nor do the watches help
        life.faulty.on(*call).lose()
        life.faulty.on("get", times=3).refuse(Unreachable("cut"))
        claim = await life.claim()
        life.api.flow.set()
        await life.settle(15)
        assert await life.said() == IS_READY
        assert await life.owned(claim) == ["m0"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", COLD, ids=" ".join)
@pytest.mark.parametrize("lost", [False, True], ids=["not made", "answer lost"])
async def test_a_cold_claim(call: tuple[str, str], error: SandpoolError, lost: bool) -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.settle()
        fault = life.faulty.on(*call)
        (fault.lose if lost else fault.refuse)(error)
        await life.claim()
        await life.settle(15)
        assert fault.met == 1
        assert await has_exactly_one(life) == "c"
        await life.ready("c")
        await life.settle(15)
        assert await life.said() == IS_READY


async def test_a_creation_left_open_keeps_the_claim_from_a_warm_one() -> None:
    """While nobody knows whether a cold sandbox was made, a warm one that turns up is not taken."""
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.settle()
        gate = asyncio.Event()
        life.faulty.on("create", "sandboxes").lose()
        life.faulty.on("get", "sandboxes").hold(gate).refuse(Unreachable("cut"))
        life.api.flow.clear()  # of the creation the watch will say nothing
        claim = await life.claim()
        life.caches.claims.upsert(claim)
        await asyncio.sleep(0.01)
        life.caches.sandboxes.upsert(await life.member("m0"))
        assert life.caches.sandboxes.get(Key("default", "c")) is None
        gate.set()
        await life.settle(1)
        assert await life.owned(claim) == ["c"]
        assert await life.has() == "c"
        life.api.flow.set()


async def test_a_transfer_left_open_keeps_the_claim_from_another_member() -> None:
    """The next reconcile looks at the first one before it does anything else, also where that is not offered any more."""
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.member("m1", node="n2")
        await life.settle()
        gate = asyncio.Event()
        life.faulty.on("patch", "sandboxes").hold_answer(gate).lose()
        life.faulty.on("get", "sandboxes").refuse(Unreachable("cut"))
        before = life.caches.sandboxes.get(Key("default", "m0"))
        life.api.flow.clear()
        claim = await life.claim()
        life.caches.claims.upsert(claim)
        await asyncio.sleep(0.01)
        assert life.caches.sandboxes.get(Key("default", "m0")) is before, "nobody told us"
        drained = await life.api.create(NODES, {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}})
        life.caches.nodes.upsert(drained)
        gate.set()
        await life.settle(1)
        assert await life.owned(claim) == ["m0"]
        assert await life.has() == "m0"
        life.api.flow.set()


async def test_when_it_was_first_ready_never_fails_the_claim() -> None:
    async with a_claim_cluster(Options(annotate_again=10.0)) as life:
        await life.furnish()
        await life.settle()
        gate = asyncio.Event()
        life.faulty.on("patch_status", "sandboxclaims").hold(gate)
        await life.claim()
        await life.settle(0.1)
        assert set((await life.see()).metadata.annotations) == NAMED
        life.faulty.on("patch", "sandboxclaims").refuse(Unreachable("cut"))
        gate.set()
        await life.settle(1)
        assert await life.said() == IS_READY
        assert life.reconciled("error") == 0
        assert set((await life.see()).metadata.annotations) == NAMED
        await life.settle(15)
        assert set((await life.see()).metadata.annotations) == NAMED | {labels.CLAIM_FIRST_READY_AT}


async def test_what_the_server_refuses_is_told_and_tried_again() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.settle()
        life.faulty.on("create", "sandboxes", times=3).refuse(Forbidden("exceeded quota"))
        await life.claim()
        await life.settle(0.001)
        assert await life.said() == ("False", "ReconcilerError")
        await life.settle(20)
        assert await life.has() == "c"
        assert (await life.events()).count(("Warning", "ReconcilerError")) == 1


@asynccontextmanager
async def transfer_under_way(life: Life) -> AsyncIterator[None]:
    """A claim's member is about to be handed over; of what happens meanwhile the watch says nothing."""
    gate = asyncio.Event()
    life.faulty.on("patch", "sandboxes").hold(gate)
    await life.claim()
    await asyncio.sleep(0.01)
    life.api.flow.clear()
    yield
    gate.set()
    await life.settle(0.1)


async def test_somebody_else_takes_the_member() -> None:
    """The next one is taken, in the same reconcile; the transfer that failed changed nothing."""
    async with a_claim_cluster() as life:
        await life.furnish(2)
        await life.settle()
        async with transfer_under_way(life):
            other = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "other", "controller": True}
            await life.api.patch(SANDBOXES, "m0", merge_patch({"metadata": {"ownerReferences": [other]}}), "default")
        assert await life.said() == IS_READY
        assert await has_exactly_one(life) == "m1"
        assert life.counted.count("patch", "sandboxes") == 2
        assert life.counted.count("patch_status", "sandboxclaims") == 1
        assert (await life.see()).metadata.annotations["agents.x-k8s.io/sandbox-name"] == "m1"
        life.api.flow.set()


async def test_the_member_is_deleted_under_the_transfer() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(2)
        await life.settle()
        async with transfer_under_way(life):
            await life.api.delete(SANDBOXES, "m0", "default")
        assert await has_exactly_one(life) == "m1"
        assert life.counted.count("patch", "sandboxes") == 2, "what is gone is not tried again"
        life.api.flow.set()


async def test_a_member_that_stopped_being_ready_is_published_as_it_is() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.settle()
        async with transfer_under_way(life):
            broken = {"type": "Ready", "status": "False", "reason": "DependenciesNotReady", "message": "m"}
            await life.says("m0", broken, podIPs=None)
        assert await life.said() == ("False", "DependenciesNotReady")
        assert "agents.x-k8s.io/claim-first-ready-at" not in (await life.see()).metadata.annotations
        life.api.flow.set()


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
@pytest.mark.parametrize("call", [*WARM, COLD[0]], ids=" ".join)
@pytest.mark.parametrize("after", [False, True], ids=["before the call", "before its answer"])
async def test_a_claim_is_deleted_in_the_middle(call: tuple[str, str], after: bool, again: bool) -> None:
    """Its successor of the same name is another claim: it gets a sandbox of its own."""
    async with a_claim_cluster() as life:
        await life.furnish(0 if call[0] == "create" else 4)
        await life.settle()
        gate = asyncio.Event()
        fault = life.faulty.on(*call)
        (fault.hold_answer if after else fault.hold)(gate)
        first = await life.claim()
        await asyncio.sleep(0.01)
        assert fault.met == 1
        await life.api.delete(CLAIMS, "c", "default")
        if again:
            await life.claim()
        await asyncio.sleep(0.01)
        gate.set()
        await life.settle(5)
        await collect(life, first.metadata.uid)
        await life.settle(5)
        assert await life.owned(first) == []
        if again:
            if call[0] == "create":
                await life.ready("c")
                await life.settle()
            assert await life.said() == IS_READY
            await has_exactly_one(life)
        assert list(life.assigner.reservations()) == []


async def collect(life: World, owner: str) -> None:
    """The collector's part: what a dead claim owned goes."""
    for one in (await life.api.list(SANDBOXES, "default")).items:
        if one.metadata.controller is not None and one.metadata.controller.uid == owner:
            await life.api.delete(SANDBOXES, one.metadata.name, "default")


class Fatal:
    """Counts the calls of a controller and stops its life in the middle of one of them."""

    def __init__(self, at: int, made: bool) -> None:
        self.left, self.made = at, made
        self.reached = asyncio.Event()

    async def before(self, verb: str, plural: str) -> None:
        if not self.made:
            await self._count()

    async def after(self, verb: str, plural: str) -> None:
        if self.made:
            await self._count()

    async def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(3, 7))
async def test_a_crash_at_every_call(at: int, made: bool, warm: bool) -> None:
    """The first two calls of a life are its lists. Whatever the dead one left, the next one finishes."""
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(3 if warm else 0)
        fatal = Fatal(at, made)
        below = FlakyApi(api, before=fatal.before, after=fatal.after)
        async with a_life(api, below=below) as life:
            claim = await life.claim()
            await asyncio.wait([asyncio.create_task(fatal.reached.wait())], timeout=5)
            await life.crash()
        async with a_life(api) as life:
            await life.settle(1)
            if not warm:
                await life.ready("c")
                await life.settle(1)
            assert await life.said() == IS_READY, life.told()
            assert await life.owned(claim) == [await life.has()]
            assert life.repairs == 0


async def test_two_controllers_at_once() -> None:
    """Both think that they lead: every claim has one sandbox in the end, and no sandbox two claims."""
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(20)
        async with a_life(api) as one, a_life(api) as two:
            for life in (one, two):
                life.faulty.on("patch", times=10_000).delay(0.01)
            claims = [await world.claim(f"c{number}") for number in range(20)]
            await one.settle(30)
            await two.settle(30)
            for claim in claims:
                name = claim.metadata.name
                if await world.said("Ready", name) != IS_READY:
                    await world.ready(await world.has(name))
            await one.settle(30)
            await two.settle(30)
            has = []
            for claim in claims:
                assert await world.said("Ready", claim.metadata.name) == IS_READY
                assert await world.owned(claim) == [await world.has(claim.metadata.name)]
                has.append(await world.has(claim.metadata.name))
            assert len(set(has)) == 20
            assert one.repairs == two.repairs == 0
            assert conflicts(one) + conflicts(two) > 0, "they did meet"


def conflicts(life: Life) -> int:
    return life.refused.count("Invalid")


async def test_a_transfer_that_never_lands() -> None:
    """Tried a few times on the same member, then again later; the reservation stays, and nobody reads the server's own words."""
    async with a_claim_cluster() as life:
        await life.furnish(2)
        await life.settle()
        fault = life.faulty.on("patch", "sandboxes", times=60).refuse(Conflict("the object has been modified"))
        await life.claim()
        await life.settle(0.02)
        assert fault.met >= 4
        assert {made.name for made in life.counted.calls if made.resource == "sandboxes"} == {"m0"}
        assert await life.said() is None
        await life.settle(60)
        assert await life.said() == IS_READY
        assert await has_exactly_one(life) == "m0"


async def test_nothing_is_made_again_and_again_for_a_claim_that_is_gone() -> None:
    """Its watch is late, the collector is quick: each sandbox that is made for it goes at once, and that wakes the claim."""
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.settle()
        gate = asyncio.Event()
        life.faulty.on("create", "sandboxes").hold(gate)
        first = await life.claim()
        await asyncio.sleep(0.01)
        life.api.flow.clear()
        await life.api.delete(CLAIMS, "c", "default")
        gate.set()
        await life.settle(0.1)
        made = life.caches.sandboxes.get(Key("default", "c"))
        assert made is not None
        await collect(life, first.metadata.uid)
        life.caches.sandboxes.mark_deleting(made.metadata.key, made.metadata.uid)
        life.caches.sandboxes.gone(made.metadata.key, made.metadata.uid)
        await life.settle(1)
        assert life.counted.count("create", "sandboxes") == 1
        second = await life.claim()
        life.api.flow.set()
        await life.settle(1)
        assert await life.owned(second) == ["c"], "its successor is served"


async def test_a_member_that_became_stale_under_the_transfer_is_not_tried_again() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1, updateStrategy={"type": "Recreate"})
        await life.settle()
        gate = asyncio.Event()
        life.faulty.on("patch", "sandboxes").hold(gate).refuse(Conflict("moved on"))
        await life.claim()
        await asyncio.sleep(0.01)
        pod = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
        await life.api.patch(TEMPLATES, "t", merge_patch({"spec": {"podTemplate": pod}}), "default")
        await asyncio.sleep(0.01)
        gate.set()
        await life.settle(1)
        assert life.counted.count("patch", "sandboxes") == 1
        assert await has_exactly_one(life) == "c"


async def test_whoever_is_behind_does_not_take_ready_away() -> None:
    """Another leader says Ready, and our view of the sandbox is older: the server is asked before anything is said."""
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.claim()
        await life.settle()
        life.api.flow.clear()
        await life.ready("c")
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "DependenciesReady",
            "message": "m",
            "lastTransitionTime": SINCE,
        }
        told = {"status": {"conditions": [ready]}}
        claim = await life.api.patch_status(CLAIMS, "c", merge_patch(told), "default")
        life.counted.clear()
        life.caches.claims.upsert(claim)
        await life.settle(5)
        assert life.counted.count("get", "sandboxes") == 1
        assert await life.said() == IS_READY
        life.api.flow.set()
        await life.settle(5)
        assert await life.said() == IS_READY


async def test_a_status_that_somebody_else_wrote_is_put_right() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim()
        await life.settle()
        wrong = {"type": "Ready", "status": "False", "reason": "Wrong", "message": "m", "lastTransitionTime": SINCE}
        await life.api.patch_status(CLAIMS, "c", merge_patch({"status": {"conditions": [wrong]}}), "default")
        await life.settle(2)
        assert await life.said() == IS_READY


async def test_whoever_is_behind_takes_nothing_for_surplus() -> None:
    """The claim lost its sandbox and another leader gave it the next one. We know of the new one, and not of the loss."""
    async with a_claim_cluster() as life:
        await life.furnish(2)
        claim = await life.claim()
        await life.settle()
        assert await life.has() == "m0"
        life.api.flow.clear()
        await life.api.delete(SANDBOXES, "m0", "default")
        owner = (await life.api.get(SANDBOXES, "m1", "default")).metadata.owner_references[0]
        ours = {
            "apiVersion": owner.api_version, "kind": "SandboxClaim", "name": "c", "uid": claim.metadata.uid,
            "controller": True,
        }  # fmt: skip
        taken = merge_patch({"metadata": {"ownerReferences": [ours]}})
        bound = merge_patch({"status": {"sandbox": {"name": "m1"}}})
        member = await life.api.patch(SANDBOXES, "m1", taken, "default")
        await life.api.patch_status(CLAIMS, "c", bound, "default")
        life.caches.sandboxes.upsert(member)
        await life.settle(1)
        deleted = [made.name for made in life.counted.calls if made.verb == "delete"]
        assert deleted in ([], ["m0"]), "the old one, if any"
        assert await has_exactly_one(life) == "m1"
        life.api.flow.set()


async def test_what_is_under_way_for_a_claim_is_not_given_to_another() -> None:
    """The claim is deleted during its transfer, which may still land."""
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.settle()
        gate = asyncio.Event()
        life.faulty.on("patch", "sandboxes").hold(gate)
        await life.claim("a")
        await asyncio.sleep(0.01)
        await life.api.delete(CLAIMS, "a", "default")
        await asyncio.sleep(0.01)
        ((claimant, member),) = life.assigner.reservations()
        assert (claimant.key.name, member.key.name) == ("a", "m0")
        gate.set()
        await life.settle(1)
        assert list(life.assigner.reservations()) == []


async def test_an_empty_status_is_no_obstacle() -> None:
    """From here it looks like none, and a server tells them apart."""
    async with a_cluster() as api:
        world = World(api)
        await world.claim()
        await api.patch_status(CLAIMS, "c", merge_patch({"status": {}}), "default")
        async with a_life(api) as life:
            await life.settle(1)
            assert await life.said() == ("False", "WarmPoolNotFound")
            assert life.reconciles == 1


async def test_a_new_leader_reads_claims_and_then_sandboxes_before_it_begins() -> None:
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(1)
        async with a_life(api) as life:
            life.api.flow.clear()  # its watches fall behind, as those of somebody who waits for the lease may
            await world.claim()
            await world.member("m1")
            life.counted.clear()
            await life.controller.prepare()
            assert [(made.verb, made.resource) for made in life.counted.calls][:2] == [
                ("list", "sandboxclaims"), ("list", "sandboxes"),
            ]  # fmt: skip
            assert life.caches.claims.get(Key("default", "c")) is not None
            assert life.caches.sandboxes.get(Key("default", "m1")) is not None
            life.api.flow.set()
