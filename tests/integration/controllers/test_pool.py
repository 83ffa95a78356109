"""The pool controller on a real Api in virtual time: what becomes of pools, and what it costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from integration.controllers.pool_cluster import Cluster, a_pool_cluster, uids
from sandpool.controllers.assigner.facts import Claimant
from sandpool.model import labels
from sandpool.model.kinds import NETWORK_POLICIES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key, Uid
from sandpool.model.names import name_hash
from sandpool.model.patches import json_patch, merge_patch

pytestmark = pytest.mark.looptime


async def test_an_empty_pool_is_filled_at_once() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template()
        await cluster.make(3)
        await cluster.settle()
        members = await cluster.members()
        assert len(members) == 3, cluster.told()
        assert Counter(cluster.writes) == {"create sandboxes": 3, "patch_status sandboxwarmpools": 1}
        assert cluster.refused == []
        pool = await cluster.pool()
        assert (pool.status.replicas, pool.status.ready_replicas) == (3, 0)
        assert pool.status.observed_generation == 1
        assert pool.status.selector == f"{labels.WARM_POOL}={name_hash('p')}"
        assert (await cluster.said("Ready"))[:2] == ("False", "MembersNotReady")
        assert (await cluster.said("Progressing"))[:2] == ("True", "Replenishing")


async def test_a_pool_becomes_ready_and_then_rests() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(3)
        pool = await cluster.pool()
        assert (pool.status.ready_replicas, pool.status.updated_replicas) == (3, 3)
        assert pool.status.updated_ready_replicas == 3
        assert (await cluster.said("Ready"))[:2] == ("True", "MembersReady")
        assert (await cluster.said("Progressing"))[:2] == ("False", "UpToDate")
        reconciles = cluster.reconciles
        await cluster.settle(3600)
        assert cluster.writes == []
        assert cluster.reconciles == reconciles, "a full pool arms no timer"


async def test_a_member_that_is_taken_is_replaced_at_once() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(3)
        await cluster.take(members[0])
        await cluster.settle()
        left = await cluster.members()
        assert len(left) == 3
        assert uids(members[1:]) < uids(left)
        assert cluster.writes == ["create sandboxes"]
        taken = await cluster.api.get(SANDBOXES, members[0].metadata.name, "default")
        assert taken.metadata.controller is not None
        assert taken.metadata.controller.kind == "SandboxClaim"
        await cluster.all_ready()
        await cluster.settle(3)
        assert cluster.writes == ["create sandboxes"], "the status is again what it was: nothing to tell"


async def test_a_burst_costs_one_create_each_and_few_status_writes() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(60)
        for number, member in enumerate(members):
            await cluster.take(member, f"c{number}")
        await cluster.settle()
        assert len(await cluster.members()) == 60
        await cluster.all_ready()
        await cluster.settle(5)
        counts = Counter(cluster.writes)
        assert counts["create sandboxes"] == 60
        assert counts["patch_status sandboxwarmpools"] <= 3
        assert set(counts) == {"create sandboxes", "patch_status sandboxwarmpools"}
        assert cluster.refused == []


async def test_scaling_down_takes_the_unready_and_the_youngest_first() -> None:
    async with a_pool_cluster() as cluster:
        old = await cluster.filled(2)
        await cluster.settle(5)
        await cluster.edit(replicas=5)
        await cluster.settle()
        young = [one for one in await cluster.members() if one.metadata.uid not in uids(old)]
        await cluster.report(young[0].metadata.name)
        await cluster.settle(2)
        await cluster.edit(replicas=3)
        await cluster.settle()
        assert uids(await cluster.members()) == uids([*old, young[0]])
        await cluster.edit(replicas=2)
        await cluster.settle()
        assert uids(await cluster.members()) == uids(old)
        await cluster.edit(replicas=0)
        await cluster.settle(3)
        assert await cluster.members() == []
        pool = await cluster.api.get(POOLS, "p", "default")
        assert (pool.status.replicas, pool.status.ready_replicas) == (0, 0)
        assert (await cluster.said("Ready"))[0] == "True"


async def test_every_member_is_complete_from_the_beginning() -> None:
    async with a_pool_cluster() as cluster:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        volume = {"metadata": {"name": "data"}, "spec": spec}
        await cluster.template(volumeClaimTemplates=[volume], service=True, networkPolicyManagement="Unmanaged")
        await cluster.make(1)
        await cluster.settle()
        (member,) = await cluster.members()
        meta = member.metadata
        assert meta.name.startswith("p-")
        assert len(meta.name) == 10
        assert meta.annotations == {labels.POD_NAME: meta.name, labels.TEMPLATE_REF: "t"}
        assert meta.labels[labels.LAUNCH_TYPE] == "warm"
        owner = meta.controller
        assert owner is not None
        assert (owner.kind, owner.name, owner.block_owner_deletion) == ("SandboxWarmPool", "p", True)
        assert member.spec.service is True
        assert member.spec.volume_claim_templates is not None
        assert member.spec.volume_claim_templates[0].metadata.name == "data"


async def test_a_missing_template_is_told_and_waited_for() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.make(2)
        await cluster.settle(2)
        assert (await cluster.said("Ready"))[:2] == ("False", "TemplateNotFound")
        status, reason, message = await cluster.said("Progressing")
        assert (status, reason) == ("False", "TemplateNotFound")
        assert "SandboxTemplate t does not exist in namespace default" in message
        before = cluster.reconciles
        await cluster.settle(3600)
        assert cluster.reconciles == before, "no timer waits for a template"
        await cluster.template()
        await cluster.settle()
        assert len(await cluster.members()) == 2
        assert [event.reason for event in await cluster.events()] == ["TemplateNotFound"]


async def test_a_deleted_template_keeps_members_and_makes_none() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(2)
        await cluster.api.delete(TEMPLATES, "t", "default")
        await cluster.settle(2)
        await cluster.take(members[0])
        await cluster.settle(2)
        assert uids(await cluster.members()) == uids(members[1:])
        pool = await cluster.pool()
        assert (pool.status.replicas, pool.status.updated_replicas) == (1, 0)


async def test_no_member_before_its_network_policy() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template(networkPolicyManagement="Managed")
        await cluster.make(2)
        await cluster.settle(2)
        assert await cluster.members() == []
        status, reason, message = await cluster.said("Progressing")
        assert (status, reason) == ("False", "NetworkPolicyPending")
        assert "t-network-policy" in message
        await _policy(cluster)
        await cluster.settle()
        assert len(await cluster.members()) == 2


async def test_our_own_status_write_wakes_nobody() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(2)
        await cluster.take(members[0])
        before = cluster.reconciles
        await cluster.settle(5)
        assert cluster.writes == ["create sandboxes", "patch_status sandboxwarmpools"]
        assert cluster.reconciles == before + 2, "one that refills, one that tells"


async def test_a_policy_that_becomes_the_templates_own_counts() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template(networkPolicyManagement="Managed")
        await _policy(cluster, marked=False)
        await cluster.make(1)
        await cluster.settle(2)
        assert await cluster.members() == []
        assert "does not belong to template t" in (await cluster.said("Progressing"))[2]
        await cluster.api.patch(NETWORK_POLICIES, "t-network-policy", merge_patch({"metadata": MARKS}), "default")
        await cluster.settle()
        assert len(await cluster.members()) == 1


async def test_an_orphan_that_is_going_is_let_go() -> None:
    async with a_pool_cluster() as cluster:
        (member,) = await cluster.filled(1)
        name = member.metadata.name
        await cluster.api.patch(SANDBOXES, name, merge_patch({"metadata": {"finalizers": ["a.b/c"]}}), "default")
        await cluster.api.delete(SANDBOXES, name, "default")
        await cluster.api.patch(SANDBOXES, name, merge_patch({"metadata": {"ownerReferences": None}}), "default")
        await cluster.settle()
        assert cluster.counted.count("patch") == cluster.counted.count("delete") == 0
        assert len(await cluster.members()) == 2, "nor does it hold a place"


async def test_a_reserved_member_is_spared_until_it_is_free() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(1)
        held = cluster.reserve(await cluster.pool())
        await cluster.edit(replicas=0)
        await cluster.settle(3)
        assert [one.metadata.name for one in await cluster.members()] == [held]
        cluster.assigner.forget(Uid("c1"))
        await cluster.settle(2)
        assert await cluster.members() == []


async def test_claims_that_wait_for_a_member_learn_that_it_goes() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template()
        pool = await cluster.make(1)
        await cluster.settle()
        claimant, now = Claimant(Uid("c1"), Key("default", "c1")), cluster.clock.now()
        cluster.assigner.acquire(claimant, pool.metadata.uid, now, now + timedelta(minutes=1))
        woken: list[Claimant] = []

        async def look() -> None:
            woken.extend(cluster.woken)

        cluster.before("delete", look)
        await cluster.edit(replicas=0)
        await cluster.settle()
        assert woken == [claimant]


async def test_a_status_that_somebody_else_wrote_is_put_right() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.filled(1)
        right = (await cluster.pool()).status
        for _ in range(5):
            patch = merge_patch({"status": {"readyReplicas": 7}})
            await cluster.api.patch_status(POOLS, "p", patch, "default")
        await cluster.settle(5)
        assert (await cluster.pool()).status == right
        assert cluster.writes == ["patch_status sandboxwarmpools"]


async def test_a_pool_that_flaps_is_not_written_each_time() -> None:
    async with a_pool_cluster() as cluster:
        (member,) = await cluster.filled(1)
        for number in range(20):
            await cluster.report(member.metadata.name, ready=number % 2 == 1)
            await cluster.settle(0.1)
        await cluster.settle(3)
        assert (await cluster.pool()).status.ready_replicas == 1
        assert cluster.counted.writes <= 4


async def test_nothing_is_remembered_of_a_pool_that_is_gone() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(2)
        await cluster.api.delete(POOLS, "p", "default")
        await cluster.settle()
        for member in members:
            await cluster.api.delete(SANDBOXES, member.metadata.name, "default")
        await cluster.settle()
        assert cluster.controller.remembered == 0


async def test_a_pool_that_is_being_deleted_does_nothing() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(2)
        patch = merge_patch({"metadata": {"finalizers": ["example.com/wait"]}})
        await cluster.api.patch(POOLS, "p", patch, "default")
        await cluster.api.delete(POOLS, "p", "default")
        await cluster.take(members[0])
        await cluster.settle(5)
        assert cluster.writes == []


async def test_a_pool_made_again_does_not_own_the_members_of_the_first() -> None:
    async with a_pool_cluster() as cluster:
        first = await cluster.filled(2)
        await cluster.api.delete(POOLS, "p", "default")
        await cluster.make(2)
        await cluster.settle()
        assert len(await cluster.members()) == 4
        assert cluster.counted.count("delete") == 0, "what the first pool left is the collector's"
        pool = await cluster.pool()
        assert pool.status.replicas == 2
        for member in first:
            await cluster.api.delete(SANDBOXES, member.metadata.name, "default")
        await cluster.settle()
        assert len(await cluster.members()) == 2
        assert cluster.controller.remembered == 1, "nothing is kept of the first pool"


async def test_an_orphan_counts_while_it_is_adopted() -> None:
    async with a_pool_cluster() as cluster:
        members = await cluster.filled(3)
        freed = json_patch([{"op": "remove", "path": "/metadata/ownerReferences"}])
        await cluster.api.patch(SANDBOXES, members[0].metadata.name, freed, "default")
        await cluster.settle(3)
        assert uids(await cluster.members()) == uids(members)
        assert cluster.writes == ["patch sandboxes"]


async def test_an_orphan_comes_back_and_a_forgery_goes() -> None:
    async with a_pool_cluster() as cluster:
        good, bad = await cluster.filled(2)
        freed = {"op": "remove", "path": "/metadata/ownerReferences"}
        image = {"op": "replace", "path": "/spec/podTemplate/spec/containers/0/image", "value": "evil"}
        unmarked = {"op": "remove", "path": f"/metadata/labels/{labels.LAUNCH_TYPE.replace('/', '~1')}"}
        await cluster.api.patch(SANDBOXES, bad.metadata.name, json_patch([freed, image]), "default")
        await cluster.api.patch(SANDBOXES, good.metadata.name, json_patch([freed, unmarked]), "default")
        await cluster.settle()
        members = {member.metadata.uid: member for member in await cluster.members()}
        assert len(members) == 2
        assert bad.metadata.uid not in members
        back = members[good.metadata.uid]
        assert back.metadata.controller is not None
        assert back.metadata.controller.name == "p"
        assert back.metadata.labels[labels.LAUNCH_TYPE] == "warm"


async def test_lost_labels_come_back() -> None:
    async with a_pool_cluster() as cluster:
        (member,) = await cluster.filled(1)
        gone = dict.fromkeys((labels.LAUNCH_TYPE, labels.WARM_POOL, labels.TEMPLATE_REF_HASH))
        patch = merge_patch({"metadata": {"labels": gone}})
        await cluster.api.patch(SANDBOXES, member.metadata.name, patch, "default")
        await cluster.settle()
        (again,) = await cluster.members()
        assert again.metadata.labels == member.metadata.labels
        assert cluster.writes == ["patch sandboxes"]


async def test_labels_do_not_make_a_sandbox_of_somebody_else_a_member() -> None:
    async with a_pool_cluster() as cluster:
        (member,) = await cluster.filled(1)
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
        patch = json_patch([{"op": "replace", "path": "/metadata/ownerReferences", "value": [owner]}])
        await cluster.api.patch(SANDBOXES, member.metadata.name, patch, "default")
        await cluster.settle(3)
        assert len(await cluster.members()) == 2, "the pool has made one of its own"
        assert cluster.counted.count("delete") == cluster.counted.count("patch") == 0
        assert (await cluster.pool()).status.replicas == 1


async def test_a_template_wakes_the_pools_that_name_it() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template("t")
        await cluster.template("u")
        for name, template in (("p", "t"), ("q", "t"), ("r", "u")):
            await cluster.make(1, name, template)
        await cluster.settle(5)
        before = {name: len(cluster.told(name)) for name in "pqr"}
        await cluster.edit_template("t")
        await cluster.settle(5)
        assert [name for name in "pqr" if len(cluster.told(name)) > before[name]] == ["p", "q"]


async def test_statuses_of_many_members_travel_together() -> None:
    async with a_pool_cluster() as cluster:
        await cluster.template()
        await cluster.make(40)
        await cluster.settle(2)
        cluster.counted.clear()
        before = cluster.reconciles
        for member in await cluster.members():
            await cluster.report(member.metadata.name)
            await asyncio.sleep(0.1)
        await cluster.settle(3)
        assert (await cluster.pool()).status.ready_replicas == 40
        assert cluster.counted.writes <= 6, "four seconds: the edge, and one a second"
        assert cluster.reconciles - before <= 10, cluster.told()


MARKS = {"labels": {labels.TEMPLATE_REF_HASH: name_hash("t")}, "annotations": {labels.TEMPLATE_REF: "t"}}


async def _policy(cluster: Cluster, *, marked: bool = True) -> None:
    meta = {"name": "t-network-policy", **(MARKS if marked else {})}
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
    await cluster.api.create(NETWORK_POLICIES, {"metadata": meta, "spec": spec}, "default")
