"""Whole lives: all controllers, the collector and a hollow node together, in virtual time, seen as a user sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from sandpool.kube.errors import NotFound
from sandpool.model import labels
from sandpool.model.conditions import is_true
from sandpool.model.kinds import (
    CLAIMS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    RUNTIME_CLASSES,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
)
from sandpool.model.metadata import Object
from sandpool.model.patches import merge_patch
from sandpool.model.reasons import Type
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.model.times import seconds
from sandpool.node.runtimes.fake import EXIT_AFTER
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ControlPlane, a_control_plane

HELD = {"metadata": {"finalizers": ["example.com/held"]}}
FREED = {"metadata": {"finalizers": None}}
SHORT = {EXIT_AFTER: "5"}


def virtually(work: Callable[[ControlPlane], Awaitable[None]]) -> None:
    async def main() -> None:
        async with a_control_plane() as plane:
            await work(plane)

    run_virtually(main())


def pod_template(image: str = "python", annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": image}], "restartPolicy": "Never", **more}
    return {"metadata": {"annotations": annotations or {}}, "spec": spec}


async def there(plane: ControlPlane, *objects: tuple[Resource[Any], str]) -> list[str]:
    """Which of these exist, by kind."""
    found: list[str] = []
    for resource, name in objects:
        try:
            await plane.user.get(resource, name, "default")
        except NotFound:
            continue
        found.append(resource.kind)
    return found


async def gone(plane: ControlPlane, *objects: tuple[Resource[Any], str]) -> None:
    async def none_left() -> bool:
        return not await there(plane, *objects)

    await plane.until(none_left)


def builtins(obj: Object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(obj))
    return found


async def patch(plane: ControlPlane, resource: Resource[Any], name: str, body: dict[str, Any]) -> None:
    await plane.user.patch(resource, name, merge_patch(body), "default")


async def leaving(plane: ControlPlane, resource: Resource[Any], name: str) -> bool:
    obj: Object = await plane.user.get(resource, name, "default")
    return obj.metadata.leaving


def ends(plane: ControlPlane, later: float, policy: str) -> dict[str, str]:
    return {"shutdownTime": seconds(plane.clock.now() + timedelta(seconds=later)), "shutdownPolicy": policy}


def cold_parts(name: str) -> tuple[tuple[Resource[Any], str], ...]:
    """Everything that a cold claim with a Service has, itself included."""
    return (CLAIMS, name), (SANDBOXES, name), (PODS, name), (SERVICES, name)


ALL = ["SandboxClaim", "Sandbox", "Pod", "Service"]


# The end of a claim


def test_foreground_waits_for_a_pod_that_goes_slowly() -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.template(podTemplate=pod_template(), service=True)
        await plane.pool(0)
        await plane.claim("c", lifecycle=ends(plane, 30, "DeleteForeground"))
        await plane.served(["c"])
        await patch(plane, PODS, "c", HELD)
        await asyncio.sleep(60)
        assert await leaving(plane, CLAIMS, "c"), "it waits for what it owns"
        assert await leaving(plane, PODS, "c")
        await asyncio.sleep(600)
        assert "SandboxClaim" in await there(plane, *cold_parts("c"))
        await patch(plane, PODS, "c", FREED)
        await gone(plane, *cold_parts("c"))

    virtually(work)


@pytest.mark.parametrize("policy", ["Delete", "DeleteForeground"])
def test_after_the_work_everything_goes(policy: str) -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.template(podTemplate=pod_template(annotations=SHORT), service=True)
        await plane.pool(0)
        await plane.claim("c", lifecycle={"ttlSecondsAfterFinished": 20, "shutdownPolicy": policy})
        await plane.served(["c"])
        if policy == "DeleteForeground":
            await patch(plane, PODS, "c", HELD)
        await asyncio.sleep(15)
        assert await there(plane, *cold_parts("c")) == ALL, "finished, and its time has not come"
        assert is_true((await plane.get_claim("c")).status.conditions, Type.FINISHED)
        if policy == "DeleteForeground":
            await asyncio.sleep(60)
            assert await leaving(plane, CLAIMS, "c")
            assert await leaving(plane, SANDBOXES, "c")
            await patch(plane, PODS, "c", FREED)
        await gone(plane, *cold_parts("c"))

    virtually(work)


def test_a_retained_claim_tells_how_it_ended_while_its_sandbox_is_held() -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.template(podTemplate=pod_template(annotations=SHORT))
        await plane.pool(0)
        await plane.claim("c", lifecycle={"ttlSecondsAfterFinished": 0, "shutdownPolicy": "Retain"})
        await plane.served(["c"])
        await patch(plane, SANDBOXES, "c", HELD)

        async def told() -> bool:
            conditions = {one.type: one for one in (await plane.get_claim("c")).status.conditions}
            return conditions["Ready"].reason == "ClaimExpired" and conditions["Finished"].reason == "PodSucceeded"

        await plane.until(told)
        await plane.until(lambda: leaving(plane, SANDBOXES, "c"))
        assert await told()
        await patch(plane, SANDBOXES, "c", FREED)
        await gone(plane, (SANDBOXES, "c"), (PODS, "c"))
        await asyncio.sleep(5)
        assert await told()
        assert (await plane.get_claim("c")).status.sandbox is None

    virtually(work)


# Rollouts


def image(sandbox: Sandbox) -> str:
    found: str = msgspec.json.decode(sandbox.spec.pod_template.spec)["containers"][0]["image"]
    return found


async def images(plane: ControlPlane, pool: str = "python") -> list[str]:
    """Of the members of a pool that stay."""
    every = [one for one in await plane.sandboxes() if not one.metadata.leaving]
    return sorted(image(one) for one in every if one.metadata.name.startswith(f"{pool}-"))


@pytest.mark.parametrize("strategy", [{}, {"updateStrategy": {"type": "OnReplenish"}}], ids=["unset", "OnReplenish"])
def test_members_stay_until_they_are_replaced(strategy: dict[str, Any]) -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.template()
        await plane.pool(2, **strategy)
        await plane.filled(2)
        await plane.edit(TEMPLATES, "python", podTemplate=pod_template("new"))
        await asyncio.sleep(60)
        assert await images(plane) == ["python", "python"]
        first = (await plane.sandboxes())[0].metadata.name
        await plane.user.delete(SANDBOXES, first, "default")
        await gone(plane, (SANDBOXES, first))

        async def mixed() -> bool:
            return await images(plane) == ["new", "python"]

        await plane.until(mixed)

    virtually(work)


@pytest.mark.parametrize("strategy", ["Recreate", "RollingUpdate"])
def test_members_are_replaced_and_those_of_other_templates_are_not(strategy: str) -> None:
    async def work(plane: ControlPlane) -> None:
        for name in ("python", "other"):
            await plane.template(name)
            await plane.pool(3, name, name, updateStrategy={"type": strategy})
            await plane.filled(3, name)
        others = {one.metadata.uid for one in await plane.sandboxes() if one.metadata.name.startswith("other-")}
        await plane.edit(TEMPLATES, "python", podTemplate=pod_template("new"))

        async def rolled() -> bool:
            return (await plane.get_pool()).status.updated_ready_replicas == 3 and await images(plane) == ["new"] * 3

        await plane.until(rolled)
        await asyncio.sleep(60)
        assert {one.metadata.uid for one in await plane.sandboxes() if one.metadata.name.startswith("other-")} == others

    virtually(work)


def test_another_template_rolls_and_a_label_does_not() -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.template()
        await plane.template("second")
        await plane.pool(2, updateStrategy={"type": "Recreate"})
        await plane.filled(2)
        before = {one.metadata.uid for one in await plane.sandboxes()}
        labelled = {"metadata": {"labels": {"team": "a"}}}
        await plane.edit(TEMPLATES, "python", podTemplate=labelled)
        await asyncio.sleep(60)
        assert {one.metadata.uid for one in await plane.sandboxes()} == before
        await plane.edit(POOLS, "python", sandboxTemplateRef={"name": "second"})

        async def rolled() -> bool:
            return not before & {one.metadata.uid for one in await plane.sandboxes()}

        await plane.until(rolled)
        await plane.filled(2)
        made_from = {one.metadata.annotations[labels.TEMPLATE_REF] for one in await plane.sandboxes()}
        assert made_from == {"second"}

    virtually(work)


@pytest.mark.parametrize("strategy", ["OnReplenish", "Recreate", "RollingUpdate"])
def test_a_template_that_is_mended_helps_at_once(strategy: str) -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.template(podTemplate={"spec": {"containers": [{"name": "Not_A_Name", "image": "python"}]}})
        await plane.pool(2, updateStrategy={"type": strategy})
        await asyncio.sleep(10)
        (progress,) = (one for one in (await plane.get_pool()).status.conditions if one.type == "Progressing")
        assert "containers[0].name" in progress.message, "what is wrong is told where people look first"
        await plane.edit(TEMPLATES, "python", podTemplate=pod_template())
        began = plane.clock.monotonic()
        await plane.filled(2)
        assert plane.clock.monotonic() - began < 30, "long before the patience with broken members ends"

    virtually(work)


# Claims


@pytest.mark.parametrize("members", [25, 5, 20, 0])
def test_twenty_claims_at_once(members: int) -> None:
    """More members than claims, fewer, as many, none: each claim gets a sandbox of its own, warm as long as there are any."""

    async def work(plane: ControlPlane) -> None:
        unnamed: list[str] = []

        def look(old: Sandbox | None, new: Sandbox | None) -> None:
            ready = new is not None and is_true(new.status.conditions, Type.READY)
            if new is not None and ready and labels.POD_NAME not in new.metadata.annotations:
                unnamed.append(new.metadata.name)

        plane.controllers.caches.sandboxes.subscribe(look)
        await plane.template()
        await plane.pool(members)
        await plane.filled(members)
        warm = {one.metadata.name for one in await plane.sandboxes()}
        names = [f"c{number}" for number in range(20)]
        await asyncio.gather(*(plane.claim(name) for name in names))
        await plane.served(names)
        got = [bound.name for name in names if (bound := (await plane.get_claim(name)).status.sandbox) is not None]
        assert len(set(got)) == 20
        assert len(warm & set(got)) == min(members, 20)
        await plane.filled(members)
        assert unnamed == [], "nobody ever sees one that is ready and does not say which pod it is"

    virtually(work)


def volume(name: str, size: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("policy", "asked", "sizes"),
    [
        ("Disallowed", [], {"home": "1Gi"}),
        ("Disallowed", [volume("more", "2Gi")], None),
        ("Allowed", [volume("more", "2Gi")], {"home": "1Gi", "more": "2Gi"}),
        ("Allowed", [volume("home", "2Gi")], None),
        ("Overrides", [volume("home", "2Gi")], {"home": "2Gi"}),
    ],
)
def test_storage_by_policy(policy: str, asked: list[dict[str, Any]], sizes: dict[str, str] | None) -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.template(volumeClaimTemplates=[volume("home", "1Gi")], volumeClaimTemplatesPolicy=policy)
        await plane.pool(0)
        await plane.claim("c", volumeClaimTemplates=asked)
        await asyncio.sleep(30)
        claims = (await plane.user.list(PERSISTENT_VOLUME_CLAIMS, "default")).items
        (ready,) = (one for one in (await plane.get_claim("c")).status.conditions if one.type == "Ready")
        if sizes is None:
            assert ready.reason == "VolumeClaimTemplatesError"
            assert not claims
            return
        assert ready.true
        found = {}
        for one in claims:
            body = builtins(one)
            found[body["metadata"]["name"]] = body["spec"]["resources"]["requests"]["storage"]
        assert found == {f"{name}-c": size for name, size in sizes.items()}

    virtually(work)


def test_a_runtime_class_is_carried_to_the_pod() -> None:
    async def work(plane: ControlPlane) -> None:
        await plane.user.create(RUNTIME_CLASSES, {"metadata": {"name": "gvisor"}, "handler": "runsc"})
        await plane.template(podTemplate=pod_template(runtimeClassName="gvisor"))
        await plane.pool(1)
        for name in ("first", "second"):
            await plane.filled(1)
            await plane.claim(name)
            await plane.served([name])
            bound = (await plane.get_claim(name)).status.sandbox
            assert bound is not None
            assert bound.name.startswith("python-"), "warm, also after the refill"
            pod = builtins(await plane.user.get(PODS, bound.name, "default"))  # type: ignore[arg-type]
            assert pod["spec"]["runtimeClassName"] == "gvisor"

    virtually(work)
