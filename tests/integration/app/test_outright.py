"""A whole cluster in this process: claims are Ready when their POST is answered, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandpool.app.local_cluster import LocalCluster, serve
from sandpool.app.local_options import LocalOptions
from sandpool.cli import http
from sandpool.controlplane.data_dir import DataDir
from sandpool.kube.api import Api
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, NODES, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.patches import merge_patch
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from support.product.cluster import CLAIMS as PATH

REPLICAS = 4


@asynccontextmanager
async def a_cluster(folder: Path) -> AsyncIterator[LocalCluster]:
    stop: asyncio.Event = asyncio.Event()
    up: asyncio.Future[LocalCluster] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        serving = group.create_task(serve(LocalOptions(DataDir(folder), backend="hollow"), up.set_result, stop))
        await asyncio.wait((up, serving), return_when=asyncio.FIRST_COMPLETED)
        yield up.result()
        stop.set()


async def furnish(api: Api) -> None:
    pod = {"containers": [{"name": "main", "image": "python"}]}
    await api.create(TEMPLATES, {"metadata": {"name": "python"}, "spec": {"podTemplate": {"spec": pod}}}, "default")
    spec = {"replicas": REPLICAS, "sandboxTemplateRef": {"name": "python"}}
    await api.create(POOLS, {"metadata": {"name": "python"}, "spec": spec}, "default")


async def filled(api: Api) -> None:
    """What the pool says of itself comes later: its members are counted."""
    while len([box for box in (await api.list(SANDBOXES, "default")).items if _idle(box)]) != REPLICAS:
        await asyncio.sleep(0.01)


def _idle(box: Sandbox) -> bool:
    owner = box.metadata.controller
    return owner is not None and owner.kind == SandboxWarmPool.kind and is_true(box.status.conditions, Type.READY)


def body(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": "python"}}}


async def taken(cluster: LocalCluster, name: str) -> str:
    """The sandbox of a new claim, as any client hears of it, over HTTPS."""
    whole = {"apiVersion": SandboxClaim.api_version, "kind": SandboxClaim.kind, **body(name)}
    await asyncio.to_thread(http.request, cluster.running, "POST", PATH, whole)
    answer: dict[str, Any] = await asyncio.to_thread(http.request, cluster.running, "GET", f"{PATH}/{name}")
    return sandbox_of(answer)


def sandbox_of(answer: dict[str, Any]) -> str:
    assert [(one["type"], one["status"]) for one in answer["status"]["conditions"]] == [("Ready", "True")]
    name: str = answer["status"]["sandbox"]["name"]
    return name


async def reconciles(cluster: LocalCluster) -> float:
    return await told(cluster, 'sandpool_reconciles_total{controller="claim"')


async def told(cluster: LocalCluster, start: str) -> float:
    """The sum of what /metrics says on lines that start so."""
    page: str = (await asyncio.to_thread(http.request, cluster.running, "GET", "/metrics", None)) or ""
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(start))


async def owned_once(api: Api, claims: int) -> None:
    """Every claim is Ready with a sandbox that is its own, and there is none besides that is nobody's."""
    found = (await api.list(CLAIMS, "default")).items
    boxes = {box.metadata.name: box for box in (await api.list(SANDBOXES, "default")).items}
    assert len(found) == claims
    for claim in found:
        assert is_true(claim.status.conditions, Type.READY)
        assert claim.status.sandbox is not None
        owner = boxes[claim.status.sandbox.name].metadata.controller
        assert owner is not None
        assert owner.uid == claim.metadata.uid
    assert len(boxes) == claims + REPLICAS


