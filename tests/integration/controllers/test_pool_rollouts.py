"""Rollouts on a real Api: what each strategy does to members that were made before the template changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integration.controllers.pool_cluster import RECREATE, ROLLING, Cluster, a_pool_cluster, hashes, uids
from sandpool.model.kinds import NETWORK_POLICIES, SANDBOXES, TEMPLATES
from sandpool.model.labels import TEMPLATE_REF, TEMPLATE_REF_HASH
from sandpool.model.metadata import Uid
from sandpool.model.names import name_hash
from sandpool.model.patches import merge_patch

pytestmark = pytest.mark.looptime


async def test_on_replenish_leaves_members_and_replaces_with_new_ones() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(3)
        await cluster.edit_template()
        await cluster.settle(3)
        assert uids(await cluster.members()) == uids(members)
        pool = await cluster.pool()
        assert (pool.status.ready_replicas, pool.status.updated_replicas) == (3, 0)
        assert (await cluster.said("Progressing"))[1] == "UpToDate"
        await cluster.take(members[0])
        await cluster.settle()
        after = await cluster.members()
        assert len(after) == 3
        assert len(hashes(after)) == 2
        await cluster.all_ready()
        await cluster.settle(3)
        assert (await cluster.pool()).status.updated_ready_replicas == 1


async def test_recreate_replaces_all() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(3, updateStrategy=RECREATE)
        await cluster.edit_template()
        await cluster.settle()
        after = await cluster.members()
        assert len(after) == 3
        assert not uids(after) & uids(members)
        assert len(hashes(after)) == 1
        assert cluster.counted.count("delete", outcome="ok") == 3
        assert cluster.refused == []


async def test_recreate_waits_for_a_member_that_goes_slowly() -> None:
    async with a_pool_cluster() as cluster:
        (member,) = await cluster.filled(1, updateStrategy=RECREATE)
        name = member.metadata.name
        await cluster.api.patch(SANDBOXES, name, merge_patch({"metadata": {"finalizers": ["a.b/c"]}}), "default")
        await cluster.edit_template()
        await cluster.settle(3)
        assert [one.metadata.name for one in await cluster.members()] == [name]
        assert (await cluster.pool()).status.replicas == 0
        await cluster.api.patch(SANDBOXES, name, merge_patch({"metadata": {"finalizers": None}}), "default")
        await cluster.settle()
        (after,) = await cluster.members()
        assert after.metadata.name != name


@pytest.mark.parametrize("strategy", [RECREATE, ROLLING])
async def test_an_edit_that_changes_no_sandbox_rolls_nothing(strategy: dict[str, str]) -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(3, updateStrategy=strategy)
        await cluster.edit_template(image="python", envVarsInjectionPolicy="Allowed")
        labelled = {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}
        await cluster.api.patch(TEMPLATES, "t", merge_patch({"spec": labelled}), "default")
        await cluster.settle(3)
        assert uids(await cluster.members()) == uids(members)
        assert cluster.writes == []


async def test_another_template_rolls_even_if_it_says_the_same() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(2, updateStrategy=RECREATE)
        await cluster.template("u")
        await cluster.edit(sandboxTemplateRef={"name": "u"})
        await cluster.settle()
        assert len(await cluster.members()) == 2
        assert not uids(await cluster.members()) & uids(members)


async def test_a_reserved_member_is_not_deleted_until_it_is_free() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(2, updateStrategy=RECREATE)
        held = cluster.reserve(await cluster.pool())
        await cluster.edit_template()
        await cluster.settle()
        assert held in [one.metadata.name for one in await cluster.members()]
        cluster.assigner.forget(Uid("c1"))
        await cluster.settle(2)
        after = await cluster.members()
        assert held not in [one.metadata.name for one in after]
        assert len(after) == 2


async def test_a_member_taken_while_the_rollout_deletes_survives() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(1, updateStrategy=RECREATE)

        async def take_first() -> None:
            await cluster.take(members[0])

        met = cluster.before("delete", take_first)
        await cluster.edit_template()
        await cluster.settle(3)
        assert met
        assert cluster.refused == ["Conflict"]
        taken = await cluster.api.get(SANDBOXES, members[0].metadata.name, "default")
        assert not taken.metadata.leaving
        assert len(await cluster.members()) == 1


async def test_a_rolling_update_keeps_enough_available_at_every_moment() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(10, updateStrategy=ROLLING)
        await cluster.edit_template()
        steps = 0
        while uids(await cluster.members()) & uids(members):
            await cluster.settle()
            now = await cluster.members()
            ready = sum(any(condition.true for condition in one.status.conditions) for one in now)
            assert ready >= 8, cluster.told()
            assert len(now) <= 13, cluster.told()
            assert (await cluster.said("Progressing"))[1] in ("RollingOut", "Replenishing", "UpToDate")
            await _one_ready(cluster)
            steps += 1
            assert steps < 40, "it does not come to an end"
        await cluster.all_ready()
        await cluster.settle(3)
        after = await cluster.members()
        assert len(after) == 10
        assert len(hashes(after)) == 1
        assert (await cluster.said("Progressing"))[1] == "UpToDate"
        assert (await cluster.pool()).status.updated_ready_replicas == 10


async def test_a_rolling_update_to_something_broken_stands_still() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(4, updateStrategy=ROLLING)
        await cluster.edit_template()
        await cluster.settle(200)
        now = await cluster.members()
        ready = [one for one in now if any(condition.true for condition in one.status.conditions)]
        assert len(ready) == 3
        assert len(now) == 5
        await cluster.settle(2000)
        assert sum(any(c.true for c in one.status.conditions) for one in await cluster.members()) == 3
        status, reason, message = await cluster.said("Progressing")
        assert (status, reason) == ("False", "NotProgressing")
        assert "Sandbox p-" in message


async def test_surge_alone_never_has_less() -> None:
    async with a_pool_cluster() as cluster:
        strategy = {**ROLLING, "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
        members = await cluster.filled(2, updateStrategy=strategy)
        await cluster.edit_template()
        for _ in range(4):
            await cluster.settle()
            now = await cluster.members()
            assert sum(any(c.true for c in one.status.conditions) for one in now) >= 2
            assert len(now) <= 3
            await _one_ready(cluster)
        await cluster.settle()
        assert not uids(await cluster.members()) & uids(members)


async def _one_ready(cluster: Cluster) -> None:
    for member in await cluster.members():
        if not any(condition.true for condition in member.status.conditions):
            await cluster.report(member.metadata.name)
            return


async def test_members_that_were_made_behind_other_walls_are_replaced() -> None:
    """The built-in NetworkPolicy lets no pod reach the cluster's own resolvers: what was made without it has no others."""
    async with a_pool_cluster() as cluster:
        before = await cluster.filled(2, updateStrategy=RECREATE)
        policy = {
            "name": "t-network-policy", "annotations": {TEMPLATE_REF: "t"}, "labels": {TEMPLATE_REF_HASH: name_hash("t")},
        }  # fmt: skip
        await cluster.api.create(NETWORK_POLICIES, {"metadata": policy, "spec": {"podSelector": {}}}, "default")
        rules: dict[str, Any] = {"networkPolicyManagement": "Managed", "networkPolicy": {"egress": [{}]}}
        await cluster.api.patch(TEMPLATES, "t", merge_patch({"spec": rules}), "default")
        await cluster.settle(3)
        assert uids(await cluster.members()) == uids(before), "rules of its own change no sandbox"
        await cluster.api.patch(TEMPLATES, "t", merge_patch({"spec": {"networkPolicy": None}}), "default")
        await cluster.settle(3)
        await cluster.all_ready()
        after = await cluster.members()
        assert len(after) == 2
        assert not uids(after) & uids(before)


async def test_a_template_that_is_changed_back_in_the_middle_of_it_spares_the_members_that_were_to_go() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(4, updateStrategy=ROLLING)

        async def change_back() -> None:
            await cluster.edit_template(image="python")
            await asyncio.sleep(0.1)

        met = cluster.before("create", change_back)  # the new members are made first
        await cluster.edit_template()
        await cluster.settle(3)
        assert met
        assert uids(members) <= uids(await cluster.members())
