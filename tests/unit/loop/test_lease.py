from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.errors import ConfigError, Refused
from sandpool.loop.errors import LeadershipLost, NoPlaceForLease
from sandpool.loop.lease import SHORTEST, Elector, Terms, why_lost
from sandpool.model.kinds import LEASES
from sandpool.model.patches import merge_patch
from sandpool.telemetry.metrics import Metrics
from support.api.flaky_api import FlakyApi, nothing
from support.simulated.loop_cluster import START, a_cluster, half

pytestmark = pytest.mark.looptime


def an_elector(api: FlakyApi, identity: str, metrics: Metrics | None = None) -> Elector:
    return Elector(
        api, LoopClock(START), metrics or Metrics(), half, name="sandpool", namespace="default", identity=identity
    )


def now() -> float:
    return asyncio.get_running_loop().time()


async def holder(api: FlakyApi) -> str | None:
    return (await api.get(LEASES, "sandpool", "default")).spec.holder_identity


async def test_the_first_one_leads_at_once_and_says_so() -> None:
    async with a_cluster() as api:
        metrics = Metrics()
        elector = an_elector(api, "one", metrics)
        assert metrics.registry.get_sample_value("sandpool_leader", {"lease": "sandpool"}) == 0
        await elector.acquire()
        assert now() == 0
        assert elector.leading
        assert metrics.registry.get_sample_value("sandpool_leader", {"lease": "sandpool"}) == 1
        lease = await api.get(LEASES, "sandpool", "default")
        assert lease.spec.holder_identity == "one"
        assert lease.spec.lease_duration_seconds == 8
        assert lease.spec.acquire_time == lease.spec.renew_time == START


async def test_holding_renews_and_others_wait() -> None:
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        await one.acquire()
        holding, waiting = asyncio.create_task(one.hold()), asyncio.create_task(two.acquire())
        await asyncio.sleep(600)
        assert one.leading
        assert not waiting.done()
        for task in (holding, waiting):
            task.cancel()
        await asyncio.wait([holding, waiting])


async def test_a_released_lease_is_taken_at_the_next_attempt() -> None:
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(1)
        await one.release()
        assert not one.leading
        await waiting
        assert now() < 3
        assert (await api.get(LEASES, "sandpool", "default")).spec.lease_transitions == 1


async def test_a_crashed_holder_is_replaced_after_the_lease_and_not_before() -> None:
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        await one.acquire()
        await asyncio.sleep(5)
        await two.acquire()
        assert now() == pytest.approx(13), "8 s from when it was first seen by the other, and not a look later"
        assert not one.leading


async def test_without_a_server_leadership_ends_at_the_deadline() -> None:
    async with a_cluster() as api:
        elector = an_elector(api, "one")
        await elector.acquire()

        async def down(verb: str, plural: str) -> None:
            raise Refused("connection refused")

        holding = asyncio.create_task(elector.hold())
        await asyncio.sleep(3.05)
        api.before = down
        await asyncio.sleep(6.4)
        assert elector.leading, "renewed at 3, so until 9.5"
        await asyncio.sleep(0.2)
        assert not elector.leading
        with pytest.raises(LeadershipLost, match="default/sandpool is no longer held by one"):
            await holding


async def test_a_server_that_hangs_does_not_stretch_leadership() -> None:
    async with a_cluster() as api:
        elector = an_elector(api, "one")
        await elector.acquire()

        async def hang(verb: str, plural: str) -> None:
            await asyncio.Event().wait()

        api.before = hang
        with pytest.raises(LeadershipLost):
            await elector.hold()
        assert now() == pytest.approx(Terms().renew)


async def test_a_late_answer_does_not_stretch_leadership() -> None:
    """The lease runs from when the server wrote it, which may be as early as we asked, not from when we heard of it."""
    async with a_cluster() as api:
        elector = an_elector(api, "one")

        async def slow(verb: str, plural: str) -> None:
            await asyncio.sleep(4)

        api.after = slow
        await elector.acquire()
        assert now() == 4
        await asyncio.sleep(2.4)
        assert elector.leading
        await asyncio.sleep(0.2)
        assert not elector.leading


