"""Claims on a server that shares its process with the controllers: Ready when their POST is answered; what it costs, counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sandpool.app.controllers import Observability
from sandpool.controlplane.store.log import Commit
from sandpool.controlplane.store.store import NullObserver
from sandpool.kube.api import WRITES
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.metadata import Key
from sandpool.model.patches import merge_patch
from sandpool.model.reasons import Type
from sandpool.node.runtimes.fake import FakeOptions
from support.api.heard_events import HeardEvents
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ControlPlane, a_control_plane

QUIET = 40.0  # virtual seconds after which nothing is left to be told
WRITES_PER_CLAIM = 9
"""Three to serve it, in one commit, of which one is the user's; when it was first ready; sandbox, pod and label of the refill, and what the
node and the sandbox say of it. Seven are the controllers'."""
NAMED = {labels.SANDBOX_NAME, labels.CONTROLLER_FIRST_OBSERVED_AT}
FIRST_READY = labels.CLAIM_FIRST_READY_AT
HEARTBEATS = 6  # of the node, meanwhile


class Written(NullObserver):
    """What reached the store, whoever wrote it."""

    def __init__(self) -> None:
        self.writes = 0

    def committed(self, commit: Commit) -> None:
        self.writes += commit.writes


Work = Callable[[ControlPlane, Written], Awaitable[None]]


def virtually(work: Work, replicas: int, hollow: FakeOptions = FakeOptions()) -> None:
    async def main() -> None:
        written = Written()
        observability = Observability(events=HeardEvents())
        async with a_control_plane(hollow, observability=observability, inline=True, observer=written) as plane:
            await plane.template(envVarsInjectionPolicy="Allowed")
            await plane.pool(replicas)
            await plane.filled(replicas)
            await asyncio.sleep(QUIET)
            plane.clear()
            written.writes = 0
            await work(plane, written)
            await asyncio.sleep(QUIET)
            healthy(plane)

    run_virtually(main())


def healthy(plane: ControlPlane) -> None:
    """Nothing is kept for anybody, and what is remembered is what is cached."""
    assert list(plane.controllers.assigner.reservations()) == []
    assert plane.controllers.urgent.idle
    plane.controllers.claim.audit()
    samples = (one for metric in plane.observability.metrics.registry.collect() for one in metric.samples)
    assert sum(one.value for one in samples if one.name == "sandpool_repairs_total") == 0


def served(claim: SandboxClaim) -> str:
    """The sandbox of a claim that is Ready."""
    assert is_true(claim.status.conditions, Type.READY)
    assert claim.status.sandbox is not None
    return claim.status.sandbox.name


async def taken(plane: ControlPlane, name: str, **spec: Any) -> str:
    """The sandbox that the claim has when its POST is answered."""
    await plane.claim(name, **spec)
    return served(await plane.get_claim(name))


def test_ready_when_the_post_is_answered() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        sent = await plane.claim("one")
        assert sent.status.sandbox is None, "as it was sent: who watches from there on sees how it is served"
        claim = await plane.get_claim("one")
        name = served(claim)
        assert claim.metadata.annotations[labels.SANDBOX_NAME] == name
        box = await plane.user.get(SANDBOXES, name, "default")
        assert box.metadata.controller is not None
        assert box.metadata.controller.uid == claim.metadata.uid
        assert (box.metadata.revision, claim.metadata.revision) == (
            sent.metadata.revision + 1,
            sent.metadata.revision + 2,
        ), "one commit"
        async with plane.user.watch(CLAIMS, "default", since=sent.metadata.revision) as events:
            async for event in events:
                assert event.object == claim
                break
        assert set(claim.metadata.annotations) == NAMED, "without which it is not Ready"
        await asyncio.sleep(QUIET)
        story = plane.observability.history.of(("claim", Key("default", "one")))
        assert [(entry.rid, entry.outcome) for entry in story] == [("claim-1", "done")]
        assert story[0].plan.endswith(f"; wrote sandbox {name} together with the claim")
        assert isinstance(plane.observability.events, HeardEvents)
        assert plane.observability.events.of("SandboxAdopted") == [f"Took sandbox {name} from pool python"]

    virtually(work, 5)


def test_a_second_event_shows_that_it_is_ready() -> None:
    """For a client that took up the first one before it knew the claim's name."""

    async def work(plane: ControlPlane, written: Written) -> None:
        sent = await plane.claim("one")
        async with plane.user.watch(CLAIMS, "default", since=sent.metadata.revision, timeout=QUIET) as events:
            seen = [event.object async for event in events if event.object is not None]
        first, second = seen
        assert served(first) == served(second)
        assert first.status == second.status
        assert second.metadata.annotations.keys() - first.metadata.annotations.keys() == {FIRST_READY}
        assert plane.reconciles("claim") == 0

    virtually(work, 5)


def test_a_claim_that_is_gone_by_then_is_not_told_of_again() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        await taken(plane, "one")
        await plane.user.delete(CLAIMS, "one", "default")
        await taken(plane, "one")  # another one of that name, which has its own
        await asyncio.sleep(QUIET)
        assert not [made for who, made in plane.distant.failures if who == "claim"]
        assert plane.distant.sums["claim", "patch", "sandboxclaims"] == 1
        assert FIRST_READY in (await plane.get_claim("one")).metadata.annotations

    virtually(work, 5)


def test_while_claims_come_without_a_pause_the_second_event_comes_all_the_same() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        plane.controllers.urgent.began()  # somebody waits all the time
        await taken(plane, "one")
        await asyncio.sleep(1)
        assert FIRST_READY not in (await plane.get_claim("one")).metadata.annotations, "it rests"
        await asyncio.sleep(2)
        assert FIRST_READY in (await plane.get_claim("one")).metadata.annotations
        plane.controllers.urgent.ended()

    virtually(work, 5)


