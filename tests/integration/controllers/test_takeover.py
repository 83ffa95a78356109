"""Our controllers on a cluster that another implementation has run so far: nothing is restarted, nobody loses a sandbox."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from integration.controllers.box_cluster import controlled
from integration.controllers.test_sandbox_faults import Faults
from sandpool.controllers.sandbox.apply import apply
from sandpool.controllers.sandbox.steps import Change, Create, Plan
from sandpool.install.rules import LEASE
from sandpool.kube.api import WRITES, Api
from sandpool.kube.errors import InternalError
from sandpool.model import labels
from sandpool.model.conditions import is_true
from sandpool.model.kinds import (
    CLAIMS,
    NETWORK_POLICIES,
    PODS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
)
from sandpool.model.names import name_hash
from sandpool.model.patches import merge_patch
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from support.clocks.virtual_loop import run_virtually
from support.kube.left_behind import BOUND, MEMBERS, RUNNING, Seed, essence, identities, left_behind
from support.kube.other_installation import IMAGE, Installation, freed, reference
from support.simulated.control_plane import ControlPlane, a_control_plane
from support.simulated.loop_cluster import a_cluster

SETTLED = 600.0


def taken_over(
    work: Callable[[ControlPlane], Awaitable[None]], seed: Seed | None = None, *, node: bool = False
) -> None:
    """Without a node what is created stays as it is, and is seen."""

    async def main() -> None:
        async with a_control_plane(before=seed or left_behind(), node=node) as plane:
            await work(plane)

    run_virtually(main())


def test_the_lease_has_the_name_that_others_wait_for() -> None:
    """With another one both would act at the same time."""
    assert LEASE == "a3317529.agent-sandbox.x-k8s.io"


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
@pytest.mark.parametrize("strategy", ["OnReplenish", "Recreate", "RollingUpdate"])
def test_nothing_is_restarted_and_every_claim_keeps_its_sandbox(version: str, strategy: str) -> None:
    seed = left_behind(version, strategy)
    before: dict[str, Any] = {}

    async def remember(api: Api) -> None:
        await seed(api)
        before.update(await identities(api))
        before["status"] = {each.metadata.name: essence(each) for each in (await api.list(CLAIMS, "default")).items}

    async def work(plane: ControlPlane) -> None:
        await asyncio.sleep(SETTLED)
        status = before.pop("status")
        assert await identities(plane.user) == before
        assert {name: essence(await plane.get_claim(name)) for name in status} == status
        assert (
            set(plane.distant.sums)
            & {
                (who, verb, kind)
                for who in ("claim", "sandbox", "pool", "template")
                for verb in ("create", "delete")
                for kind in ("sandboxes", "pods", "services", "persistentvolumeclaims", "sandboxclaims")
            }
            == set()
        )
        assert plane.distant.failures == []
        for box in await plane.sandboxes():
            assert is_true(box.status.conditions, Type.READY) is (box.metadata.name in RUNNING)
            assert not [one for one in box.status.conditions if one.type in (Type.HEALTHY, Type.POD_UP_TO_DATE)]

    taken_over(work, remember)


def test_a_pool_counts_what_it_finds() -> None:
    async def work(plane: ControlPlane) -> None:
        await asyncio.sleep(SETTLED)
        pool: SandboxWarmPool = await plane.get_pool()
        status, count = pool.status, len(MEMBERS)
        assert (status.replicas, status.ready_replicas) == (count, count)
        assert (status.updated_replicas, status.updated_ready_replicas) == (count, count)
        assert is_true(status.conditions, Type.READY)

    taken_over(work)


def test_it_takes_few_writes_and_then_none() -> None:
    """What is missing on the pods, and once each status in our words."""

    async def work(plane: ControlPlane) -> None:
        await asyncio.sleep(SETTLED)
        wrote = {call: count for call, count in plane.distant.sums.items() if call[1] in WRITES}
        assert wrote == {
            ("sandbox", "patch", "pods"): len(RUNNING),  # the label of the sandbox's uid
            ("sandbox", "patch", "services"): 1,  # which it selects by
            ("sandbox", "patch_status", "sandboxes"): len(RUNNING) + 1,
            ("claim", "patch_status", "sandboxclaims"): 1,  # the others say the same, in the same words
            ("claim", "patch", "sandboxclaims"): 3,  # the sandbox's name, where no annotation said it
            ("claim", "patch", "sandboxes"): 1,  # how it was started, where no label said it
            ("claim", "delete", "networkpolicies"): 1,
            ("template", "patch", "networkpolicies"): 1,
            ("pool", "patch_status", "sandboxwarmpools"): 1,
        }
        plane.clear()
        await asyncio.sleep(6 * 3600)
        assert {call for call in plane.distant.sums if call[1] in WRITES} == set()

    taken_over(work)


def test_a_claim_of_an_older_release_learns_the_name_of_its_service() -> None:
    async def older(api: Api) -> None:
        other = Installation(api)
        await other.template()
        await other.pool(0)
        await other.bound(await other.claim("mine"), "mine", service=True, mirrored=False)

    async def work(plane: ControlPlane) -> None:
        await asyncio.sleep(SETTLED)
        shown = (await plane.get_claim("mine")).status.sandbox
        assert shown is not None
        assert shown.service_fqdn == "mine.default.svc.cluster.local"

    taken_over(work, older)


def test_policies_no_longer_fall_with_their_template() -> None:
    async def work(plane: ControlPlane) -> None:
        await asyncio.sleep(SETTLED)
        (policy,) = (await plane.user.list(NETWORK_POLICIES, "default")).items
        assert policy.metadata.name == "python-network-policy", "that of a claim is a thing of the past"
        assert freed(policy, "python")
        await plane.user.delete(TEMPLATES, "python", "default")
        await asyncio.sleep(SETTLED)
        (still,) = (await plane.user.list(NETWORK_POLICIES, "default")).items
        assert (still.metadata.uid, still.metadata.leaving) == (policy.metadata.uid, False)

    taken_over(work)


def test_members_are_handed_out_as_they_are_and_their_successors_are_hardened() -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.filled(len(MEMBERS))
        await plane.claim("new")
        await plane.served(["new"])
        bound = (await plane.get_claim("new")).status.sandbox
        assert bound is not None
        assert bound.name in MEMBERS
        await plane.filled(len(MEMBERS))
        pods = {each.metadata.name: each for each in (await plane.user.list(PODS, "default")).items}
        assert labels.SAFE_TO_EVICT not in pods[bound.name].metadata.annotations
        assert labels.SAFE_TO_EVICT in pods[next(name for name in MEMBERS if name != bound.name)].metadata.annotations
        (fresh,) = [each for each in await plane.sandboxes() if each.metadata.name in pods.keys() - {*RUNNING}]
        made = msgspec.json.decode(fresh.spec.pod_template.spec)
        assert made["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
        assert made["containers"][0]["securityContext"] == {"allowPrivilegeEscalation": False}

    taken_over(work, node=True)


def test_a_rollout_after_the_takeover_replaces_the_idle_ones_only() -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.filled(len(MEMBERS))
        other = [{**IMAGE["containers"][0], "image": "python:next"}]
        await plane.edit(TEMPLATES, "python", podTemplate={"spec": {"containers": other}})

        async def rolled() -> bool:
            names = {each.metadata.name for each in await plane.sandboxes()}
            return not names & set(MEMBERS) and len(names) == len(RUNNING) + 1

        await plane.until(rolled)
        await plane.filled(len(MEMBERS))
        assert {*BOUND.values(), "mine", "asleep"} <= {each.metadata.name for each in await plane.sandboxes()}

    taken_over(work, node=True)


async def _half_served(api: Api) -> None:
    """It stopped in the middle: of one claim only the choice was noted, of the other one the sandbox was already given."""
    other = Installation(api)
    await other.template()
    pool = await other.pool(3)
    for name in MEMBERS:
        await other.member(pool, name)
    chosen = merge_patch({"metadata": {"annotations": {labels.SANDBOX_NAME: MEMBERS[1]}}})
    await other.claim("chosen")
    await api.patch(CLAIMS, "chosen", chosen, "default")
    given = await other.claim("given")
    marks = {labels.WARM_POOL: None, labels.TEMPLATE_HASH: None, labels.CLAIM_UID: str(given.metadata.uid)}
    owner = reference(given, CLAIMS)
    await api.patch(
        SANDBOXES, MEMBERS[2], merge_patch({"metadata": {"labels": marks, "ownerReferences": [owner]}}), "default"
    )
    await other.claim("waiting")


def test_claims_that_were_half_served_get_one_sandbox_each() -> None:
    names = ["chosen", "given", "waiting"]

    async def work(plane: ControlPlane) -> None:
        await plane.served(names)
        await plane.filled(3)
        bound = {name: (await plane.get_claim(name)).status.sandbox for name in names}
        got = {name: one.name for name, one in bound.items() if one is not None}
        assert got["given"] == MEMBERS[2]
        assert sorted(got.values()) == sorted(MEMBERS), "all warm, none twice"
        owners = Counter(box.metadata.controller.uid for box in await plane.sandboxes() if box.metadata.controller)
        uids = [(await plane.get_claim(name)).metadata.uid for name in names]
        assert [owners[uid] for uid in uids] == [1, 1, 1]
        noted = (await plane.get_claim("chosen")).metadata.annotations[labels.SANDBOX_NAME]
        assert noted == got["chosen"]

    taken_over(work, _half_served, node=True)


@pytest.mark.looptime
async def test_no_service_loses_its_pod_while_the_pod_lacks_the_label() -> None:
    async with a_cluster() as api:
        other = Installation(api)
        await other.bound(await other.claim("served"), "served", service=True)
        selected = {labels.SANDBOX_NAME_HASH: name_hash("served")}
        async with controlled(api) as cluster:
            cluster.flaky.before = Faults("patch", "pods", 4, InternalError("no"))
            while not cluster.refused:
                await cluster.settle()
            assert (await cluster.there(SERVICES, "served")).spec.selector == selected
            await cluster.settle(60)
            pod, service = await cluster.pod("served"), await cluster.there(SERVICES, "served")
            assert service.spec.selector.items() <= pod.metadata.labels.items()
            assert service.spec.selector != selected


async def test_a_service_does_not_wait_for_what_is_not_tried_again() -> None:
    """What was refused stays so until somebody changes something: nobody would come back for the Service."""
    async with a_cluster() as api:
        made = await api.create(SERVICES, {"metadata": {"name": "box"}, "spec": {"clusterIP": "None"}}, "default")
        invalid = Create(PODS, {"metadata": {"name": "box"}, "spec": {"containers": []}})
        patch = merge_patch({"metadata": {"uid": str(made.metadata.uid)}, "spec": {"selector": {"a": "b"}}})
        step = Change(SERVICES, "box", patch, "", gated=True)
        outcome = await apply(api, "default", Plan((invalid, step)))
        assert len(outcome.refused) == 1
        assert outcome.errors == []
        assert (await api.get(SERVICES, "box", "default")).spec.selector == {"a": "b"}
