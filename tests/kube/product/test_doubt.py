"""Where a cache may be behind, or somebody else was faster, the server is asked before anything is concluded.

Each of these happens by chance on a cluster with two leaders or a lost answer. Here each is made to happen: a webhook holds
the controllers' write in the middle while the test acts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandpool.kube.api import Propagation
from sandpool.model.conditions import find, is_true
from sandpool.model.kinds import (
    CLAIMS,
    EVENTS,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
    raw,
)
from sandpool.model.patches import merge_patch
from sandpool.model.reasons import Type
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from support.kube.access import USER
from support.kube.stage import Stage, User
from support.kube.webhook import a_gate

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

POD = {"spec": {"containers": [{"name": "main", "image": "python:3.13", "ports": [{"containerPort": 80}]}]}}
STORAGE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}


def asked(stage: Stage, user: User, kind: Resource[Any]) -> bool:
    """Whether the controllers have read one object of this kind from the server, in this namespace."""
    return any(
        (each.verb, each.resource, each.namespace) == ("get", kind.plural, user.namespace)
        for each in stage.audit.requests(USER)
    )


@pytest.mark.parametrize("kind", [PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS], ids=lambda kind: kind.plural)
async def test_what_another_leader_made_in_the_meantime_is_kept(
    stage: Stage, user: User, tmp_path: Path, kind: Resource[Any]
) -> None:
    async with a_gate(stage, user, tmp_path, kind) as gate:
        volume = {"metadata": {"name": "home"}, "spec": STORAGE}
        await user.create(SANDBOXES, "box", podTemplate=POD, service=True, volumeClaimTemplates=[volume])
        await gate.reached.wait()
        first = await user.api.create(kind, gate.held, user.namespace)
        gate.open()

        async def ready() -> bool:
            sandbox: Sandbox = await user.get(SANDBOXES, "box")
            return is_true(sandbox.status.conditions, Type.READY)

        await user.until(ready, "the sandbox is Ready")
    (found,) = await user.all(kind)
    assert found.metadata.uid == first.metadata.uid
    assert asked(stage, user, kind)


async def test_a_policy_that_another_leader_made_in_the_meantime_is_kept(
    stage: Stage, user: User, tmp_path: Path
) -> None:
    async with a_gate(stage, user, tmp_path, NETWORK_POLICIES) as gate:
        await user.template()
        await gate.reached.wait()
        first = await user.api.create(raw(NETWORK_POLICIES), gate.held, user.namespace)
        gate.open()
        await user.pool(1)
        await user.filled(1)
    (found,) = await user.all(NETWORK_POLICIES)
    assert found.metadata.uid == first.metadata.uid
    assert asked(stage, user, NETWORK_POLICIES)


async def test_a_claim_that_somebody_wrote_to_in_the_meantime_is_still_bound_once(
    stage: Stage, user: User, tmp_path: Path
) -> None:
    await user.template()
    await user.pool(2)
    await user.filled(2)
    members = {one.metadata.name for one in await user.members()}
    async with a_gate(stage, user, tmp_path, CLAIMS, verb="UPDATE", part="status") as gate:
        await user.claim("mine")
        await gate.reached.wait()
        condition = {
            "type": "Noticed",
            "status": "True",
            "reason": "ByAnother",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await user.api.patch_status(
            CLAIMS, "mine", merge_patch({"status": {"conditions": [condition]}}), user.namespace
        )
        gate.open()
        bound = (await user.served("mine"))["mine"]
    assert bound in members
    assert asked(stage, user, CLAIMS)
    claim = await user.get(CLAIMS, "mine")
    owned = [
        one.metadata.name
        for one in await user.sandboxes()
        if one.metadata.controller is not None and one.metadata.controller.uid == claim.metadata.uid
    ]
    assert owned == [bound]
    assert find(claim.status.conditions, "Noticed") is not None  # what others say about it is theirs


async def test_a_pod_that_is_deleted_is_made_again_if_the_sandbox_is_still_there(stage: Stage, user: User) -> None:
    await user.create(SANDBOXES, "box", podTemplate=POD)

    async def ready() -> bool:
        sandbox: Sandbox = await user.get(SANDBOXES, "box")
        return is_true(sandbox.status.conditions, Type.READY)

    await user.until(ready, "the sandbox is Ready")
    first = await user.get(PODS, "box")
    await user.delete(PODS, "box")

    async def another() -> bool:
        found = await user.all(PODS)
        return bool(found) and found[0].metadata.uid != first.metadata.uid and await ready()

    await user.until(another, "it has another pod")
    assert asked(stage, user, SANDBOXES)


async def test_a_wall_that_is_torn_down_is_built_again_if_the_template_is_still_there(stage: Stage, user: User) -> None:
    await user.template()

    async def walled() -> bool:
        return len(await user.all(NETWORK_POLICIES)) == 1

    await user.until(walled, "the template has a policy")
    (policy,) = await user.all(NETWORK_POLICIES)
    await user.delete(NETWORK_POLICIES, policy.metadata.name)
    await user.until(walled, "it has another one")
    assert asked(stage, user, TEMPLATES)


async def test_members_that_nobody_owns_are_taken_in_if_the_pool_is_still_there(stage: Stage, user: User) -> None:
    """A pool is deleted without its members, and made anew."""
    await user.template()
    await user.pool(3)
    await user.filled(3)
    before = {one.metadata.uid for one in await user.members()}
    await user.api.delete(POOLS, "python", user.namespace, propagation=Propagation.ORPHAN)

    async def free() -> bool:
        left = await user.sandboxes()
        return not await user.all(POOLS) and not any(one.metadata.owner_references for one in left)

    await user.until(free, "the pool is gone and its members are nobody's")
    assert {one.metadata.uid for one in await user.sandboxes()} == before
    await user.pool(3)
    await user.filled(3)
    assert {one.metadata.uid for one in await user.members()} == before
    assert asked(stage, user, POOLS)


async def test_what_happens_again_is_told_by_a_count(stage: Stage, user: User) -> None:
    await user.create(SANDBOXES, "box", podTemplate=POD)
    for mode in ("Suspended", "Running", "Suspended"):
        await user.edit(SANDBOXES, "box", operatingMode=mode)

        async def as_asked(mode: str = mode) -> bool:
            sandbox: Sandbox = await user.get(SANDBOXES, "box")
            wanted = Type.SUSPENDED if mode == "Suspended" else Type.READY
            return is_true(sandbox.status.conditions, wanted)

        await user.until(as_asked, f"the sandbox is {mode}")

    async def counted() -> bool:
        told = [one.body for one in await user.all(raw(EVENTS))]
        return [one["count"] for one in told if one["reason"] == "SandboxSuspended"] == [2]

    await user.until(counted, "one Event tells of both suspensions")
