"""Scenarios of the upstream project's end-to-end suites that are about Sandboxes alone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sandpool.kube.errors import Invalid
from sandpool.model import times
from sandpool.model.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, SANDBOXES, SERVICES
from sandpool.model.labels import sandbox_selector
from sandpool.model.patches import merge_patch
from support.kube.stage import User
from support.upstream.parts import (
    ENDING,
    ENDS,
    IS_SUSPENDED,
    NOT_SUSPENDED,
    PAUSE,
    READY,
    SCHEDULED,
    SUSPENDED,
    Body,
    Scenario,
    a_sandbox,
    absent,
    became,
    body_of,
    compared,
    condition,
    expected,
    hold,
    is_ready,
    says,
    second_after,
    since,
    vanished,
)

NAME = "my-sandbox"


async def running(user: User, generation: int = 1) -> Body:
    wanted = expected(NAME, user.namespace, generation, NOT_SUSPENDED, SCHEDULED, READY)
    return await became(user, NAME, wanted)


async def steer(user: User, mode: str) -> None:
    await user.edit(SANDBOXES, NAME, operatingMode=mode)


async def a_simple_sandbox(user: User) -> None:
    made = await a_sandbox(user)
    await running(user)
    owner = {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "name": NAME,
        "uid": made["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod, service = await body_of(user, PODS, NAME), await body_of(user, SERVICES, NAME)
    assert pod["metadata"]["annotations"]["test-anno-key"] == "val-1"
    assert pod["metadata"]["labels"]["test-label-key"] == "val-2"
    assert pod["metadata"]["ownerReferences"] == service["metadata"]["ownerReferences"] == [owner]


async def suspended_and_resumed_twice(user: User) -> None:
    await a_sandbox(user, operatingMode="Running")
    last = since(await running(user), "Suspended")
    for generation in (2, 4):
        await second_after(last)
        await steer(user, "Suspended")
        stopped = await became(user, NAME, expected(NAME, user.namespace, generation, SUSPENDED, IS_SUSPENDED))
        assert since(stopped, "Suspended") > last
        last = since(stopped, "Suspended")
        assert await absent(user, PODS, NAME)
        assert "deletionTimestamp" not in (await body_of(user, SERVICES, NAME))["metadata"]
        await second_after(last)
        await steer(user, "Running")
        resumed = await running(user, generation + 1)
        assert since(resumed, "Suspended") > last
        last = since(resumed, "Suspended")
        await body_of(user, PODS, NAME)
        assert "deletionTimestamp" not in (await body_of(user, SERVICES, NAME))["metadata"]


async def a_suspension_waits_for_a_pod_that_is_held(user: User) -> None:
    await a_sandbox(user, operatingMode="Running")
    first = since(await running(user), "Suspended")
    await hold(user, PODS, NAME)
    try:
        await second_after(first)
        await steer(user, "Suspended")
        terminating = ("Suspended", "False", "PodTerminating", "Pod is terminating. Sandbox is suspending")
        suspending = ("Ready", "False", "SandboxSuspended", "Sandbox is suspending")
        wanted = expected(NAME, user.namespace, 2, terminating, SCHEDULED, suspending)
        assert since(await became(user, NAME, wanted), "Suspended") == first
        assert "deletionTimestamp" in (await body_of(user, PODS, NAME))["metadata"]
    finally:
        await hold(user, PODS, NAME, held=False)
    stopped = await became(user, NAME, expected(NAME, user.namespace, 2, SUSPENDED, IS_SUSPENDED))
    assert since(stopped, "Suspended") > first
    await vanished(user, (PODS, NAME))


async def a_deleted_pod_is_no_suspension(user: User) -> None:
    await a_sandbox(user, operatingMode="Running")
    first = since(await running(user), "Suspended")
    old = (await body_of(user, PODS, NAME))["metadata"]["uid"]
    await user.delete(PODS, NAME)

    async def replaced() -> bool:
        return bool((await body_of(user, PODS, NAME))["metadata"]["uid"] != old)

    await user.until(replaced, "the pod is made again")
    assert since(await running(user), "Suspended") == first


async def a_suspension_leaves_the_pod_of_another_alone(user: User) -> None:
    name = "my-sandbox-conflict"
    await user.api.create(PODS, {"metadata": {"name": name}, "spec": PAUSE}, user.namespace)
    await a_sandbox(user, name, operatingMode="Suspended", metadata={})
    not_owned = ("Suspended", "False", "PodNotOwned", "Refused to delete pod because it is not owned by this sandbox")
    suspending = ("Ready", "False", "SandboxSuspended", "Sandbox is suspending")
    await became(user, name, expected(name, user.namespace, 1, not_owned, suspending))
    assert "deletionTimestamp" not in (await body_of(user, PODS, name))["metadata"]


async def an_end_at_a_time(user: User) -> None:
    await a_sandbox(user)
    await running(user)
    await user.edit(SANDBOXES, NAME, shutdownTime=times.seconds(datetime.now(UTC) + timedelta(hours=1)))
    await became(user, NAME, expected(NAME, user.namespace, 2, NOT_SUSPENDED, SCHEDULED, READY))
    end = times.seconds(datetime.now(UTC) + timedelta(seconds=2))
    await user.edit(SANDBOXES, NAME, shutdownTime=end)
    await says(user, SANDBOXES, NAME, "Ready", "SandboxExpired")
    assert datetime.now(UTC) >= times.parse(end)
    over = compared(await body_of(user, SANDBOXES, NAME))
    expired = ("Ready", "False", "SandboxExpired", "Sandbox has expired", 3)
    # Whether Suspended was published once more between the edit and the end depends on how busy the machine is.
    assert over in [{"conditions": {(*NOT_SUSPENDED, seen), expired}} for seen in (2, 3)]
    await vanished(user, (PODS, NAME), (SERVICES, NAME))


async def a_retained_end_keeps_how_the_work_ended(user: User) -> None:
    name = "retain-finished-sandbox"
    await a_sandbox(user, name, ENDS, shutdownPolicy="Retain", service=None, metadata=ENDING)
    await says(user, SANDBOXES, name, "Finished", "PodSucceeded")
    await user.edit(SANDBOXES, name, shutdownTime=times.seconds(datetime.now(UTC) + timedelta(seconds=1)))
    await says(user, SANDBOXES, name, "Ready", "SandboxExpired")
    found = await body_of(user, SANDBOXES, name)
    assert condition(found, "Finished")["reason"] == "PodSucceeded"
    assert not {"service", "serviceFQDN"} & compared(found).keys()
    await vanished(user, (PODS, name), (SERVICES, name))


VOLUME = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


async def a_volume_for_each_template(user: User) -> None:
    name = "vct-sandbox"
    mounting = {"containers": [{**PAUSE["containers"][0], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}
    made = await a_sandbox(user, name, mounting, volumeClaimTemplates=[VOLUME])
    await became(user, name, expected(name, user.namespace, 1, NOT_SUSPENDED, SCHEDULED, READY))
    volume = await body_of(user, PERSISTENT_VOLUME_CLAIMS, f"data-{name}")
    [owner] = volume["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Sandbox", name, made["metadata"]["uid"])
    assert owner["controller"] is True
    key, _, value = sandbox_selector(name).partition("=")
    assert volume["metadata"]["labels"][key] == value
    found = {one["name"]: one for one in (await body_of(user, PODS, name))["spec"]["volumes"]}
    assert found["data"]["persistentVolumeClaim"]["claimName"] == f"data-{name}"


async def templates_of_volumes_stay_as_they_are(user: User) -> None:
    cases: dict[str, tuple[list[Body] | None, list[Body] | None]] = {
        "changed": ([VOLUME], [VOLUME, VOLUME]),
        "added": (None, [VOLUME]),
        "removed": ([VOLUME], None),
    }
    for name, (before, after) in cases.items():
        more: dict[str, Any] = {} if before is None else {"volumeClaimTemplates": before}
        await a_sandbox(user, name, **more)
        change = merge_patch({"spec": {"volumeClaimTemplates": after}})
        with pytest.raises(Invalid, match="volumeClaimTemplates is immutable"):
            await user.api.patch(SANDBOXES, name, change, user.namespace)


async def twenty_at_once(user: User) -> None:
    names = [f"sandbox-{number}" for number in range(20)]
    await asyncio.gather(*(a_sandbox(user, name) for name in names))
    await asyncio.gather(*(is_ready(user, SANDBOXES, name) for name in names))


SANDBOX_SCENARIOS: dict[str, Scenario] = {
    "TestSimpleSandbox": a_simple_sandbox,
    "TestSandboxSuspendResumeCycleWithOperatingMode": suspended_and_resumed_twice,
    "TestSandboxSuspensionWithTerminatingPod": a_suspension_waits_for_a_pod_that_is_held,
    "TestSandboxPodDeletionKeepsSuspendedFalse": a_deleted_pod_is_no_suspension,
    "TestSandboxSuspensionBlockedByUnownedPodConflict": a_suspension_leaves_the_pod_of_another_alone,
    "TestSandboxShutdownTime": an_end_at_a_time,
    "TestSandboxRetainedExpiryPreservesFinishedCondition": a_retained_end_keeps_how_the_work_ended,
    "TestSandboxVolumeClaimTemplates": a_volume_for_each_template,
    "TestSandboxVolumeClaimTemplatesImmutable": templates_of_volumes_stay_as_they_are,
    "TestParallelSandboxes": twenty_at_once,
}
