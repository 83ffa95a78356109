"""A pool that wants more sandboxes than there may be does not keep another namespace's claim from getting one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandpool.app.local_cluster import LocalCluster, serve
from sandpool.app.local_options import LocalOptions
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.data_dir import DataDir
from sandpool.controlplane.objects.holdings import HoldingLimits
from sandpool.install.first_pool import NO_POOLS
from sandpool.model.kinds import CLAIMS, NAMESPACES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.resource import Resource


async def pool(api: LocalApi, namespace: str, replicas: int) -> None:
    spec = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "python"}]}}}
    await api.create(NAMESPACES, {"metadata": {"name": namespace}})
    await api.create(TEMPLATES, {"metadata": {"name": "python"}, "spec": spec}, namespace)
    wanted = {"replicas": replicas, "sandboxTemplateRef": {"name": "python"}}
    await api.create(POOLS, {"metadata": {"name": "python"}, "spec": wanted}, namespace)


async def until(api: LocalApi, resource: Resource[Any], namespace: str, met: Callable[[list[Any]], bool]) -> None:
    async with api.watch(resource, namespace, initial=True) as events:
        async for _ in events:
            if met(list((await api.list(resource, namespace)).items)):
                return


async def scenario(cluster: LocalCluster) -> None:
    api = cluster.api
    await pool(api, "greedy", 50)
    await until(api, SANDBOXES, "greedy", lambda found: len(found) == 8)  # of nine one is left for others
    await pool(api, "modest", 0)
    await api.create(CLAIMS, {"metadata": {"name": "c"}, "spec": {"warmPoolRef": {"name": "python"}}}, "modest")
    await until(api, CLAIMS, "modest", lambda found: all(claim.status.sandbox for claim in found))
    assert len((await api.list(SANDBOXES, "greedy")).items) == 8


async def test_a_pool_that_wants_them_all(tmp_path: Path) -> None:
    stop = asyncio.Event()
    begun: asyncio.Queue[LocalCluster] = asyncio.Queue()
    options = LocalOptions(
        DataDir(tmp_path / "data"), backend="hollow", pools=NO_POOLS, holdings=HoldingLimits(sandboxes=9)
    )
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(options, begun.put_nowait, stop))
        try:
            await scenario(await begun.get())
        finally:
            stop.set()
