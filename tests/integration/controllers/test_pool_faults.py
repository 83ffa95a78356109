"""The pool controller when calls fail: nothing is made twice, nothing that is claimed is deleted, and it goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

from integration.controllers.pool_cluster import Cluster, a_pool_cluster, controlled, uids
from sandpool.base.errors import SandpoolError
from sandpool.controllers.pool.options import Options
from sandpool.kube.errors import (
    AlreadyExists,
    Cause,
    Conflict,
    Forbidden,
    InternalError,
    Invalid,
    TooManyRequests,
    Unreachable,
)
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import LAUNCH_TYPE, TEMPLATE_HASH
from sandpool.model.metadata import Key
from sandpool.model.patches import merge_patch
from support.simulated.loop_cluster import a_cluster

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("error", [Unreachable("lost"), InternalError("lost")])
async def test_creates_whose_answers_are_lost_count(error: SandpoolError) -> None:
    async with a_pool_cluster() as cluster:
        fault = cluster.faulty.on("create", "sandboxes", times=3).lose(error)
        cluster.before("create", partial(_silence, cluster))  # nor does a watch tell of them
        await cluster.template()
        await cluster.make(3)
        await cluster.settle(5)
        assert fault.met == 3
        assert len(await cluster.members()) == 3, cluster.told()
        assert cluster.counted.count("create", "sandboxes") == 3
        assert cluster.counted.count("get", "sandboxes") == 3
        cluster.api.flow.set()
        await cluster.settle(5)
        assert (await cluster.pool()).status.replicas == 3


@pytest.mark.parametrize("error", [Unreachable("lost"), InternalError("lost")])
async def test_an_adoption_whose_answer_is_lost_counts(error: SandpoolError) -> None:
    """Also when no watch tells of it: it is looked at before members are counted again."""
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(2)
        cluster.faulty.on("patch", "sandboxes").lose(error)
        cluster.before("patch", partial(_silence, cluster))
        freed = merge_patch({"metadata": {"ownerReferences": None}})
        await cluster.api.patch(SANDBOXES, members[0].metadata.name, freed, "default")
        await cluster.settle(5)
        assert uids(await cluster.members()) == uids(members)
        assert cluster.counted.count("create", "sandboxes") == 0, "none was made for one that is there"
        assert cluster.counted.count("patch", "sandboxes") == 1, "what is a member is not adopted again"


async def test_a_create_that_never_arrived_is_made_under_the_same_name() -> None:
    async with a_pool_cluster() as cluster:
        cluster.faulty.on("create", "sandboxes").refuse(Unreachable("lost on the way"))
        await cluster.template()
        await cluster.make(1)
        await cluster.settle()
        names = [made.name for made in cluster.counted.calls if made.verb == "create"]
        assert len(names) == 2
        assert len(set(names)) == 1
        assert len(await cluster.members()) == 1


async def test_an_unknown_create_counts_as_long_as_nobody_knows() -> None:
    async with a_pool_cluster() as cluster:
        cluster.faulty.on("create", "sandboxes").lose()
        blind = cluster.faulty.on("get", "sandboxes", times=1000).refuse(Unreachable("no answer"))
        cluster.before("create", partial(_silence, cluster))
        await cluster.template()
        await cluster.make(1)
        await cluster.settle(5)
        assert cluster.counted.count("create", "sandboxes") == 1
        assert cluster.counted.count("get", "sandboxes") > 1
        blind.times = 0
        await cluster.settle(60)
        assert len(await cluster.members()) == 1
        assert cluster.counted.count("create", "sandboxes") == 1


async def _silence(cluster: Cluster) -> None:
    cluster.api.flow.clear()


@pytest.mark.parametrize("lose", [False, True])
async def test_a_name_that_somebody_else_has_is_not_used(lose: bool) -> None:
    async with a_pool_cluster() as first:
        await first.template()
        await first.make(1)
        await first.settle()
        (member,) = await first.members()
    async with a_cluster() as api, controlled(api) as cluster:  # the same seed draws the same name
        foreign = {"metadata": {"name": member.metadata.name}, "spec": {"podTemplate": {"spec": _pod()}}}
        await cluster.template()
        await api.create(SANDBOXES, foreign, "default")
        if lose:
            cluster.faulty.on("create", "sandboxes").refuse(Unreachable("no answer"))
        await cluster.make(1)
        await cluster.settle(5)
        (ours,) = await cluster.members()
        assert ours.metadata.name != member.metadata.name


async def test_already_exists_of_our_own_is_a_member() -> None:
    async with a_pool_cluster() as cluster:
        cluster.faulty.on("create", "sandboxes").lose(AlreadyExists("the first attempt got through"))
        await cluster.template()
        await cluster.make(2)
        await cluster.settle(5)
        assert len(await cluster.members()) == 2
        assert cluster.counted.count("create", "sandboxes") == 2


async def test_after_a_failure_creates_start_with_one() -> None:
    async with a_pool_cluster(Options(concurrency=4)) as cluster:
        cluster.faulty.on("create", "sandboxes", times=5).refuse(Forbidden("exceeded quota"))
        await cluster.template()
        await cluster.make(20)
        await cluster.settle(0.004)
        assert cluster.counted.count("create", "sandboxes") == 4, "the batch that failed is the last"
        assert (await cluster.said("Progressing"))[1] == "CreationFailed"
        assert "exceeded quota" in (await cluster.said("Progressing"))[2]
        await cluster.settle(0.004)
        assert cluster.counted.count("create", "sandboxes") == 5, "then one alone is tried"
        await cluster.settle(5)
        assert len(await cluster.members()) == 20
        assert cluster.counted.count("create", "sandboxes") == 25
        assert (await cluster.said("Progressing"))[1] == "Replenishing"
        assert sorted(event.reason for event in await cluster.events()) == [
            "WarmPoolNotProgressing",
            "WarmPoolProgressing",
        ]


async def test_what_the_server_refuses_is_asked_again_at_once_when_the_template_changes() -> None:
    async with a_pool_cluster() as cluster:
        refusal = Invalid("spec is bad", causes=(Cause("FieldValueInvalid", "bad", "spec"),))
        fault = cluster.faulty.on("create", "sandboxes", times=1).refuse(refusal)
        await cluster.template()
        await cluster.make(1)
        await cluster.settle(200)
        assert fault.met == 1
        assert cluster.counted.count("create", "sandboxes") == 1
        status, reason, message = await cluster.said("Progressing")
        assert (status, reason) == ("False", "CreationFailed")
        assert "SandboxTemplate t" in message
        await cluster.edit_template()
        await cluster.settle()
        assert len(await cluster.members()) == 1


async def test_a_busy_server_is_given_time() -> None:
    async with a_pool_cluster() as cluster:
        cluster.faulty.on("create", "sandboxes").refuse(TooManyRequests("busy", retry_after=7))
        await cluster.template()
        await cluster.make(1)
        await cluster.settle(5)
        assert await cluster.members() == []
        await cluster.settle(3)
        assert len(await cluster.members()) == 1


async def test_a_refused_delete_gives_the_member_back() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(1)
        cluster.faulty.on("delete", "sandboxes", times=1).refuse(Forbidden("not now"))
        await cluster.edit(replicas=0)
        await cluster.settle(0.004)
        pool = await cluster.pool()
        assert cluster.assigner.counts(pool.metadata.uid).ready == 1, "a claim can still have it"
        await cluster.settle(2)
        assert await cluster.members() == []


async def test_a_conflict_is_looked_at_and_decided_again() -> None:
    async with a_pool_cluster() as cluster:
        (member,) = await cluster.filled(1)

        async def touch() -> None:
            await cluster.report(member.metadata.name, message="changed")

        cluster.before("delete", touch)
        await cluster.edit(replicas=0)
        await cluster.settle()
        assert await cluster.members() == []
        assert cluster.refused == ["Conflict"]
        assert cluster.counted.count("get", "sandboxes") == 1


async def test_a_member_that_became_ready_since_it_was_given_up_stays() -> None:
    async with a_pool_cluster(Options(concurrency=1)) as cluster:
        await cluster.template()
        await cluster.make(2)
        await cluster.settle()
        saved: list[str] = []

        async def recover() -> None:
            (other,) = await cluster.members()
            saved.append(other.metadata.uid)
            await cluster.report(other.metadata.name)
            await asyncio.sleep(0.01)

        cluster.after("delete", recover)
        await cluster.settle(310)
        assert len(saved) == 1
        assert set(saved) < uids(await cluster.members())
        assert cluster.refused == []


async def test_a_member_that_is_gone_already_is_no_error() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(2)

        async def vanish() -> None:
            cluster.api.flow.clear()
            for member in await cluster.members():
                await cluster.api.delete(SANDBOXES, member.metadata.name, "default")

        cluster.before("delete", vanish)
        await cluster.edit(replicas=1)
        await cluster.settle(2)
        assert cluster.refused == ["NotFound"]
        cluster.api.flow.set()
        await cluster.settle(2)
        assert len(await cluster.members()) == 1, "what somebody else deleted is made again"
        await cluster.edit(replicas=3)
        await cluster.settle()
        assert len(await cluster.members()) == 3


async def test_conflicts_without_end_do_not_spin() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(1)
        fault = cluster.faulty.on("delete", "sandboxes", times=10_000).refuse(Conflict("always"))
        await cluster.edit(replicas=0)
        await cluster.settle(10)
        assert 1 < fault.met < 30


@pytest.mark.parametrize("lost", [True, False])
async def test_a_delete_without_an_answer_is_settled(lost: bool) -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(2)
        fault = cluster.faulty.on("delete", "sandboxes", times=1)
        if lost:
            fault.lose(Unreachable("lost"))
        else:
            fault.refuse(Unreachable("lost"))
        await cluster.edit(replicas=1)
        await cluster.settle(2)
        assert len(await cluster.members()) == 1
        assert cluster.counted.count("get", "sandboxes") == 1
        assert uids(await cluster.members()) < uids(members)


async def test_what_was_decided_on_an_older_template_is_not_carried_on() -> None:
    async with a_pool_cluster(Options(concurrency=1)) as cluster:

        async def change() -> None:
            await cluster.edit_template()
            await asyncio.sleep(0.01)

        cluster.after("create", change)
        await cluster.template()
        await cluster.make(3)
        await cluster.settle(3)
        made = [member.metadata.labels[TEMPLATE_HASH] for member in await cluster.members()]
        assert sorted(Counter(made).values()) == [1, 2]


async def test_a_claimed_sandbox_never_gets_the_labels_of_a_member_back() -> None:
    async with a_pool_cluster() as cluster:
        (member,) = await cluster.filled(1)
        cluster.before("patch", partial(cluster.take, member))
        gone = merge_patch({"metadata": {"labels": {LAUNCH_TYPE: None}}})
        await cluster.api.patch(SANDBOXES, member.metadata.name, gone, "default")
        await cluster.settle(2)
        assert cluster.refused == ["Conflict"]
        taken = await cluster.api.get(SANDBOXES, member.metadata.name, "default")
        assert LAUNCH_TYPE not in taken.metadata.labels


async def test_a_new_life_goes_on_where_the_last_one_ended() -> None:
    async with a_cluster() as api:
        async with controlled(api) as cluster:
            cluster.faulty.on("create", "sandboxes", skip=1, times=1).lose()
            await cluster.template()
            await cluster.make(5)
            await cluster.settle(0.0001)
        async with controlled(api, seed=2) as cluster:
            await cluster.settle(5)
            assert len(await cluster.members()) == 5


async def test_the_watch_may_lag_as_it_likes() -> None:
    async with a_pool_cluster() as cluster:
        met = cluster.before("create", partial(_silence, cluster))
        await cluster.template()
        await cluster.make(3)
        for _ in range(5):
            await cluster.settle(2)
            cluster.controller.loop.wake(Key("default", "p"), "test")
        await cluster.settle()
        assert met
        assert cluster.counted.count("create", "sandboxes") == 3
        assert (await cluster.pool()).status.replicas == 3


def _pod() -> dict[str, object]:
    return {"containers": [{"name": "main", "image": "python"}]}
