"""The pool controller beside others: who delete its members, or the pool itself while its watch is slow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integration.controllers.pool_cluster import Cluster, a_pool_cluster, controlled, uids
from sandpool.kube.api import Call
from sandpool.kube.errors import InternalError
from sandpool.model.kinds import POOLS, SANDBOXES
from sandpool.model.patches import merge_patch
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import a_cluster

pytestmark = pytest.mark.looptime


class SlowPools(FlakyApi):
    """`flow` holds back the watch of pools and no other."""

    def stream(self, call: Call) -> Any:
        return (super() if call.resource == POOLS else self.inner).stream(call)  # type: ignore[union-attr]


async def collect(cluster: Cluster) -> None:
    """What a collector does with the members of a pool that is gone."""
    for member in await cluster.members():
        if member.metadata.controller is not None:
            await cluster.api.delete(SANDBOXES, member.metadata.name, "default")


async def test_for_a_pool_that_is_gone_nothing_is_made_again() -> None:
    async with a_cluster() as api, controlled(slow := SlowPools(api)) as cluster:
        await cluster.filled(3)
        slow.flow.clear()
        await cluster.api.delete(POOLS, "p", "default")
        for _ in range(50):
            await collect(cluster)
            await cluster.settle(0.05)
        assert cluster.writes == []
        assert cluster.counted.count("get", "sandboxwarmpools", "NotFound") == 1
        assert cluster.controller.remembered == 0
        slow.flow.set()


@pytest.mark.parametrize("stale", [False, True])
async def test_what_was_orphaned_when_its_pool_was_deleted_is_left_alone(stale: bool) -> None:
    async with a_cluster() as api, controlled(slow := SlowPools(api)) as cluster:
        members = await cluster.filled(3)
        if stale:
            await cluster.edit_template()
            await cluster.settle(3)
            cluster.counted.clear()
        slow.flow.clear()
        await cluster.api.delete(POOLS, "p", "default")
        for member in members:
            orphaned = merge_patch({"metadata": {"ownerReferences": None}})
            await cluster.api.patch(SANDBOXES, member.metadata.name, orphaned, "default")
        await cluster.settle(5)
        assert cluster.writes == []
        assert uids(await cluster.members()) == uids(members)
        slow.flow.set()


async def test_members_that_vanish_as_soon_as_they_are_made_are_made_less_and_less_often() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template()
        await cluster.make(2)
        for _ in range(2000):  # 20 seconds
            await collect(cluster)
            await asyncio.sleep(0.01)
        assert 6 <= cluster.counted.count("create", "sandboxes", "ok") <= 14
        await cluster.settle(60)
        assert len(await cluster.members()) == 2


async def test_ready_members_that_somebody_deletes_are_replaced_at_once() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(3)
        for _ in range(5):
            await collect(cluster)
            await cluster.settle()
            assert len(await cluster.members()) == 3
            await cluster.all_ready()


async def test_what_a_doubt_could_not_settle_is_asked_again() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(3)
        fault = cluster.faulty.on("get", "sandboxwarmpools", times=2).refuse(InternalError("no"))
        await collect(cluster)
        await cluster.settle(1)
        assert fault.met == 2
        assert cluster.counted.count("get", "sandboxwarmpools", "ok") == 1
        assert len(await cluster.members()) == 3


async def test_members_that_are_taken_or_spared_raise_no_doubt() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(5)
        await cluster.take(members[0])
        await cluster.edit(replicas=2)
        await cluster.settle(2)
        await cluster.edit(replicas=4)
        await cluster.settle(2)
        assert len(await cluster.members()) == 4
        assert cluster.counted.count("get") == 0