def test_what_plain_claims_cost_one_after_another() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        names = [await taken(plane, f"c{number}") for number in range(20)]
        assert len(set(names)) == 20
        assert written.writes == 3 * 20, "the claim, its sandbox, and the claim that has it"
        await plane.filled(30)
        await asyncio.sleep(QUIET)
        sums = plane.distant.sums
        assert plane.distant.failures == []
        assert plane.reconciles("claim") == 0
        assert plane.reconciles("sandbox") <= 3 * 20
        assert {call: sums[call] for call in sums if call[0] == "claim"} == {("claim", "patch", "sandboxclaims"): 20}, (
            "when each was first ready, and nothing else"
        )
        assert not [call for call in sums if call[1] == "get"]
        assert sums["pool", "create", "sandboxes"] == sums["sandbox", "create", "pods"] == 20
        assert sum(count for (_, verb, _), count in sums.items() if verb in WRITES) == 5 * 20, sums
        assert written.writes <= WRITES_PER_CLAIM * 20 + HEARTBEATS, "of everybody, the user and the node included"

    virtually(work, 30)


def test_three_hundred_at_once() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        names = await asyncio.gather(*(taken(plane, f"c{number}") for number in range(300)))
        assert len(set(names)) == 300
        assert plane.reconciles("claim") == 0
        await plane.filled(600)
        await asyncio.sleep(QUIET)
        assert plane.distant.failures == []
        assert plane.reconciles("claim") == 0

    virtually(work, 600)


def test_claims_beyond_the_pool_go_the_usual_way() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        names = [f"c{number}" for number in range(12)]
        await asyncio.gather(*(plane.claim(name) for name in names))
        claims = [await plane.get_claim(name) for name in names]
        at_once = [claim for claim in claims if claim.status.sandbox is not None]
        assert len(at_once) == 5
        assert all(is_true(claim.status.conditions, Type.READY) for claim in at_once)
        await plane.served(names)
        found = [served(await plane.get_claim(name)) for name in names]
        assert len(set(found)) == 12
        assert plane.reconciles("claim") >= 7
        await plane.filled(5)

    virtually(work, 5, FakeOptions(start=(2.0, 3.0)))


def test_claims_that_want_more_than_a_warm_sandbox_go_the_usual_way() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        await plane.claim("one", env=[{"name": "A", "value": "b"}])
        assert (await plane.get_claim("one")).status.sandbox is None
        await plane.served(["one"])
        assert served(await plane.get_claim("one")) == "one", "made for it"

    virtually(work, 5)


def test_a_claim_that_was_bound_inline_ends_in_time() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        end = {"shutdownTime": "2026-01-01T01:00:00Z", "shutdownPolicy": "Delete"}
        name = await taken(plane, "one", lifecycle=end)
        await asyncio.sleep(3600)
        left = {claim.metadata.name for claim in (await plane.user.list(CLAIMS, "default")).items}
        assert left == set()
        await asyncio.sleep(QUIET)
        assert name not in {box.metadata.name for box in await plane.sandboxes()}

    virtually(work, 5)


def test_what_happens_to_its_sandbox_is_told_by_the_claim() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        name = await taken(plane, "one")
        await plane.user.delete(SANDBOXES, name, "default")
        await asyncio.sleep(QUIET)
        again = await plane.get_claim("one")
        assert served(again) != name, "it got another one"

    virtually(work, 5)


def test_claims_that_lose_their_sandboxes_wait_in_the_order_in_which_they_were_made() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        had = {}
        for name in ("old", "young"):
            had[name] = await taken(plane, name)
            await asyncio.sleep(1)
        for name in ("young", "old"):
            await plane.user.delete(SANDBOXES, had[name], "default")
            await asyncio.sleep(1)
        claims = [await plane.get_claim(name) for name in ("old", "young")]
        turns = [plane.controllers.assigner.turn(claim.metadata.uid) for claim in claims]
        assert [turn and turn[0] for turn in turns] == [0, 1]
        await plane.served(["old", "young"])

    virtually(work, 2, FakeOptions(start=(20.0, 30.0)))


def test_a_claim_that_is_edited_after_it_was_served_is_looked_at() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        await taken(plane, "one")
        past = {"spec": {"lifecycle": {"shutdownTime": "2026-01-01T00:00:01Z", "shutdownPolicy": "Delete"}}}
        await plane.user.patch(CLAIMS, "one", merge_patch(past), "default")
        await asyncio.sleep(QUIET)
        assert (await plane.user.list(CLAIMS, "default")).items == ()

    virtually(work, 5)


def test_released_as_any_other() -> None:
    async def work(plane: ControlPlane, written: Written) -> None:
        for number in range(10):
            await taken(plane, f"c{number}")
            await plane.user.delete(CLAIMS, f"c{number}", "default")
        await plane.filled(20)
        await asyncio.sleep(QUIET)
        assert len(await plane.sandboxes()) == 20
        assert len(plane.controllers.caches.claims) == 0
        assert list(plane.controllers.claim.memory) == []

    virtually(work, 20)


def test_after_the_controllers_have_stopped_claims_are_created_and_wait() -> None:
    async def main() -> None:
        async with a_control_plane(inline=True) as plane:
            await plane.template()
            await plane.pool(3)
            await plane.filled(3)
            plane.controllers.claim.loop.stop()
            await plane.claim("one")
            assert (await plane.get_claim("one")).status.sandbox is None

    run_virtually(main())