async def test_nor_does_a_late_answer_to_a_renewal() -> None:
    async with a_cluster() as api:
        elector = an_elector(api, "one")
        await elector.acquire()

        async def slow_then_down(verb: str, plural: str) -> None:
            await asyncio.sleep(5)
            api.before = down

        async def down(verb: str, plural: str) -> None:
            raise Refused("down")

        api.after = slow_then_down
        with pytest.raises(LeadershipLost):
            await elector.hold()
        assert now() == pytest.approx(1 + Terms().renew), "renewed at 1, heard of it at 6"


async def test_a_machine_that_slept_does_not_lead() -> None:
    async with a_cluster() as api:
        clock = Sleeper(START)
        elector = Elector(api, clock, Metrics(), half, name="sandpool", namespace="default", identity="one")
        await elector.acquire()
        clock.slept = timedelta(hours=1)
        assert not elector.leading, "its monotonic clock stood still, the others' did not"


class Sleeper(LoopClock):
    slept = timedelta()

    def now(self) -> datetime:
        return super().now() + self.slept


async def test_of_several_that_see_the_lease_run_out_one_gets_it() -> None:
    async with a_cluster() as api:
        await an_elector(api, "crashed").acquire()
        together = asyncio.Barrier(3)

        async def at_once(verb: str, plural: str) -> None:
            if verb == "patch":
                await together.wait()

        api.before = at_once
        electors = [an_elector(api, f"e{n}") for n in range(3)]
        tasks = [asyncio.create_task(elector.acquire()) for elector in electors]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [elector.leading for elector in electors].count(True) == 1
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_somebody_elses_lease_is_noticed_at_the_next_renewal() -> None:
    async with a_cluster() as api:
        elector = an_elector(api, "one")
        await elector.acquire()
        await api.patch(LEASES, "sandpool", merge_patch({"spec": {"holderIdentity": "two"}}), "default")
        with pytest.raises(LeadershipLost):
            await elector.hold()
        assert now() <= 5
        assert await holder(api) == "two", "it is not taken back"


async def test_a_label_on_the_lease_disturbs_nobody() -> None:
    async with a_cluster() as api:
        elector = an_elector(api, "one")
        await elector.acquire()
        holding = asyncio.create_task(elector.hold())
        for n in range(20):
            await asyncio.sleep(1.5)
            await api.patch(LEASES, "sandpool", merge_patch({"metadata": {"labels": {"n": str(n)}}}), "default")
        assert elector.leading
        holding.cancel()
        await asyncio.wait([holding])


async def test_an_empty_lease_made_by_hand_is_taken() -> None:
    async with a_cluster() as api:
        await api.create(LEASES, {"metadata": {"name": "sandpool"}}, "default")
        elector = an_elector(api, "one")
        await elector.acquire()
        assert await holder(api) == "one"


async def test_a_deleted_lease_is_not_taken_while_its_holder_may_still_lead() -> None:
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(1)
        await api.delete(LEASES, "sandpool", "default")
        await waiting
        assert now() >= Terms().renew
        assert not one.leading


async def test_releasing_what_is_not_held_does_nothing() -> None:
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        await one.acquire()
        await two.release()
        assert await holder(api) == "one"
        await asyncio.sleep(11)
        await one.release()
        assert await holder(api) == "one", "too late: the lease may be somebody else's by now"


def test_terms_that_are_not_safe_are_refused() -> None:
    with pytest.raises(ValueError, match="retry < renew < duration"):
        Terms(duration=10, renew=10, retry=2)


@pytest.mark.parametrize("holding", [True, False])
async def test_a_lease_is_released_although_its_last_write_was_cut_off(holding: bool) -> None:
    """The server has made the write, but the stop came before its answer: the next leader must not wait for nothing."""
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        if holding:
            await one.acquire()

        async def hang(verb: str, plural: str) -> None:
            if verb in ("patch", "create"):
                api.after = nothing
                await asyncio.Event().wait()

        api.after = hang
        task = asyncio.create_task(one.hold() if holding else one.acquire())
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.wait([task])
        await one.release()
        assert not await holder(api)
        began = now()
        await two.acquire()
        assert now() == began


async def test_nothing_is_released_that_was_never_tried() -> None:
    async with a_cluster() as api:
        await an_elector(api, "one").release()
        assert api.calls == []


