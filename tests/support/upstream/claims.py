"""Scenarios of the upstream project's end-to-end suites that are about claims: their end, their annotations, their volumes.

When a claim ends is said once all is ready for it, so that a busy machine changes nothing; upstream's tests say it from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sandpool.kube.api import Event
from sandpool.model import times
from sandpool.model.kinds import CLAIMS, PERSISTENT_VOLUME_CLAIMS, PODS, SANDBOXES, SERVICES, raw
from sandpool.model.labels import CONTROLLER_FIRST_OBSERVED_AT, LAUNCH_TYPE, SANDBOX_NAME
from sandpool.model.metadata import RawObject
from support.kube.stage import PATIENCE, User
from support.upstream.parts import (
    ENDS,
    Body,
    Scenario,
    a_template,
    body_of,
    condition,
    hold,
    is_ready,
    leaving,
    says,
    vanished,
)

CLAIM = "one-claim"
QUIET = 1.0
"""Seconds during which nothing may happen. Upstream's tests take five."""


async def claimed(user: User, pod: Body | None = None, **lifecycle: Any) -> None:
    """From a pool that keeps none ready: the claim's sandbox, and its pod, have the claim's name."""
    more: dict[str, Any] = {} if pod is None else {"pod": pod}
    await a_template(user, **more, networkPolicyManagement="Unmanaged")
    await user.pool(0, "pool", "test-template")
    await user.claim(CLAIM, "pool", **({"lifecycle": lifecycle} if lifecycle else {}))


async def ends(user: User, **lifecycle: Any) -> None:
    await user.edit(CLAIMS, CLAIM, lifecycle=lifecycle)


def moment(seconds: float) -> str:
    return times.seconds(datetime.now(UTC) + timedelta(seconds=seconds))


async def all_gone(user: User) -> None:
    await vanished(user, (PODS, CLAIM), (SERVICES, CLAIM), (SANDBOXES, CLAIM), (CLAIMS, CLAIM))


async def stays(user: User) -> None:
    until = datetime.now(UTC) + timedelta(seconds=QUIET)
    while datetime.now(UTC) < until:
        assert "deletionTimestamp" not in (await body_of(user, CLAIMS, CLAIM))["metadata"]
        await asyncio.sleep(0.1)


async def deleted_in_the_foreground(user: User) -> None:
    """A finalizer keeps the pod for as long as the test looks; upstream's pod takes three seconds to stop."""
    await claimed(user, shutdownPolicy="DeleteForeground")
    await is_ready(user, CLAIMS, CLAIM)
    await is_ready(user, SANDBOXES, CLAIM)
    await is_ready(user, PODS, CLAIM)
    await hold(user, PODS, CLAIM)
    try:
        await ends(user, shutdownTime=moment(1))
        await leaving(user, CLAIMS, CLAIM)
        await leaving(user, PODS, CLAIM)
        assert "deletionTimestamp" in (await body_of(user, CLAIMS, CLAIM))["metadata"]
    finally:
        await hold(user, PODS, CLAIM, held=False)
    await all_gone(user)


async def deleted_in_the_foreground_after_its_work(user: User) -> None:
    await claimed(user, ENDS, shutdownPolicy="DeleteForeground")
    await says(user, CLAIMS, CLAIM, "Finished", "PodSucceeded")
    await hold(user, PODS, CLAIM)
    try:
        await ends(user, ttlSecondsAfterFinished=1)
        for kind in (CLAIMS, PODS, SANDBOXES):
            await leaving(user, kind, CLAIM)
    finally:
        await hold(user, PODS, CLAIM, held=False)
    await all_gone(user)


async def deleted_after_its_work(user: User) -> None:
    await claimed(user, ENDS, shutdownPolicy="Delete")

    async def succeeded() -> bool:
        return bool((await body_of(user, PODS, CLAIM))["status"]["phase"] == "Succeeded")

    await user.until(succeeded, "the pod has succeeded")
    await ends(user, ttlSecondsAfterFinished=1)
    await all_gone(user)


async def the_earlier_of_two_ends(user: User) -> None:
    await claimed(user, ENDS, shutdownPolicy="Delete", ttlSecondsAfterFinished=120)
    await says(user, CLAIMS, CLAIM, "Finished", "PodSucceeded")
    await stays(user)
    end = moment(2)
    await ends(user, shutdownTime=end)
    await vanished(user, (CLAIMS, CLAIM))
    assert datetime.now(UTC) >= times.parse(end)
    await all_gone(user)


async def kept_after_its_work_without_a_time(user: User) -> None:
    await claimed(user, ENDS, shutdownPolicy="Delete")
    await says(user, CLAIMS, CLAIM, "Finished", "PodSucceeded")
    await stays(user)
    await body_of(user, SANDBOXES, CLAIM)


async def retained_at_once_and_says_how_it_ended(user: User) -> None:
    await claimed(user, ENDS, shutdownPolicy="Retain")
    await user.until(lambda: body_of(user, SANDBOXES, CLAIM), "the sandbox is there")
    await hold(user, SANDBOXES, CLAIM)
    try:
        await ends(user, ttlSecondsAfterFinished=0)
        await says(user, CLAIMS, CLAIM, "Ready", "ClaimExpired")
        await says(user, CLAIMS, CLAIM, "Finished", "PodSucceeded")
        await leaving(user, SANDBOXES, CLAIM)
    finally:
        await hold(user, SANDBOXES, CLAIM, held=False)
    await vanished(user, (PODS, CLAIM), (SERVICES, CLAIM), (SANDBOXES, CLAIM))
    found = await body_of(user, CLAIMS, CLAIM)
    assert condition(found, "Ready")["reason"] == "ClaimExpired"
    assert condition(found, "Finished")["reason"] == "PodSucceeded"
    assert "deletionTimestamp" not in found["metadata"]