async def test_ready_with_the_answer_and_nothing_is_left_to_do(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        await furnish(cluster.api)
        await filled(cluster.api)
        before = await reconciles(cluster)
        names = {await taken(cluster, f"c{number}") for number in range(REPLICAS)}
        assert len(names) == REPLICAS
        await filled(cluster.api)
        assert await reconciles(cluster) == before
        assert await told(cluster, "sandpool_claim_ready_seconds_count") == REPLICAS
        await owned_once(cluster.api, REPLICAS)


async def test_more_claims_than_members_are_all_served(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        await furnish(cluster.api)
        await filled(cluster.api)
        await asyncio.gather(*(cluster.api.create(CLAIMS, body(f"c{number}"), "default") for number in range(12)))
        while not all(is_true(one.status.conditions, Type.READY) for one in (await listed(cluster))):
            await asyncio.sleep(0.01)
        await filled(cluster.api)
        assert await told(cluster, "sandpool_claim_ready_seconds_count") == 12
        assert await reconciles(cluster) > 0
        await owned_once(cluster.api, 12)


async def listed(cluster: LocalCluster) -> tuple[SandboxClaim, ...]:
    return tuple((await cluster.api.list(CLAIMS, "default")).items)


async def test_after_a_restart_nothing_is_reserved_or_lost(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        await furnish(cluster.api)
        await filled(cluster.api)
        kept = {await taken(cluster, f"c{number}") for number in range(REPLICAS)}
    async with a_cluster(tmp_path) as cluster:
        await filled(cluster.api)
        await owned_once(cluster.api, REPLICAS)
        assert {claim.status.sandbox.name for claim in await listed(cluster) if claim.status.sandbox} == kept
        more = {await taken(cluster, f"d{number}") for number in range(REPLICAS)}
        assert not more & kept, "every member of the pool can be had"
        await filled(cluster.api)
        await owned_once(cluster.api, 2 * REPLICAS)
        assert await told(cluster, "sandpool_repairs_total") == 0


async def cordon(api: Api, *, off: bool = False) -> None:
    """Nothing starts on the node, and nothing on it is handed out."""
    while not (nodes := (await api.list(NODES)).items):
        await asyncio.sleep(0.01)
    (node,) = nodes
    await api.patch(NODES, node.metadata.name, merge_patch({"spec": {"unschedulable": not off}}))


async def served(cluster: LocalCluster, count: int, *, begin: Callable[[], Awaitable[None]] | None = None) -> list[str]:
    """Names of claims as they become Ready, until so many are; those that are when we look are first."""
    found: dict[str, None] = {}
    async with cluster.api.watch(CLAIMS, "default", initial=True) as events:
        if begin is not None:
            await begin()
        while len(found) < count:
            event = await anext(events)
            if isinstance(event.object, SandboxClaim) and is_true(event.object.status.conditions, Type.READY):
                found.setdefault(event.object.metadata.name)
    return list(found)


async def test_a_backlog_outlives_restarts_and_is_served_in_order(tmp_path: Path) -> None:
    """Of claims that nothing could serve yet, and again in the middle of serving them. Their names are in no order."""
    names = [f"c{number * 7 % 24:02}" for number in range(24)]
    async with a_cluster(tmp_path) as cluster:
        await cordon(cluster.api)
        await furnish(cluster.api)
        for name in names:
            await cluster.api.create(CLAIMS, body(name), "default")
        assert [one for one in await listed(cluster) if one.status.sandbox] == []
    async with a_cluster(tmp_path) as cluster:
        assert {one.metadata.name for one in await listed(cluster)} == set(names), "none is lost"
        first = await served(cluster, 6, begin=lambda: cordon(cluster.api, off=True))
    async with a_cluster(tmp_path) as cluster:
        order = first + [name for name in await served(cluster, len(names)) if name not in first]
        await filled(cluster.api)
        while len((await cluster.api.list(SANDBOXES, "default")).items) > len(names) + REPLICAS:
            await asyncio.sleep(0.01)  # what was started in vain goes
        await owned_once(cluster.api, len(names))
        assert await told(cluster, "sandpool_repairs_total") == 0
        got = {one.metadata.name: one.status.sandbox.name for one in await listed(cluster) if one.status.sandbox}
    assert len(set(got.values())) == len(names), "none is served twice"
    by_members = [names.index(name) for name in order if got[name] != name]
    places = {age: place for place, age in enumerate(sorted(by_members))}
    early = max(places[age] - place for place, age in enumerate(by_members))
    assert early < REPLICAS, "the oldest first; what is ready at once is handed out at once"
