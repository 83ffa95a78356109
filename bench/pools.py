"""Measurements that `sandpool load` does not make: how long a pool takes to fill, and claims while a template is rolled out.

Both on a temporary local cluster. A pool counts its members in its status about once a second, so members are watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import random as dice
from typing import Any

from sandpool.base.clock import Clock, SystemClock
from sandpool.kube.api import Api, EventType
from sandpool.kube.errors import Gone
from sandpool.kube.http import HttpApi, connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.kube.local_discovery import Running
from sandpool.load.fresh import fresh_cluster
from sandpool.load.scenario import run_load_command
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.patches import merge_patch
from sandpool.model.reasons import Type

NAMESPACE, POOL = "default", "bench"
PATIENCE = 600.0


@asynccontextmanager
async def reached(kubeconfig: Path) -> AsyncIterator[HttpApi]:
    config = load_kubeconfig([kubeconfig])
    async with connect(config, clock=SystemClock(), draw=dice, env=os.environ, width=64) as api:
        yield api


def pod_spec(note: str = "first", image: str = "host") -> dict[str, Any]:
    """Another `note` changes the pod, for a rollout. The image `host` has no command of its own."""
    container: dict[str, Any] = {"name": "main", "image": image, "env": [{"name": "NOTE", "value": note}]}
    return {"containers": [{**container, "command": ["sleep", "infinity"]}]}


async def make(api: Api, replicas: int, *, strategy: str = "OnReplenish", image: str = "host") -> None:
    await api.create(
        TEMPLATES,
        {"metadata": {"name": POOL}, "spec": {"podTemplate": {"spec": pod_spec(image=image)}}},
        NAMESPACE,
    )
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": POOL}, "updateStrategy": {"type": strategy}}
    await api.create(POOLS, {"metadata": {"name": POOL}, "spec": spec}, NAMESPACE)


async def grow(api: Api, replicas: int) -> None:
    await api.patch(POOLS, POOL, merge_patch({"spec": {"replicas": replicas}}), NAMESPACE)


async def ready_members(api: Api, wanted: int) -> None:
    """Waits until so many sandboxes are Ready. A server may end a watch at any time: then it looks again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await _seen_ready(api, wanted):
                return
            await asyncio.sleep(0.1)


async def _seen_ready(api: Api, wanted: int) -> bool:
    page = await api.list(SANDBOXES, NAMESPACE)
    ready = {each.metadata.name for each in page.items if is_true(each.status.conditions, Type.READY)}
    if len(ready) >= wanted:
        return True
    with contextlib.suppress(Gone):
        async with api.watch(SANDBOXES, NAMESPACE, since=page.revision) as events:
            async for event in events:
                found = event.object
                if found is None:
                    continue
                if event.type is not EventType.DELETED and is_true(found.status.conditions, Type.READY):
                    ready.add(found.metadata.name)
                else:
                    ready.discard(found.metadata.name)
                if len(ready) >= wanted:
                    return True
    return False


async def refill(members: int, backend: str, clock: Clock) -> dict[str, Any]:
    """From a pool of 0 to a full one: from the patch of its size until every member is Ready."""
    async with fresh_cluster(backend, ("--no-pool",)) as running, reached(Path(running.kubeconfig)) as api:
        await make(api, 0)
        began = clock.monotonic()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(ready_members(api, members))
            await grow(api, members)
            await waiting
        took = clock.monotonic() - began
    return {"members": members, "took_s": round(took, 3), "members_per_s": round(members / took, 1)}


async def rollout(members: int, rate: int, seconds: int, clock: Clock) -> dict[str, Any]:
    """The same rate on the same pool twice: while nothing else happens, and while its template is rolled out."""
    async with fresh_cluster("hollow", ("--no-pool",)) as running, reached(Path(running.kubeconfig)) as api:
        await make(api, members, strategy="RollingUpdate")
        await ready_members(api, members)
        calm = await _claims(running, rate, seconds)
        async with asyncio.TaskGroup() as group:
            driven = group.create_task(_claims(running, rate, seconds))
            await _first_claim(api)
            rolled = group.create_task(_roll(api, members, clock))
    return {**driven.result(), "rollout_s": round(rolled.result(), 3), "before": calm}


async def _claims(running: Running, rate: int, seconds: int) -> dict[str, Any]:
    return await run_load_command(
        *("rate", "--rate", str(rate), "--for", f"{seconds}s", "--data-dir", running.data_dir),
        *("--pool", POOL, "--namespace", NAMESPACE),
    )


async def _first_claim(api: Api) -> None:
    """The template changes when claims have begun to come, not while the generator starts."""
    page = await api.list(CLAIMS, NAMESPACE)
    async with asyncio.timeout(PATIENCE), api.watch(CLAIMS, NAMESPACE, since=page.revision) as events:
        async for event in events:
            if event.type is EventType.ADDED:
                return


async def _roll(api: Api, members: int, clock: Clock) -> float:
    """Seconds until every member is made from the new template and Ready, by the status of the pool."""
    began = clock.monotonic()
    page = await api.list(POOLS, NAMESPACE)
    changed = {"spec": {"podTemplate": {"spec": pod_spec("second")}}}
    await api.patch(TEMPLATES, POOL, merge_patch(changed), NAMESPACE)
    moved = False  # before the pool has seen the change, all its members are up to date
    async with asyncio.timeout(PATIENCE), api.watch(POOLS, NAMESPACE, since=page.revision) as events:
        async for event in events:
            if event.object is None:
                continue
            status = event.object.status
            moved = moved or status.updated_replicas < members
            if moved and status.updated_ready_replicas >= members:
                return clock.monotonic() - began
    raise TimeoutError("the watch of the pool ended before its rollout did")
