"""Members that do not become ready, and refilling that is to be slow: all of it over time, on a real Api."""

from __future__ import annotations

import asyncio

import pytest

from integration.controllers.pool_cluster import RECREATE, a_pool_cluster, controlled, uids
from sandpool.controllers.pool.options import Options
from sandpool.model.kinds import SANDBOXES
from support.simulated.loop_cluster import a_cluster

pytestmark = pytest.mark.looptime


async def test_a_member_that_never_becomes_ready_is_replaced_ever_more_slowly() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template()
        await cluster.make(1)
        await cluster.settle()
        (first,) = await cluster.members()
        await cluster.report(first.metadata.name, ready=False, message="the image cannot be pulled")
        await cluster.settle(299)
        assert uids(await cluster.members()) == uids([first])
        await cluster.settle(3)
        (second,) = await cluster.members()
        assert second.metadata.uid != first.metadata.uid
        status, reason, message = await cluster.said("Progressing")
        assert (status, reason) == ("False", "NotProgressing")
        assert first.metadata.name in message
        assert "the image cannot be pulled" in message
        await cluster.settle(590)
        assert uids(await cluster.members()) == uids([second]), "the second has twice the time"
        await cluster.settle(20)
        (third,) = await cluster.members()
        assert third.metadata.uid != second.metadata.uid
        await cluster.report(third.metadata.name)
        await cluster.settle(3)
        assert (await cluster.said("Progressing"))[1] == "UpToDate"
        assert sorted(event.reason for event in await cluster.events()) == [
            "WarmPoolNotProgressing",
            "WarmPoolProgressing",
        ]


async def test_patience_that_ends_while_something_is_being_told_is_not_forgotten() -> None:
    async with a_pool_cluster() as cluster:
        (member,) = await cluster.filled(1)
        await cluster.report(member.metadata.name, ready=False)
        await cluster.settle(290)
        told = asyncio.Event()
        cluster.faulty.on("patch_status", "sandboxwarmpools").hold(told)
        await cluster.edit(updateStrategy=RECREATE)  # a new generation is told at once
        await asyncio.sleep(20)
        told.set()
        await cluster.settle(3)
        assert not uids(await cluster.members()) & uids([member])


async def test_a_day_of_a_broken_template_is_few_sandboxes() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template()
        await cluster.make(1)
        await cluster.settle(24 * 3600)
        assert 20 < cluster.counted.count("create", "sandboxes") < 30


async def test_a_corrected_template_is_tried_with_the_first_patience() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template()
        await cluster.make(1)
        await cluster.settle(2000)
        await cluster.edit_template()
        await cluster.settle()
        made = cluster.counted.count("create", "sandboxes")
        (member,) = await cluster.members()
        await cluster.api.delete(SANDBOXES, member.metadata.name, "default")
        await cluster.settle(310)
        assert cluster.counted.count("create", "sandboxes") == made + 2


async def test_a_member_that_was_ready_for_long_gets_its_whole_patience() -> None:
    async with a_pool_cluster() as cluster:
        (member,) = await cluster.filled(1)
        await cluster.settle(10_000)
        await cluster.report(member.metadata.name, ready=False)
        await cluster.settle(290)
        assert uids(await cluster.members()) == uids([member])
        await cluster.settle(20)
        assert uids(await cluster.members()) != uids([member])


async def test_a_member_without_a_node_is_kept_and_told_once() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template()
        await cluster.make(1)
        await cluster.settle()
        (member,) = await cluster.members()
        await cluster.unschedulable(member.metadata.name)
        await cluster.settle(310)
        status, reason, message = await cluster.said("Progressing")
        assert (status, reason) == ("False", "NotProgressing")
        assert f"Sandbox {member.metadata.name} finds no node: 0/3 nodes are available" in message
        await cluster.settle(5000)
        assert uids(await cluster.members()) == uids([member])
        assert (await cluster.pool()).status.replicas == 1
        assert [event.reason for event in await cluster.events()] == ["WarmPoolNotProgressing"]
        await cluster.unschedulable(member.metadata.name, scheduled=True)
        await cluster.settle(200)
        assert uids(await cluster.members()) == uids([member]), "its time counts from when it had a node"
        await cluster.report(member.metadata.name)
        await cluster.settle(3)
        assert sorted(event.reason for event in await cluster.events()) == [
            "WarmPoolNotProgressing",
            "WarmPoolProgressing",
        ]


async def test_a_restart_tells_nothing_twice() -> None:
    async with a_cluster() as api:
        async with controlled(api) as cluster:
            await cluster.template()
            await cluster.make(1)
            await cluster.settle()
            (member,) = await cluster.members()
            await cluster.unschedulable(member.metadata.name)
            await cluster.settle(310)
        async with controlled(api) as cluster:
            await cluster.settle(100)
            assert len(await cluster.events()) == 1


async def test_refilling_can_wait_for_the_end_of_a_burst_but_not_for_ever() -> None:
    async with a_pool_cluster(Options(replenish_delay=5.0, longest_hold=2.0)) as cluster:
        members = await cluster.filled(6)
        for number in range(4):
            await cluster.take(members[number], f"c{number}")
            await asyncio.sleep(2)
        assert cluster.counted.count("create", "sandboxes") == 0, "each loss begins the wait anew"
        assert (await cluster.pool()).status.replicas < 6, "the status is true meanwhile"
        await cluster.settle(2.5)
        assert cluster.counted.count("create", "sandboxes") == 4, "ten seconds after the first loss it is enough"
        assert len(await cluster.members()) == 6


async def test_the_first_fill_is_never_held() -> None:
    async with a_pool_cluster(Options(replenish_delay=60.0)) as cluster:
        await cluster.template()
        await cluster.make(4)
        await cluster.settle()
        assert len(await cluster.members()) == 4


async def test_refilling_can_be_slow() -> None:
    async with a_pool_cluster(Options(refill_rate=2.0)) as cluster:
        await cluster.template()
        await cluster.make(10)
        await cluster.settle()
        assert len(await cluster.members()) == 2
        await cluster.settle(1.0)
        assert len(await cluster.members()) == 4
        await cluster.settle(3.5)
        assert len(await cluster.members()) == 10


async def test_a_batch_is_no_end() -> None:
    async with a_pool_cluster(Options(batch=4)) as cluster:
        await cluster.template()
        await cluster.make(10)
        await cluster.settle()
        assert len(await cluster.members()) == 10
        await cluster.edit(replicas=1)
        await cluster.settle()
        assert len(await cluster.members()) == 1


async def test_what_the_pool_deletes_itself_is_no_loss() -> None:
    async with a_pool_cluster(Options(replenish_delay=60.0)) as cluster:
        members = await cluster.filled(3, updateStrategy=RECREATE)
        await cluster.edit_template()
        await cluster.settle()
        assert len(await cluster.members()) == 3
        assert not uids(await cluster.members()) & uids(members)
