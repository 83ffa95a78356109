"""`sandpool up` with pools and claims, over crashes and without a backend: what is bound stays bound, nothing is made twice."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api
from sandpool.kube.errors import AlreadyExists
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, EVENTS, NODES, PODS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.patches import merge_patch
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from support.api.manifests import POOL, TEMPLATE
from support.product.cluster import Cluster, claim, running_cluster, sandpool, stop
from support.product.cluster_watch import the_api, until


def full(pools: dict[str, SandboxWarmPool]) -> bool:
    return "python" in pools and pools["python"].status.ready_replicas == pools["python"].spec.replicas


def bound(claims: dict[str, SandboxClaim], count: int) -> bool:
    return len(claims) == count and all(is_true(one.status.conditions, "Ready") for one in claims.values())


def all_ready(boxes: dict[str, Sandbox]) -> bool:
    return all(is_true(box.status.conditions, "Ready") for box in boxes.values())


def sandboxes_of(claims: dict[str, SandboxClaim]) -> dict[str, str]:
    return {name: one.status.sandbox.name for name, one in claims.items() if one.status.sandbox is not None}


async def a_full_pool(api: Api, replicas: int = 3) -> None:
    await api.create(TEMPLATES, yaml.safe_load(TEMPLATE), "default")
    pool: dict[str, Any] = yaml.safe_load(POOL)
    pool["spec"]["replicas"] = replicas
    await api.create(POOLS, pool, "default")
    await until(api, POOLS, full)


async def uids(api: Api, resource: Any) -> dict[str, str]:
    return {item.metadata.name: item.metadata.uid for item in (await api.list(resource, "default")).items}


def ready(pods: dict[str, Pod], names: set[str]) -> bool:
    return pods.keys() == names and all(pod.ready for pod in pods.values())


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    """Claims keep their sandboxes, the pool is full, hollow pods are back: the very same objects, none of them new."""
    cluster = Cluster(tmp_path / "data")

    async def before() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        async with the_api(cluster.data_dir) as api:
            await a_full_pool(api)
            for name in ("a", "b"):
                await api.create(CLAIMS, claim(name), "default")
            claims = await until(api, CLAIMS, lambda claims: bound(claims, 2))
            await until(api, POOLS, full)
            await until(api, PODS, lambda pods: len(pods) == 5 and all(pod.ready for pod in pods.values()))
            return sandboxes_of(claims), await uids(api, SANDBOXES), await uids(api, PODS)

    async def after(claimed: dict[str, str], boxes: dict[str, str], pods: dict[str, str]) -> None:
        async with the_api(cluster.data_dir) as api:
            claims = await until(api, CLAIMS, lambda claims: bound(claims, 2))
            assert sandboxes_of(claims) == claimed
            await until(api, PODS, lambda found: ready(found, set(pods)))
            await until(api, POOLS, full)
            # One more claim and its refill pass through every controller: whatever they had left to do has been done.
            await api.create(CLAIMS, claim("c"), "default")
            more = sandboxes_of(await until(api, CLAIMS, lambda claims: bound(claims, 3)))
            assert more["c"] in set(boxes) - set(claimed.values()), "a member that was warm before the crash"
            await until(api, SANDBOXES, lambda found: len(found) >= 6)
            await until(api, POOLS, full)
            now, running = await uids(api, SANDBOXES), await uids(api, PODS)
            assert len(now) == 6
            assert boxes.items() <= now.items()
            assert pods.items() <= running.items()

    try:
        cluster.up()
        seen = asyncio.run(before())
        cluster.kill()
        cluster.up()
        asyncio.run(after(*seen))
    finally:
        stop(cluster)


def test_a_crash_in_the_middle_of_a_burst(tmp_path: Path) -> None:
    """Claims arrive while the process is killed: afterwards each has a sandbox of its own, and none is left over."""
    cluster, replicas, rounds = Cluster(tmp_path / "data"), 4, (2, 6, 10)
    names = [f"r{kill_after}-c{number}" for kill_after in rounds for number in range(12)]
    wanted = len(names)

    def burst(kill_after: int) -> None:
        made = count(1)

        def one(name: str) -> None:
            try:
                cluster.create_claim(name)
            except (SandpoolError, AssertionError):
                return  # it is gone, as this test intends
            if next(made) == kill_after:
                cluster.kill()

        with ThreadPoolExecutor(4) as clients:
            list(clients.map(one, [name for name in names if name.startswith(f"r{kill_after}-")]))
        assert next(made) > kill_after

    async def first() -> None:
        async with the_api(cluster.data_dir) as api:
            await a_full_pool(api, replicas)

    async def settled() -> None:
        async with the_api(cluster.data_dir) as api:
            for name in names:
                try:
                    await api.create(CLAIMS, claim(name), "default")
                except AlreadyExists:
                    pass
            claims = await until(api, CLAIMS, lambda claims: bound(claims, wanted))
            taken = sandboxes_of(claims)
            assert len(set(taken.values())) == wanted
            await until(api, POOLS, full)
            boxes = await until(api, SANDBOXES, lambda boxes: len(boxes) == wanted + replicas)
            owners = {name: box.metadata.owner_references[0].uid for name, box in boxes.items()}
            assert {name: owners[box] for name, box in taken.items()} == {
                name: one.metadata.uid for name, one in claims.items()
            }
            await until(api, PODS, lambda pods: ready(pods, set(boxes)))

    try:
        cluster.up()
        asyncio.run(first())
        for kill_after in rounds:
            burst(kill_after)
            cluster.up()
        asyncio.run(settled())
    finally:
        stop(cluster)


def test_status_and_health_tell_of_every_part(tmp_path: Path) -> None:
    async def work(data_dir: Path) -> None:
        async with the_api(data_dir) as api:
            await a_full_pool(api)
            await api.create(CLAIMS, claim("a"), "default")
            await until(api, CLAIMS, lambda claims: bound(claims, 1))
            await until(api, SANDBOXES, lambda boxes: len(boxes) == 4 and all_ready(boxes))
            await until(api, POOLS, full)

    with running_cluster(tmp_path / "data") as cluster:
        asyncio.run(work(cluster.data_dir))
        status = cluster.status()
        assert status["backend"] == "hollow"
        assert status["claims"] == 1
        assert status["pools"] == [{"namespace": "default", "name": "python", "desired": 3, "ready": 3}]
        assert "default/python: 3 of 3 ready" in sandpool("status", *cluster.flag).stdout
        health = cluster.request("GET", "/readyz?verbose")
        for part in ("store", "kubelet", "controllers"):
            assert f"[+]{part} ok" in health
        metrics = cluster.request("GET", "/metrics")
        for controller in ("claim", "sandbox", "pool", "template", "kubelet"):
            assert f'sandpool_reconciles_total{{controller="{controller}",outcome="done"}}' in metrics
        assert 'sandpool_events_total{outcome="created"}' in metrics


def test_without_a_backend_nothing_acts(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data")
    try:
        started = sandpool("up", *cluster.flag, "--port", "0", "--detach", "--backend", "none")
        assert "nothing acts on them" in started.stderr
        assert cluster.status()["backend"] == "none"
        assert "kubelet" not in cluster.request("GET", "/readyz?verbose")
        assert cluster.request("GET", NODES.path())["items"] == []
    finally:
        stop(cluster)


def test_events_can_be_off(tmp_path: Path) -> None:
    async def work(data_dir: Path) -> int:
        async with the_api(data_dir) as api:
            await a_full_pool(api)
            await api.create(CLAIMS, claim("a"), "default")
            await until(api, CLAIMS, lambda claims: bound(claims, 1))
            await api.delete(CLAIMS, "a", "default")
            await until(api, CLAIMS, lambda claims: not claims)
            return len((await api.list(EVENTS, "default")).items)

    with running_cluster(tmp_path / "data", "--no-events") as cluster:
        assert asyncio.run(work(cluster.data_dir)) == 0


def test_up_says_that_hollow_pods_run_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data")
    try:
        started = sandpool("up", *cluster.flag, "--port", "0", "--detach")
        assert "no process runs in them" in started.stderr
    finally:
        stop(cluster)


def test_an_unknown_backend_is_a_usage_error(tmp_path: Path) -> None:
    refused = sandpool("up", "--data-dir", str(tmp_path / "data"), "--backend", "moon", check=False)
    assert refused.returncode == 2
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("replicas", [0, 6])
def test_a_scale_while_it_is_down_is_caught_up_with(tmp_path: Path, replicas: int) -> None:
    """What was changed while nothing acted is done at the next start."""
    cluster = Cluster(tmp_path / "data")

    async def first() -> None:
        async with the_api(cluster.data_dir) as api:
            await a_full_pool(api)

    async def scale() -> None:
        async with the_api(cluster.data_dir) as api:
            await api.patch(POOLS, "python", merge_patch({"spec": {"replicas": replicas}}), "default")

    async def settled() -> None:
        async with the_api(cluster.data_dir) as api:
            boxes = await until(api, SANDBOXES, lambda boxes: len(boxes) == replicas)
            await until(api, PODS, lambda pods: ready(pods, set(boxes)))

    try:
        cluster.up()
        asyncio.run(first())
        cluster.down()
        cluster.up("--backend", "none")
        asyncio.run(scale())
        cluster.down()
        cluster.up()
        asyncio.run(settled())
    finally:
        stop(cluster)
