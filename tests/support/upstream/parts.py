"""What the scenarios of the upstream project's end-to-end suites have in common: bodies, and what of a status is compared.

The scenarios are told again here, in our words; what they assert is what its tests assert (v1.0.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from sandpool.kube.errors import NotFound
from sandpool.model import times
from sandpool.model.kinds import CLAIMS, SANDBOXES, TEMPLATES, raw
from sandpool.model.labels import sandbox_selector
from sandpool.model.patches import merge_patch
from sandpool.model.resource import Resource
from support.kube.stage import User

Body = dict[str, Any]
Scenario = Callable[[User], Awaitable[None]]

PAUSE: Body = {"containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10"}]}
ENDS: Body = {
    "restartPolicy": "Never",
    "containers": [{"name": "busybox", "image": "busybox:1.36", "command": ["sh", "-c", "exit 0"]}],
}
"""Ends at once with success. Where no process starts, an annotation says the same."""
ENDING = {"annotations": {"hollow.sandpool.dev/exit-after": "0.2"}}
HOLD = "agents.x-k8s.io/test-hold"
NOT_SUSPENDED = ("Suspended", "False", "NotSuspended", "Sandbox is not suspended")
SCHEDULED = ("PodScheduled", "True", "PodScheduled", "")
READY = ("Ready", "True", "DependenciesReady", "Pod is Ready; Service Exists")
SUSPENDED = ("Suspended", "True", "PodTerminated", "Pod has been terminated. Sandbox is suspended")
IS_SUSPENDED = ("Ready", "False", "SandboxSuspended", "Sandbox is suspended")


async def body_of(user: User, resource: Resource[Any], name: str) -> Body:
    """The whole object, as a client reads it."""
    return (await user.api.get(raw(resource), name, user.namespace)).body


async def absent(user: User, resource: Resource[Any], name: str) -> bool:
    try:
        await user.get(resource, name)
    except NotFound:
        return True
    return False


async def vanished(user: User, *wanted: tuple[Resource[Any], str]) -> None:
    for resource, name in wanted:
        await user.until(lambda r=resource, n=name: absent(user, r, n), f"{resource.singular} {name} is gone")  # type: ignore[misc]


def condition(body: Body, type_: str) -> Body:
    found = [one for one in (body.get("status") or {}).get("conditions") or () if one["type"] == type_]
    return found[0] if found else {}


def compared(body: Body) -> Body:
    """What of a Sandbox's status those tests compare: all but addresses, the node and times."""
    status = body.get("status") or {}
    said = {
        (one["type"], one["status"], one["reason"], one.get("message", ""), one.get("observedGeneration", 0))
        for one in status.get("conditions") or ()
    }
    kept = {key: status[key] for key in ("service", "serviceFQDN", "selector") if status.get(key)}
    return {**kept, "conditions": said}


def expected(name: str, namespace: str, generation: int, *conditions: tuple[str, ...]) -> Body:
    """Of a Sandbox that has a Service."""
    return {
        "service": name,
        "serviceFQDN": f"{name}.{namespace}.svc.cluster.local",
        "selector": sandbox_selector(name),
        "conditions": {(*one, generation) for one in conditions},
    }


async def became(user: User, name: str, wanted: Body) -> Body:
    """The Sandbox, once what is compared of its status is exactly this."""
    seen: Body = {}

    async def holds() -> bool:
        seen.update(await body_of(user, SANDBOXES, name))
        return compared(seen) == wanted

    try:
        await user.until(holds, f"sandbox {name}")
    except AssertionError:
        assert compared(seen) == wanted  # shows the difference
        raise
    return seen


async def says(user: User, resource: Resource[Any], name: str, type_: str, reason: str) -> None:
    async def holds() -> bool:
        return condition(await body_of(user, resource, name), type_).get("reason") == reason

    await user.until(holds, f"{resource.singular} {name} says {type_} {reason}")


async def is_ready(user: User, resource: Resource[Any], name: str) -> Body:
    found: Body = {}

    async def holds() -> bool:
        found.update(await body_of(user, resource, name))
        return condition(found, "Ready").get("status") == "True"

    await user.until(holds, f"{resource.singular} {name} is Ready")
    return found


async def leaving(user: User, resource: Resource[Any], name: str) -> None:
    async def holds() -> bool:
        return "deletionTimestamp" in (await body_of(user, resource, name))["metadata"]

    await user.until(holds, f"{resource.singular} {name} is being deleted")


async def hold(user: User, resource: Resource[Any], name: str, *, held: bool = True) -> None:
    change = merge_patch({"metadata": {"finalizers": [HOLD] if held else []}})
    await user.api.patch(resource, name, change, user.namespace)


async def a_sandbox(user: User, name: str = "my-sandbox", pod: Body = PAUSE, **spec: Any) -> Body:
    labelled = {"annotations": {"test-anno-key": "val-1"}, "labels": {"test-label-key": "val-2"}}
    template = {"spec": pod, "metadata": spec.pop("metadata", labelled)}
    await user.create(SANDBOXES, name, podTemplate=template, **{"service": True, **spec})
    return await body_of(user, SANDBOXES, name)


async def a_template(user: User, name: str = "test-template", pod: Body = PAUSE, **spec: Any) -> None:
    template: Body = {"spec": pod}
    if pod is ENDS:
        template["metadata"] = ENDING
    await user.create(TEMPLATES, name, podTemplate=template, **spec)


async def served_by(user: User, claim: str) -> str:
    """The sandbox of a claim that is Ready."""
    found = await is_ready(user, CLAIMS, claim)
    return str(found["status"]["sandbox"]["name"])


def controlled_by(body: Body, kind: str, name: str, uid: str) -> bool:
    owners = body["metadata"].get("ownerReferences") or ()
    return any(
        (one["kind"], one["name"], one["uid"], one.get("controller")) == (kind, name, uid, True) for one in owners
    )


def since(body: Body, type_: str) -> datetime:
    return times.parse(condition(body, type_)["lastTransitionTime"])


async def second_after(moment: datetime) -> None:
    """Times of conditions are told in whole seconds: what happens from now on has a later one."""
    while (left := moment.timestamp() + 1.0 - datetime.now(UTC).timestamp()) > 0:
        await asyncio.sleep(left)
