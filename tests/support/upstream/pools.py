"""Scenarios of the upstream project's end-to-end suites that are about warm pools: claims at once, rollouts, runtimes, the node."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from sandpool.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from sandpool.model.kinds import CLAIMS, NODES, PODS, POOLS, RUNTIME_CLASSES, SANDBOXES, TEMPLATES, raw
from sandpool.model.labels import TEMPLATE_REF
from sandpool.model.patches import json_patch
from sandpool.model.quantities import parse
from support.kube.stage import PATIENCE, User
from support.upstream.parts import (
    PAUSE,
    Body,
    Scenario,
    a_sandbox,
    a_template,
    absent,
    body_of,
    condition,
    controlled_by,
    is_ready,
    served_by,
)

POOL = "test-warmpool"
TEMPLATE = "test-template"
UPDATED = {"name": "TEST_ENV", "value": "updated"}
GATE = "example.com/started"
GATED: Body = {**PAUSE, "readinessGates": [{"conditionType": GATE}]}
"""Pods that become Ready when the scenario says so. Those of a hollow node take 10 to 100 ms; upstream's tests ask every 100 ms or every
second for what holds while a pod starts, and count on the seconds that containers and machines of their nodes take."""


async def a_pool(
    user: User, size: int = 1, strategy: str = "", name: str = POOL, template: str = TEMPLATE, pod: Body = PAUSE
) -> None:
    await a_template(user, template, pod)
    await user.pool(size, name, template, **({"updateStrategy": {"type": strategy}} if strategy else {}))
    await user.filled(size, name)


async def member(user: User, pool: str = POOL) -> str:
    [one] = await user.members(pool)
    return str(one.metadata.name)


async def update(user: User, template: str = TEMPLATE) -> None:
    container = {**PAUSE["containers"][0], "env": [UPDATED]}
    await user.edit(TEMPLATES, template, podTemplate={"spec": {"containers": [container]}})


async def claims_at_once(user: User, size: int, claims: int) -> None:
    await a_pool(user, size)
    names = [f"claim-{number}" for number in range(claims)]
    await asyncio.gather(*(user.claim(name, POOL) for name in names))
    served = await asyncio.gather(*(served_by(user, name) for name in names))
    assert len(set(served)) == claims


async def claims_at_once_and_enough(user: User) -> None:
    await claims_at_once(user, 25, 20)


async def claims_at_once_and_too_few(user: User) -> None:
    await claims_at_once(user, 5, 20)


async def a_pool_that_is_claimed_empty(user: User) -> None:
    await claims_at_once(user, 10, 10)


async def open_gates(user: User) -> None:
    """Lets every pod that waits at the gate become Ready."""
    for pod in [one.body for one in (await user.api.list(raw(PODS), user.namespace)).items]:
        if (
            condition(pod, "ContainersReady")
            and not condition(pod, GATE)
            and "deletionTimestamp" not in pod["metadata"]
        ):
            opened = {"type": GATE, "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
            change = json_patch([{"op": "add", "path": "/status/conditions/-", "value": opened}])
            with contextlib.suppress(NotFound, Conflict):
                await user.api.patch_status(PODS, pod["metadata"]["name"], change, user.namespace)


async def filled_slowly(user: User, size: int, pool: str = POOL) -> None:
    async def full() -> bool:
        await open_gates(user)
        status = (await user.get(POOLS, pool)).status
        return bool(status.ready_replicas == size)

    await user.until(full, f"{size} members are ready once they may be")
    await user.filled(size, pool)


async def a_deleted_pod_of_a_claimed_sandbox(user: User) -> None:
    """Asks every 100 ms, as upstream's test does; the new pod takes its time, as on upstream's nodes."""
    await a_template(user, TEMPLATE, GATED)
    await user.pool(1, POOL, TEMPLATE)
    await filled_slowly(user, 1)
    await user.claim("test-claim", POOL)
    name = await served_by(user, "test-claim")
    claim, box = await body_of(user, CLAIMS, "test-claim"), await body_of(user, SANDBOXES, name)
    assert controlled_by(box, "SandboxClaim", "test-claim", claim["metadata"]["uid"])
    pod = await body_of(user, PODS, name)
    assert controlled_by(pod, "Sandbox", name, box["metadata"]["uid"])
    assert "agents.x-k8s.io/sandbox-name-hash" in pod["metadata"]["labels"]
    await user.delete(PODS, name)

    async def told() -> bool:
        ready = condition(await body_of(user, SANDBOXES, name), "Ready")
        return bool(ready) and ready["status"] != "True"

    async def again() -> bool:
        await open_gates(user)
        return not await told()

    await user.until(told, "the sandbox says that it is not ready")  # every 100 ms
    await user.until(again, "the sandbox has a new pod")


async def _updated(user: User, old: str, pool: str = POOL) -> None:
    async def has_it() -> bool:
        for one in await user.members(pool):
            body = await body_of(user, SANDBOXES, one.metadata.name)
            env = body["spec"]["podTemplate"]["spec"]["containers"][0].get("env") or ()
            if one.metadata.name != old and UPDATED in env and "deletionTimestamp" not in body["metadata"]:
                return True
        return False

    await user.until(has_it, "a new member has what changed")
    await user.filled(1, pool)


async def rollouts(user: User) -> None:
    """By default, and with OnReplenish, members stay until they are used; with Recreate they are replaced."""
    for number, strategy in enumerate(("", "OnReplenish")):
        pool, template = f"kept-{number}", f"kept-{number}"
        await a_pool(user, strategy=strategy, name=pool, template=template)
        old = await member(user, pool)
        await update(user, template)
        await user.filled(1, pool)
        assert "deletionTimestamp" not in (await body_of(user, SANDBOXES, old))["metadata"]
        await user.delete(SANDBOXES, old)
        await user.until(lambda old=old: absent(user, SANDBOXES, old), "the old member is gone")  # type: ignore[misc]
        await _updated(user, old, pool)
    await a_pool(user, strategy="Recreate")
    old = await member(user)
    await update(user)
    await _updated(user, old)
    assert await absent(user, SANDBOXES, old)


async def a_rollout_of_one_template_alone(user: User) -> None:
    for letter in "ab":
        await a_pool(user, strategy="Recreate", name=f"warmpool-{letter}", template=f"template-{letter}")
    old, other = await member(user, "warmpool-a"), await member(user, "warmpool-b")
    await update(user, "template-a")
    await _updated(user, old, "warmpool-a")
    assert "deletionTimestamp" not in (await body_of(user, SANDBOXES, other))["metadata"]


async def another_template_of_the_same_content(user: User) -> None:
    await a_template(user, "template-b")
    await a_pool(user, strategy="Recreate", template="template-a")
    old = await member(user)
    await user.edit(POOLS, POOL, sandboxTemplateRef={"name": "template-b"})
    await user.until(lambda: absent(user, SANDBOXES, old), "the old member is gone")
    await user.filled(1, POOL)
    new = await body_of(user, SANDBOXES, await member(user))
    assert new["metadata"]["annotations"][TEMPLATE_REF] == "template-b"


async def labels_are_no_reason_for_a_rollout(user: User) -> None:
    await a_pool(user, strategy="Recreate")
    old = await member(user)
    labels = {"metadata": {"labels": {"new-label": "new-value"}}}
    await user.edit(TEMPLATES, TEMPLATE, podTemplate=labels)
    await user.pool(1, "later", TEMPLATE)  # whoever fills this one has seen the template as it is now
    await user.filled(1, "later")
    await user.filled(1, POOL)
    assert await member(user) == old


async def a_class_of_runtime(user: User) -> None:
    """A sandbox and a pool whose pods name a RuntimeClass. The claimed member is seen to be missing before its successor is ready."""
    name = f"class-{user.namespace}"[:60].rstrip("-")
    with contextlib.suppress(AlreadyExists):
        await user.api.create(RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": await _handler(user)})
    try:
        await a_sandbox(user, "cold", {**PAUSE, "runtimeClassName": name})
        await is_ready(user, SANDBOXES, "cold")
        await a_template(user, TEMPLATE, {**GATED, "runtimeClassName": name})
        await user.pool(2, POOL, TEMPLATE)
        await filled_slowly(user, 2)
        for one in await user.members(POOL):
            box, its = await body_of(user, SANDBOXES, one.metadata.name), await is_ready(user, PODS, one.metadata.name)
            assert box["spec"]["podTemplate"]["spec"]["runtimeClassName"] == its["spec"]["runtimeClassName"] == name
        await user.claim("runtime-claim-1", POOL)
        await served_by(user, "runtime-claim-1")
        deadline = time.monotonic() + PATIENCE
        while (await user.get(POOLS, POOL)).status.ready_replicas >= 2:
            assert time.monotonic() < deadline, "the pool never said that a member was consumed"
            await asyncio.sleep(1.0)  # as often as upstream's test asks
        await filled_slowly(user, 2)
        await user.claim("runtime-claim-2", POOL)
        await served_by(user, "runtime-claim-2")
    finally:
        await user.api.delete(RUNTIME_CLASSES, name)


async def _handler(user: User) -> str:
    """One that the node says it has; any, where it says nothing of them."""
    for node in (await user.api.list(raw(NODES))).items:
        for one in (node.body.get("status") or {}).get("runtimeHandlers") or ():
            return str(one["name"])
    return "any"


async def a_class_that_nobody_made(user: User) -> None:
    pod: Body = {**PAUSE, "runtimeClassName": "no-such-class"}
    with pytest.raises(Forbidden, match='RuntimeClass "no-such-class" not found'):
        await user.api.create(PODS, {"metadata": {"name": "refused"}, "spec": pod}, user.namespace)


async def what_the_node_has(user: User) -> None:
    """Those who count on a cluster read plain digits, at least of pods and processors."""
    nodes = [node.body for node in (await user.api.list(raw(NODES))).items]
    assert nodes
    for node in nodes:
        for part in ("capacity", "allocatable"):
            found: dict[str, Any] = node["status"][part]
            assert int(found["pods"]) > 0
            assert int(found["cpu"]) > 0
            assert parse(found["memory"]).nanos > 0


POOL_SCENARIOS: dict[str, Scenario] = {
    "TestParallelSandboxClaimsWithSufficientWarmPool": claims_at_once_and_enough,
    "TestParallelSandboxClaimsWithInsufficientWarmPool": claims_at_once_and_too_few,
    "TestWarmPoolParallelClaim": a_pool_that_is_claimed_empty,
    "TestWarmPoolSandboxWatcher": a_deleted_pod_of_a_claimed_sandbox,
    "TestWarmPoolRollout": rollouts,
    "TestWarmPoolRolloutMultiTemplateIsolation": a_rollout_of_one_template_alone,
    "TestWarmPoolRolloutSwitchTemplate": another_template_of_the_same_content,
    "TestWarmPoolRolloutMetadataUpdate": labels_are_no_reason_for_a_rollout,
    "TestRuntimeClassLifecycle": a_class_of_runtime,
    "RuntimeClass that is missing": a_class_that_nobody_made,
    "ClusterInfo": what_the_node_has,
}
