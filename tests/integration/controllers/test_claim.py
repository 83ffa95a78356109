"""The life of a claim on a real store: how it comes to a sandbox, how it waits, what it forwards, what it never does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integration.controllers.claim_cluster import NOT_READY, READY, World, a_claim_cluster, a_life
from sandpool.controllers.claim.blueprint import owner_reference
from sandpool.controllers.claim.options import Options
from sandpool.kube.errors import InternalError
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find
from sandpool.model.kinds import CLAIMS, NETWORK_POLICIES, NODES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key
from sandpool.model.patches import merge_patch
from support.simulated.loop_cluster import a_cluster

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")
MISSING = ("False", "SandboxMissing")


def owner(claim: SandboxClaim) -> dict[str, object]:
    reference = owner_reference(claim)
    return {
        "apiVersion": reference.api_version, "kind": reference.kind, "name": reference.name, "uid": reference.uid,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


async def own_sandbox(world: World, claim: SandboxClaim, name: str, **labelled: str) -> None:
    """A sandbox that a predecessor gave the claim."""
    body = {
        "metadata": {"name": name, "labels": labelled, "ownerReferences": [owner(claim)]},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "python"}]}}},
    }
    await world.api.create(SANDBOXES, body, "default")
    await world.ready(name)


# Coming to a sandbox


async def test_a_cold_start_from_empty_to_ready() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.settle()
        claim = await life.claim()
        await life.settle()
        assert await life.said() == ("False", "SandboxNotReady")
        assert await life.has() == "c"
        made = await life.sandbox("c")
        assert made is not None
        assert made.metadata.labels[labels.LAUNCH_TYPE] == "cold"
        assert made.metadata.labels[labels.CLAIM_UID] == claim.metadata.uid
        await life.ready("c")
        await life.settle()
        assert await life.said() == IS_READY
        status = (await life.see()).status
        assert status.sandbox is not None
        assert status.sandbox.pod_ips == ("10.0.0.1",)
        assert (await life.see()).metadata.annotations[labels.SANDBOX_NAME] == "c"
        assert life.writes == [
            "create sandboxes", "patch sandboxclaims", "patch_status sandboxclaims", "patch_status sandboxclaims", "patch sandboxclaims",
        ]  # fmt: skip
        assert life.reconciles == 2, life.told()
        assert await life.events() == [("Normal", "SandboxProvisioned")]


@pytest.mark.parametrize(
    "asks",
    [
        {"env": [{"name": "A", "value": "1"}]},
        {"volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]},
    ],
    ids=["env", "volumes"],
)
async def test_what_a_warm_one_cannot_have_starts_cold_and_leaves_the_pool_alone(asks: dict[str, Any]) -> None:
    async with a_claim_cluster() as life:
        await life.template(envVarsInjectionPolicy="Allowed", volumeClaimTemplatesPolicy="Allowed")
        await life.pool()
        await life.member("m0")
        await life.claim(**asks)
        await life.settle()
        assert await life.has() == "c"
        untouched = await life.sandbox("m0")
        assert untouched is not None
        assert labels.WARM_POOL in untouched.metadata.labels


async def test_a_transfer_is_announced_when_it_is_sent_and_a_cold_start_is_not() -> None:
    announced: list[Key] = []
    async with a_claim_cluster() as life:
        life.controller.transfers.subscribe(announced.append)
        await life.furnish(1)
        await life.settle()
        for name in ("a", "b"):
            await life.claim(name)
        await life.settle()
        assert [await life.has(name) for name in ("a", "b")] == ["m0", "b"]
    assert announced == [Key("default", "m0")]


async def test_two_members_three_claims() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(2)
        await life.settle()
        for name in ("a", "b", "c"):
            await life.claim(name)
        await life.settle()
        assert [await life.has(name) for name in ("a", "b", "c")] == ["m0", "m1", "c"]


async def test_a_claim_waits_for_a_member_that_warms_and_is_woken_by_it() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.member("m0", ready=False)
        await life.settle()
        await life.claim()
        await life.settle(1.0)
        assert life.writes == [], "a short wait is nobody's news"
        await life.ready("m0")
        await life.settle()
        assert await life.said() == IS_READY
        assert await life.has() == "m0"
        assert life.reconciles == 1, "not before it was its turn"


async def test_a_long_wait_is_told_and_ends_in_a_cold_start() -> None:
    async with a_claim_cluster(Options(patience=10, report_after=2)) as life:
        await life.furnish(0)
        await life.member("m0", ready=False)
        await life.settle()
        await life.claim()
        await life.settle(3)
        assert await life.said() == MISSING
        assert "pool p" in (await life.see()).status.conditions[0].message
        assert len(life.writes) == 1
        await life.settle(6)
        assert len(life.writes) == 1, "told once"
        await life.settle(2)
        assert await life.has() == "c"


async def test_more_waiters_than_members_that_warm_start_cold_at_once() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.member("m0", ready=False)
        await life.settle()
        await life.claim("a")
        await life.claim("b")
        await life.settle(0.1)
        assert await life.has("a") == ""
        assert await life.has("b") == "b"


async def test_a_wait_ends_with_the_claim_and_the_next_in_line_is_served() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        for name in ("m0", "m1"):
            await life.member(name, ready=False)
        await life.settle()
        await life.claim("a")
        await life.claim("b")
        await life.settle()
        await life.api.delete(CLAIMS, "a", "default")
        await life.settle()
        await life.ready("m0")
        await life.settle()
        assert await life.has("b") == "m0"


async def test_members_on_a_node_that_is_drained_are_not_handed_out() -> None:
    async with a_claim_cluster() as life:
        await life.api.create(NODES, {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}})
        await life.furnish(1)
        await life.member("m9", node="n2")
        await life.settle()
        await life.claim()
        await life.settle()
        assert await life.has() == "m9"


async def test_under_recreate_a_stale_member_is_not_handed_out() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1, updateStrategy={"type": "Recreate"})
        await life.settle()
        pod = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
        await life.api.patch(TEMPLATES, "t", merge_patch({"spec": {"podTemplate": pod}}), "default")
        await life.settle()
        await life.claim()
        await life.settle()
        assert await life.has() == "c"


# What stands in the way


async def test_a_missing_pool_and_its_appearance() -> None:
    async with a_claim_cluster() as life:
        await life.template()
        await life.claim()
        await life.settle()
        assert await life.said() == ("False", "WarmPoolNotFound")
        told = (await life.see()).status.conditions[0].message
        assert told.startswith('SandboxWarmPool "p" not found'), "as the contract has it"
        assert told.endswith("create it in namespace default, or change spec.warmPoolRef.name")
        await life.settle(1000)
        assert life.reconciles == 1, "not on a timer"
        await life.pool()
        await life.settle()
        assert await life.has() == "c"
        assert await life.events() == [("Warning", "WarmPoolNotFound"), ("Normal", "SandboxProvisioned")]


async def test_a_missing_template_and_its_appearance() -> None:
    async with a_claim_cluster() as life:
        await life.pool()
        await life.claim()
        await life.settle()
        assert await life.said() == ("False", "TemplateNotFound")
        told = (await life.see()).status.conditions[0].message
        assert told.startswith('SandboxTemplate "t" not found'), "as the contract has it"
        assert told.endswith("or change spec.sandboxTemplateRef.name of SandboxWarmPool p")
        await life.settle(1000)
        assert life.reconciles <= 2
        await life.template()
        await life.settle()
        assert await life.has() == "c"


async def test_no_cold_sandbox_before_the_walls_stand() -> None:
    async with a_claim_cluster() as life:
        await life.template(networkPolicyManagement="Managed")
        await life.pool()
        await life.claim()
        await life.settle(1)
        assert life.writes == []
        await life.settle(2)
        assert await life.said() == MISSING
        assert "t-network-policy" in (await life.see()).status.conditions[0].message
        policy = {
            "metadata": {
                "name": "t-network-policy",
                "labels": {labels.TEMPLATE_REF_HASH: (await life.api.get(TEMPLATES, "t", "default")).metadata.name},
                "annotations": {labels.TEMPLATE_REF: "t"},
                "ownerReferences": [await template_owner(life)],
            },
            "spec": {"podSelector": {}},
        }
        await life.api.create(NETWORK_POLICIES, policy, "default")
        await life.settle()
        assert await life.has() == "c"


async def template_owner(world: World) -> dict[str, object]:
    meta = (await world.api.get(TEMPLATES, "t", "default")).metadata
    version = "extensions.agents.x-k8s.io/v1beta1"
    return {"apiVersion": version, "kind": "SandboxTemplate", "name": "t", "uid": meta.uid, "controller": True}


async def test_a_foreign_sandbox_of_the_name_is_left_alone_and_its_end_wakes_the_claim() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        body = {
            "metadata": {"name": "c"},
            "spec": {"podTemplate": {"spec": {"containers": [{"name": "a", "image": "b"}]}}},
        }
        await life.api.create(SANDBOXES, body, "default")
        await life.settle()
        await life.claim()
        await life.settle()
        assert await life.said() == ("False", "ReconcilerError")
        assert life.counted.count("create") == 0
        await life.settle(1000)
        assert life.reconciles == 1
        await life.api.delete(SANDBOXES, "c", "default")
        await life.settle()
        assert await life.has() == "c"


async def test_a_predecessor_of_the_name_is_waited_for() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(0)
        await life.settle()
        await life.claim()
        await life.settle()
        await life.api.patch(SANDBOXES, "c", merge_patch({"metadata": {"finalizers": ["a/b"]}}), "default")
        await life.api.delete(CLAIMS, "c", "default")
        await life.api.delete(SANDBOXES, "c", "default")
        second = await life.claim()
        await life.settle(3)
        assert await life.said() == MISSING
        await life.api.patch(SANDBOXES, "c", merge_patch({"metadata": {"finalizers": None}}), "default")
        await life.settle()
        assert await life.has() == "c"
        assert await life.owned(second) == ["c"]


@pytest.mark.parametrize(
    ("asks", "reason"),
    [
        ({"env": [{"name": "A", "value": "1"}]}, "EnvVarsInjectionRejected"),
        ({"volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]}, "VolumeClaimTemplatesError"),
        ({"additionalPodMetadata": {"labels": {"team": "a"}}}, "InvalidMetadata"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_can_never_be_done_is_told_once_and_not_tried_again(asks: dict[str, Any], reason: str) -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim(**asks)
        await life.settle(1000)
        assert await life.said() == ("False", reason)
        assert await life.events() == [("Warning", reason)]
        assert len(life.writes) == 1
        await life.edit(**dict.fromkeys(asks))  # type: ignore[arg-type]
        await life.settle()
        assert await life.said() == IS_READY


async def test_metadata_that_contradicts_the_template_refuses_and_frees_the_member() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        pod = {"podTemplate": {"metadata": {"labels": {"sandbox.users.io/team": "ours"}}}}
        await life.api.patch(TEMPLATES, "t", merge_patch({"spec": pod}), "default")
        await life.api.patch(SANDBOXES, "m0", merge_patch({"spec": pod}), "default")
        await life.settle()
        await life.claim("a", additionalPodMetadata={"labels": {"sandbox.users.io/team": "mine"}})
        await life.settle()
        assert await life.said("Ready", "a") == ("False", "InvalidMetadata")
        await life.claim("b")
        await life.settle()
        assert await life.has("b") == "m0"


# Being bound


async def test_what_the_sandbox_says_is_forwarded_at_once() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim()
        await life.settle()
        finished = {"type": "Finished", "status": "True", "reason": "PodSucceeded", "message": "done"}
        ended = {"type": "Ready", "status": "False", "reason": "PodSucceeded", "message": "done"}
        await life.says("m0", ended, finished)
        await life.settle()
        assert await life.said() == ("False", "PodSucceeded")
        assert await life.said("Finished") == ("True", "PodSucceeded")
        await life.says("m0", READY, podIPs=["10.0.0.2"])
        await life.settle()
        assert await life.said() == IS_READY
        assert await life.said("Finished") is None
        status = (await life.see()).status
        assert status.sandbox is not None
        assert status.sandbox.pod_ips == ("10.0.0.2",)


async def test_a_message_alone_waits_a_moment() -> None:
    async with a_claim_cluster(Options(moment=1.0)) as life:
        await life.furnish(0)
        await life.claim()
        await life.settle()
        await life.says("c", NOT_READY)
        await life.settle()
        before = len(life.writes)
        for phase in range(5):
            await life.says("c", NOT_READY | {"message": f"phase {phase}"})
        await life.settle(0.5)
        assert len(life.writes) == before
        await life.settle(1)
        assert len(life.writes) == before + 1
        assert (await life.see()).status.conditions[0].message == "phase 4"


async def test_a_generation_alone_is_no_news() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim()
        await life.settle()
        await life.says("m0", READY | {"observedGeneration": 7})
        await life.settle(5)
        assert life.reconciles == 1


async def test_pool_and_template_may_go_once_a_claim_is_bound() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim(additionalPodMetadata={"annotations": {"a": "b"}})
        await life.settle()
        writes = len(life.writes)
        await life.api.delete(POOLS, "p", "default")
        await life.api.delete(TEMPLATES, "t", "default")
        await life.settle(10)
        assert await life.said() == IS_READY
        assert len(life.writes) == writes


async def test_a_sandbox_that_is_deleted_is_replaced() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(2)
        await life.claim()
        await life.settle()
        await life.api.patch(SANDBOXES, "m0", merge_patch({"metadata": {"finalizers": ["a/b"]}}), "default")
        await life.api.delete(SANDBOXES, "m0", "default")
        await life.settle()
        assert await life.said() == ("False", "DependenciesNotReady")
        assert await life.has() == "m0", "while it goes"
        await life.api.patch(SANDBOXES, "m0", merge_patch({"metadata": {"finalizers": None}}), "default")
        await life.settle()
        assert await life.said() == IS_READY
        assert await life.has() == "m1"
        assert (await life.see()).metadata.annotations[labels.SANDBOX_NAME] == "m1"


async def test_a_sandbox_that_is_deleted_with_nothing_left_to_replace_it() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim()
        await life.settle()
        await life.api.delete(TEMPLATES, "t", "default")
        await life.api.delete(SANDBOXES, "m0", "default")
        await life.settle()
        assert await life.said() == ("False", "TemplateNotFound")
        assert (await life.see()).status.sandbox is None


async def test_metadata_edits_reach_the_sandbox_and_what_was_dropped_goes() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim(additionalPodMetadata={"labels": {"sandbox.users.io/a": "1", "sandbox.users.io/b": "1"}})
        await life.settle()
        await life.edit(additionalPodMetadata={"labels": {"sandbox.users.io/a": "2", "sandbox.users.io/b": None}})
        await life.settle()
        sandbox = await life.sandbox("m0")
        assert sandbox is not None
        assert sandbox.spec.pod_template.metadata is not None
        assert sandbox.spec.pod_template.metadata.labels == {"sandbox.users.io/a": "2"}
        assert await life.said() == IS_READY
        assert await life.said("Healthy") is None


async def test_a_bad_edit_of_a_bound_claim_is_told_and_leaves_it_ready() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim()
        await life.settle()
        await life.edit(additionalPodMetadata={"labels": {"team": "a"}})
        await life.settle()
        assert await life.said() == IS_READY
        assert await life.said("Healthy") == ("False", "ConfigurationTrouble")
        await life.edit(additionalPodMetadata=None, env=[{"name": "A", "value": "1"}])
        await life.settle()
        assert await life.said() == IS_READY
        told = find((await life.see()).status.conditions, "Healthy")
        assert told is not None
        assert "spec.env" in told.message
        await life.edit(env=None)
        await life.settle()
        assert await life.said("Healthy") == ("True", "AsExpected")


async def test_trouble_of_ours_shows_in_healthy_and_never_in_ready() -> None:
    async with a_claim_cluster() as life:
        await life.furnish()
        await life.claim()
        await life.settle()
        life.faulty.on("patch", "sandboxes", times=3).refuse(InternalError("broken"))
        await life.edit(additionalPodMetadata={"annotations": {"a": "b"}})
        await asyncio.sleep(0.008)
        assert await life.said() == IS_READY
        assert await life.said("Healthy") == ("False", "ControllerTrouble")
        await life.settle(1)
        assert await life.said("Healthy") == ("True", "AsExpected")


async def test_marks_that_old_versions_did_not_write() -> None:
    """The claim came to its sandbox under another program: a label names it, and the sandbox says little of itself."""
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(0)
        claim = await world.claim(meta={"labels": {labels.SANDBOX_NAME: "old"}})
        await own_sandbox(world, claim, "old")
        bound = {"name": "old", "podIPs": ["10.0.0.1"]}
        await api.patch_status(CLAIMS, "c", merge_patch({"status": {"sandbox": bound}}), "default")
        policy = {
            "metadata": {"name": "c-network-policy", "ownerReferences": [owner(claim)]},
            "spec": {"podSelector": {}},
        }
        await api.create(NETWORK_POLICIES, policy, "default")
        async with a_life(api) as life:
            await life.settle()
            assert await life.said() == IS_READY
            meta = (await life.see()).metadata
            assert labels.SANDBOX_NAME not in meta.labels
            assert meta.annotations[labels.SANDBOX_NAME] == "old"
            sandbox = await life.sandbox("old")
            assert sandbox is not None
            assert sandbox.metadata.labels == {labels.LAUNCH_TYPE: "warm"}
            assert [one.metadata.name for one in (await api.list(NETWORK_POLICIES, "default")).items] == []


async def test_a_claim_that_was_ready_before_anybody_noted_when() -> None:
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(1)
        async with a_life(api, Options(annotations=False)) as life:
            await world.claim()
            await life.settle()
        async with a_life(api) as life:
            await life.settle()
            assert (await life.see()).metadata.annotations[labels.CLAIM_FIRST_READY_AT] == "unknown"
            assert life.writes == ["patch sandboxclaims"]


# Finding what a predecessor left


async def test_a_sandbox_that_is_the_claims_already_is_bound() -> None:
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(1)
        claim = await world.claim()
        await own_sandbox(world, claim, "taken", **{labels.LAUNCH_TYPE: "warm"})
        async with a_life(api) as life:
            await life.settle()
            assert await life.said() == IS_READY
            assert await life.has() == "taken"
            assert await life.owned(claim) == ["taken"]


async def test_of_several_the_one_that_the_status_names_is_kept() -> None:
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(1)
        claim = await world.claim()
        for name in ("x", "y", "z"):
            await own_sandbox(world, claim, name, **{labels.LAUNCH_TYPE: "warm"})
        await api.patch_status(CLAIMS, "c", merge_patch({"status": {"sandbox": {"name": "y"}}}), "default")
        async with a_life(api) as life:
            await life.settle()
            assert await life.owned(claim) == ["y"]
            assert await life.has() == "y"


async def test_of_several_that_no_status_names_the_oldest_is_bound() -> None:
    async with a_cluster() as api:
        world = World(api)
        await world.furnish(1)
        claim = await world.claim()
        for name in ("z", "x", "y"):
            await own_sandbox(world, claim, name, **{labels.LAUNCH_TYPE: "warm"})
            await asyncio.sleep(2)
        async with a_life(api) as life:
            await life.settle()
            assert await life.owned(claim) == ["z"] == [await life.has()]


async def test_a_claim_that_asks_for_variables_is_never_bound_to_a_warm_one() -> None:
    async with a_cluster() as api:
        world = World(api)
        await world.template(envVarsInjectionPolicy="Allowed")
        await world.pool()
        claim = await world.claim(env=[{"name": "A", "value": "1"}])
        await own_sandbox(world, claim, "taken", **{labels.LAUNCH_TYPE: "warm"})
        async with a_life(api) as life:
            await life.settle()
            assert await life.has() == "c"
            assert await life.owned(claim) == ["c"]


async def test_a_status_ahead_of_the_sandbox_cache_gets_no_second_sandbox() -> None:
    """Another leader has bound the claim; our cache still shows the sandbox as the pool's."""
    async with a_claim_cluster() as life:
        await life.furnish(2)
        await life.settle()
        claim = await life.claim("other", warmPoolRef={"name": "none"})
        await life.settle()
        life.counted.clear()
        life.api.flow.clear()
        await life.api.patch(SANDBOXES, "m1", merge_patch({"metadata": {"ownerReferences": [owner(claim)]}}), "default")
        bound = {"sandbox": {"name": "m1", "podIPs": ["10.0.0.1"]}}
        told = await life.api.patch_status(CLAIMS, "other", merge_patch({"status": bound}), "default")
        life.caches.claims.upsert(told)
        await life.settle()
        assert await life.has("other") == "m1"
        assert await life.owned(claim) == ["m1"]
        assert life.counted.count("get", "sandboxes") == 1
        assert await life.said("Ready", "other") == IS_READY
        life.api.flow.set()


async def test_nothing_is_remembered_of_a_claim_that_is_gone() -> None:
    async with a_claim_cluster() as life:
        await life.furnish(1)
        await life.claim()
        await life.claim("waits", warmPoolRef={"name": "none"})
        await life.settle()
        for name in ("c", "waits"):
            await life.api.delete(CLAIMS, name, "default")
        await life.settle()
        assert len(life.controller.memory) == 0