async def test_credentials_that_cannot_be_renewed_now_do_not_end_the_election() -> None:
    async with a_cluster() as api:
        failures = [ConfigError("exec plugin login: failed with exit code 1; run it by hand")] * 2

        async def fail(verb: str, plural: str) -> None:
            if failures:
                raise failures.pop()

        api.before = fail
        elector = an_elector(api, "one")
        await elector.acquire()
        assert elector.leading


async def test_a_namespace_that_is_not_there_ends_the_election() -> None:
    """Nobody could ever lead: to try again without a word would be a silent loop."""
    async with a_cluster() as api:
        elector = Elector(api, LoopClock(START), Metrics(), half, name="sandpool", namespace="nowhere", identity="one")
        with pytest.raises(NoPlaceForLease, match="namespace nowhere does not exist"):
            await elector.acquire()


async def test_it_is_known_when_the_server_last_said_who_leads_and_why_it_was_lost() -> None:
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        assert one.known == float("-inf")
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(5)
        assert now() - two.known < 2  # also who waits for it knows
        waiting.cancel()

        async def down(verb: str, plural: str) -> None:
            raise Refused("gone")

        api.before = down
        with pytest.raises(LeadershipLost, match=r"could not be renewed for \S+ s: Refused: gone"):
            await one.hold()
        assert isinstance(one.trouble, Refused)


@pytest.mark.parametrize("killed", [0.0, 0.4, 0.99])
@pytest.mark.parametrize("looks", [0.0, 0.3, 0.7, 1.1])
async def test_after_a_killed_leader_somebody_leads_within_ten_seconds(killed: float, looks: float) -> None:
    """Whenever between two renewals it is killed, and whenever between two looks of the other."""
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        await one.acquire()
        holding = asyncio.create_task(one.hold())
        await asyncio.sleep(looks)
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(20 + killed)
        holding.cancel()
        began = now()
        await waiting
        assert Terms().renew - 1 < now() - began < 9.5, "the rest is for listing what there is"
        assert not one.leading


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_server_that_takes_three_seconds_to_answer_changes_no_leader(side: str) -> None:
    """Whether it decides at the beginning of those three seconds or at their end."""
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        await one.acquire()

        async def slow(verb: str, plural: str) -> None:
            await asyncio.sleep(3)

        setattr(api, side, slow)
        holding, waiting = asyncio.create_task(one.hold()), asyncio.create_task(two.acquire())
        for _ in range(600):
            await asyncio.sleep(0.5)
            assert one.leading
        assert not waiting.done()
        for task in (holding, waiting):
            task.cancel()
        await asyncio.wait([holding, waiting])


async def test_a_released_lease_is_taken_within_two_seconds() -> None:
    async with a_cluster() as api:
        one, two = an_elector(api, "one"), an_elector(api, "two")
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(7.9)
        await one.release()
        began = now()
        await waiting
        assert now() - began < 2


async def test_a_server_that_does_not_answer_is_named_when_the_lease_is_lost() -> None:
    async with a_cluster() as api:
        elector = an_elector(api, "one")
        await elector.acquire()

        async def hang(verb: str, plural: str) -> None:
            await asyncio.Event().wait()

        api.before = hang
        with pytest.raises(
            LeadershipLost, match=r"renewed for 6\.5 s: TimeoutError: the API server did not answer within"
        ):
            await elector.hold()


def test_why_a_lease_was_lost() -> None:
    assert why_lost("two", None, 1.0) == "two holds it now"
    assert why_lost("", None, 1.0) == "nobody holds it now"
    assert why_lost(None, None, 31.0).startswith("this process did not run for 31.0 s: it has too little CPU")
    assert why_lost(None, Refused("gone"), 7.0) == "it could not be renewed for 7.0 s: Refused: gone"


def test_when_to_look_and_when_to_renew() -> None:
    terms = Terms(duration=8, renew=6.5, retry=1)
    assert terms == Terms() == Terms.lasting(8)
    assert terms.next_look(10.0, float("-inf"), 0.0) == 1.0
    assert terms.next_look(10.0, 17.0, 1.0) == 1.2
    assert terms.next_look(10.0, 10.5, 1.0) == 0.5, "in the moment in which it is free"
    assert terms.next_look(10.0, 10.0 + 1e-9, 1.0) == SHORTEST
    assert terms.next_renewal(10.25, sent=10.0) == 0.75
    assert terms.next_renewal(13.0, sent=10.0) == 0.0, "late already"