async def seen_by_a_controller_says_when(user: User) -> None:
    """Whoever looks when the claim is Ready finds the annotations: the first event that shows it as Ready has them."""
    await a_template(user)
    await user.pool(1, "pool", "test-template")
    began = datetime.now(UTC)
    async with user.api.watch(raw(CLAIMS), user.namespace, initial=True) as events:
        await user.claim(CLAIM, "pool")
        found = await _first_ready(events)
    notes = found["metadata"]["annotations"]
    assert times.parse(notes[CONTROLLER_FIRST_OBSERVED_AT]) >= began
    assert "." in notes[CONTROLLER_FIRST_OBSERVED_AT]  # to less than a second
    assert notes[SANDBOX_NAME] == found["status"]["sandbox"]["name"]


async def _first_ready(events: AsyncIterator[Event[RawObject]]) -> Body:
    async with asyncio.timeout(PATIENCE):
        async for event in events:
            if event.object is not None and condition(event.object.body, "Ready").get("status") == "True":
                return event.object.body
    raise AssertionError("the watch ended before the claim was Ready")


def volume(name: str, size: str) -> Body:
    metadata = {"metadata": {"name": name}} if name else {}
    return {**metadata, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}}


WORKSPACE, CUSTOM = volume("workspace", "1Gi"), volume("custom-data", "2Gi")
REFUSED: dict[str, tuple[str | None, list[Body], list[Body]]] = {
    "disallowed": ("Disallowed", [], [CUSTOM]),
    "overridden": ("Allowed", [WORKSPACE], [volume("workspace", "2Gi")]),
    "unsaid": (None, [], [CUSTOM]),
    "nameless": ("Allowed", [], [volume("", "2Gi")]),
    "twice": ("Allowed", [], [CUSTOM, CUSTOM]),
}
COLD: dict[str, tuple[str, list[Body], list[Body], dict[str, str]]] = {
    "allowed": ("Allowed", [WORKSPACE], [CUSTOM], {"workspace": "1Gi", "custom-data": "2Gi"}),
    "added": ("Overrides", [WORKSPACE], [CUSTOM], {"workspace": "1Gi", "custom-data": "2Gi"}),
    "overrides": ("Overrides", [WORKSPACE], [volume("workspace", "3Gi")], {"workspace": "3Gi"}),
}


async def volumes_of_claims(user: User) -> None:
    await asyncio.gather(
        *(_refused(user, name, *case) for name, case in REFUSED.items()),
        *(_started_cold(user, name, *case) for name, case in COLD.items()),
        _warm_with_the_volumes_of_its_template(user),
    )


async def _pool(user: User, name: str, policy: str | None, volumes: list[Body]) -> None:
    more = {} if policy is None else {"volumeClaimTemplatesPolicy": policy}
    await a_template(user, name, volumeClaimTemplates=volumes, networkPolicyManagement="Unmanaged", **more)  # type: ignore[arg-type]
    await user.pool(1, name, name)


async def _refused(user: User, name: str, policy: str | None, has: list[Body], wants: list[Body]) -> None:
    await _pool(user, name, policy, has)
    await user.claim(name, name, volumeClaimTemplates=wants)
    await says(user, CLAIMS, name, "Ready", "VolumeClaimTemplatesError")


async def _started_cold(
    user: User, name: str, policy: str, has: list[Body], wants: list[Body], sizes: dict[str, str]
) -> None:
    await _pool(user, name, policy, has)
    await user.claim(name, name, volumeClaimTemplates=wants)
    await is_ready(user, CLAIMS, name)
    box = await body_of(user, SANDBOXES, name)
    assert box["metadata"]["labels"][LAUNCH_TYPE] == "cold"
    assert [one["metadata"]["name"] for one in box["spec"]["volumeClaimTemplates"]] == list(sizes)
    for each, size in sizes.items():
        found = await body_of(user, PERSISTENT_VOLUME_CLAIMS, f"{each}-{name}")
        assert found["spec"]["resources"]["requests"]["storage"] == size


async def _warm_with_the_volumes_of_its_template(user: User) -> None:
    await _pool(user, "warm", "Disallowed", [WORKSPACE])
    await user.filled(1, "warm")
    await user.claim("warm", "warm")
    found = await is_ready(user, CLAIMS, "warm")
    box = await body_of(user, SANDBOXES, found["metadata"]["annotations"][SANDBOX_NAME])
    assert box["metadata"]["labels"][LAUNCH_TYPE] == "warm"
    assert [one["metadata"]["name"] for one in box["spec"]["volumeClaimTemplates"]] == ["workspace"]


CLAIM_SCENARIOS: dict[str, Scenario] = {
    "TestSandboxClaimDeleteForeground": deleted_in_the_foreground,
    "TestSandboxClaimTTLDeleteForegroundAfterFinished": deleted_in_the_foreground_after_its_work,
    "TestSandboxClaimTTLAfterFinished": deleted_after_its_work,
    "TestSandboxClaimExpiryUsesEarlierOfShutdownTimeAndTTL": the_earlier_of_two_ends,
    "TestSandboxClaimFinishedWithoutTTLIsRetained": kept_after_its_work_without_a_time,
    "TestSandboxClaimTTLZeroRetainPreservesFinishedConditionDuringCleanup": retained_at_once_and_says_how_it_ended,
    "TestSandboxClaimObservabilityAnnotation": seen_by_a_controller_says_when,
    "TestCreateSandboxClaimVolumeClaimTemplates": volumes_of_claims,
}
