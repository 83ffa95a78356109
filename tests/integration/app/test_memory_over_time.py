"""A cluster holds no more after many claims than after half as many: what it keeps of the past is bounded, and of connections that have ended
nothing is left. Objects are counted, all that can be reached, without the collector of cycles ever running: what waits for it is held, too.

Every keeper has its bound, made small here, so that all of them are full after a few claims.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sandpool.app.local_cluster import LocalCluster, serve
from sandpool.app.local_options import LocalOptions, Retention
from sandpool.controllers import cache_transforms
from sandpool.controlplane.data_dir import DataDir
from sandpool.controlplane.objects import matching, typed
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.writer import Bounds
from sandpool.kube.api import Api, EventType
from sandpool.loop.events import Restraint
from sandpool.model.kinds import PODS, POOLS, TEMPLATES
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.product.cluster import CLAIMS, claim

WARM = 2
HALF = 40
SLACK = 0.25
"""Part of what there was that may be there once more: the counts are taken while work goes on, and some bounds give way an eighth at a time."""


LITTLE = Retention(
    history=HistoryLimits(changes=256, size=384 * 1024),
    log=Bounds(window=256),
    event_bytes=8 * 1024,
    events=Restraint(remembered=8),
    reconciles=lambda: ReconcileHistory(keys=16, entries=4, size=16 * 1024),
)


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that save work: no option has their size."""
    monkeypatch.setattr(cache_transforms, "MOST_VALUES", 16)
    for module in (typed, matching):
        monkeypatch.setattr(module, "REMEMBERED", 64)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Nor anything hidden from it: what a module keeps counts."""
    gc.unfreeze()
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


def census() -> Counter[str]:
    """Objects of ours by type. Structs that the collector does not track are found through those that hold them."""
    found: Counter[str] = Counter()
    left: list[Any] = gc.get_objects()
    seen: set[int] = {id(left), id(found)}
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, msgspec.Struct):
            left += [getattr(one, name, None) for name in one.__struct_fields__]
        else:
            left += gc.get_referents(one)
        kind = f"{type(one).__module__}.{type(one).__qualname__}"
        if kind.startswith("sandpool."):
            found[kind] += 1
    return found


@asynccontextmanager
async def a_cluster(folder: Path) -> AsyncIterator[LocalCluster]:
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    options = LocalOptions(DataDir(folder), backend="hollow", retention=LITTLE)
    running = asyncio.create_task(serve(options, started.set_result, stop))
    try:
        yield await started
    finally:
        stop.set()
        await running


async def live(cluster: LocalCluster, first: int, claims: int) -> None:
    """So many claims, one after the other, each by connections of its own."""
    tls = ssl.create_default_context(cafile=str(Path(cluster.running.data_dir) / "access" / "ca.crt"))
    token = (Path(cluster.running.data_dir) / "access" / "admin.token").read_text().strip()
    for number in range(first, first + claims):
        connector = aiohttp.TCPConnector(ssl=tls)
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(cluster.running.api, connector=connector, headers=headers) as session:
            async with session.post(CLAIMS, json=claim(f"c{number}")) as answer:
                assert answer.status == 201
            async with session.delete(f"{CLAIMS}/c{number}") as answer:
                assert answer.status == 200
        await settled(cluster.api)


async def settled(api: Api) -> None:
    """Waits until there are as many pods as the pool has members, all of them ready."""
    pods: dict[str, bool] = {}
    async with api.watch(PODS, "default", initial=True) as events:
        async for event in events:
            if event.object is not None:
                pods[event.object.metadata.name] = event.object.ready
                if event.type is EventType.DELETED:
                    del pods[event.object.metadata.name]
            if len(pods) == WARM and all(pods.values()):
                return


@pytest.mark.long
@pytest.mark.usefixtures("small_tables", "no_collector")
async def test_what_is_held_does_not_grow_with_the_number_of_claims(tmp_path: Path) -> None:
    async with asyncio.timeout(240), a_cluster(tmp_path) as cluster:
        container = {"name": "main", "image": "python"}
        template = {"metadata": {"name": "python"}, "spec": {"podTemplate": {"spec": {"containers": [container]}}}}
        pool = {"metadata": {"name": "python"}, "spec": {"replicas": WARM, "sandboxTemplateRef": {"name": "python"}}}
        await cluster.api.create(TEMPLATES, template, "default")
        await cluster.api.create(POOLS, pool, "default")
        await settled(cluster.api)
        await live(cluster, 0, HALF)
        before = census()
        await live(cluster, HALF, HALF)
        after = census()
    grown = {kind: (before[kind], count) for kind, count in after.items() if count > before[kind] * (1 + SLACK) + 8}
    assert not grown, "by type, after half of the claims and after all of them"
