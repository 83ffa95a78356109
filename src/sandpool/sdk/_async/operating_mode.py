"""Suspends and resumes a sandbox, and waits until it is suspended or running."""

from __future__ import annotations

import time

from sandpool.kube.errors import Gone, Invalid, NotFound
from sandpool.sdk._async.cluster import Cluster, Object
from sandpool.sdk.api_paths import sandboxes
from sandpool.sdk.claims import condition, for_this, mode_reached
from sandpool.sdk.errors import SandboxGone, TimedOut

RUNNING, SUSPENDED = "Running", "Suspended"


async def set_operating_mode(cluster: Cluster, namespace: str, name: str, uid: str, mode: str, timeout: float) -> None:
    """Sets the mode of exactly this sandbox. SandboxGone if it ends meanwhile, TimedOut with its last condition."""
    deadline = time.monotonic() + timeout
    try:
        change = for_this(uid, {"op": "add", "path": "/spec/operatingMode", "value": mode})
        box = await cluster.patch(sandboxes(namespace, name), change)
    except NotFound:
        raise _gone(namespace, name) from None
    except Invalid as error:
        if error.causes:
            raise
        raise _gone(namespace, name) from None  # another one has its name now
    generation = int(box["metadata"].get("generation", 0))
    while not mode_reached(box, mode, generation):
        if deadline <= time.monotonic():
            one = condition(box, "Ready")
            raise TimedOut(
                f"sandbox {namespace}/{name} is not {mode.lower()} after {timeout:g} s: "
                f"{one.get('message') or one.get('reason') or 'it has no condition yet'}; `sandpool why sandbox/{name}` tells more"
            )
        box = await _followed(cluster, box, mode, generation, deadline)


async def _followed(cluster: Cluster, box: Object, mode: str, generation: int, deadline: float) -> Object:
    """The sandbox when it has reached the mode, or when the watch ended."""
    metadata = box["metadata"]
    namespace, name, since = str(metadata["namespace"]), str(metadata["name"]), str(metadata["resourceVersion"])
    fields, seconds = f"metadata.name={name}", deadline - time.monotonic()
    try:
        async with cluster.watch(sandboxes(namespace), fields=fields, since=since, timeout=seconds) as events:
            async for event in events:
                if event.type == "DELETED" or event.object["metadata"]["uid"] != metadata["uid"]:
                    raise _gone(namespace, name)
                box = event.object
                if mode_reached(box, mode, generation):
                    break
    except Gone:
        try:
            box = await cluster.get(sandboxes(namespace, name))
        except NotFound:
            raise _gone(namespace, name) from None
        if box["metadata"]["uid"] != metadata["uid"]:
            raise _gone(namespace, name) from None
    return box


def _gone(namespace: str, name: str) -> SandboxGone:
    return SandboxGone(f"sandbox {namespace}/{name} has ended; claim another one")
