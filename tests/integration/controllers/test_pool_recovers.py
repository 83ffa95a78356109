"""Pools whose way is blocked for a while, or whose server has its own ideas: they come back, and they do not spin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from integration.controllers.pool_cluster import Cluster, a_pool_cluster
from sandpool.controllers.pool.options import Options
from sandpool.kube.errors import Cause, Invalid
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import LAUNCH_TYPE
from sandpool.model.patches import merge_patch

pytestmark = pytest.mark.looptime


async def test_what_a_policy_refused_is_tried_again_when_nobody_can_tell_that_it_is_gone() -> None:
    async with a_pool_cluster() as cluster:
        no = Invalid("denied by a policy", causes=(Cause("", "no sandboxes today"),))
        cluster.faulty.on("create", "sandboxes", times=4).refuse(no)
        await cluster.template()
        await cluster.make(3)
        await cluster.settle(60)
        assert await cluster.members() == []
        assert (await cluster.said("Progressing"))[1] == "CreationFailed"
        tried = cluster.counted.count("create", "sandboxes")
        assert tried == 3
        await cluster.settle(300)
        assert cluster.counted.count("create", "sandboxes") == tried + 1, "seldom, and with one first"
        await cluster.settle(300)
        assert len(await cluster.members()) == 3
        await cluster.all_ready()
        await cluster.settle(3)
        assert (await cluster.said("Ready"))[0] == "True"


async def test_a_server_that_strips_labels_is_not_argued_with() -> None:
    async with a_pool_cluster() as cluster:
        member = (await cluster.filled(1))[0].metadata.name

        async def strip(verb: str, plural: str) -> None:
            if (verb, plural) == ("patch", "sandboxes"):
                await without_mark(cluster, member)

        cluster.flaky.after = strip
        await without_mark(cluster, member)
        await cluster.settle(60)
        assert cluster.reconciles < 70
        assert cluster.counted.count("patch", "sandboxes") < 20


async def without_mark(cluster: Cluster, name: str) -> None:
    body: dict[str, Any] = {"metadata": {"labels": {LAUNCH_TYPE: None}}}
    await cluster.api.patch(SANDBOXES, name, merge_patch(body), "default")


async def test_a_hold_does_not_grow_when_the_clock_is_set_back() -> None:
    async with a_pool_cluster(Options(replenish_delay=5.0)) as cluster:
        members = await cluster.filled(2)
        await cluster.take(members[0])
        await cluster.settle(1)
        cluster.clock.jump(timedelta(hours=-1))
        await cluster.settle(30)
        assert len(await cluster.members()) == 2


async def test_an_owner_that_somebody_takes_away_again_and_again_is_not_given_back_each_time_at_once() -> None:
    async with a_pool_cluster() as cluster:
        member = (await cluster.filled(1))[0].metadata.name

        async def strip(verb: str, plural: str) -> None:
            if (verb, plural) == ("patch", "sandboxes"):
                await without_owner(cluster, member)

        cluster.flaky.after = strip
        await without_owner(cluster, member)
        await cluster.settle(100)
        assert cluster.counted.count("patch", "sandboxes") < 10
        assert len(await cluster.members()) == 1, "it counts all the time"


async def without_owner(cluster: Cluster, name: str) -> None:
    body: dict[str, Any] = {"metadata": {"ownerReferences": None}}
    await cluster.api.patch(SANDBOXES, name, merge_patch(body), "default")
