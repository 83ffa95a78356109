"""`sandpool restore` while controllers and kubelet are at work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml

from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, PODS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.sandbox import Sandbox
from support.api.manifests import POOL, TEMPLATE
from support.product.cluster import claim, running_cluster, sandpool
from support.product.cluster_watch import the_api, until


def bound(claim: SandboxClaim) -> bool:
    return is_true(claim.status.conditions, "Ready")


def ready(sandbox: Sandbox) -> bool:
    return is_true(sandbox.status.conditions, "Ready")


def test_a_restore_brings_pools_and_claims_back_to_life(tmp_path: Path) -> None:
    """What comes back is looked after like anything else: bound claims stay bound, members can be claimed."""
    file = tmp_path / "backup.db"

    async def fill(data_dir: Path) -> tuple[str, set[str]]:
        async with the_api(data_dir) as api:
            await api.create(TEMPLATES, yaml.safe_load(TEMPLATE), "default")
            await api.create(POOLS, yaml.safe_load(POOL), "default")
            # A claim that comes before the members are ready may start a sandbox of its own, which goes again later.
            await until(api, SANDBOXES, lambda boxes: len(boxes) == 3 and all(map(ready, boxes.values())))
            await api.create(CLAIMS, claim("mine"), "default")
            claims = await until(api, CLAIMS, lambda claims: "mine" in claims and bound(claims["mine"]))
            pods = await until(api, PODS, lambda pods: len(pods) == 4 and all(pod.ready for pod in pods.values()))
            assert claims["mine"].status.sandbox is not None
            return claims["mine"].status.sandbox.name, set(pods)

    async def destroy(data_dir: Path) -> None:
        async with the_api(data_dir) as api:
            await api.delete(CLAIMS, "mine", "default")
            await api.delete(POOLS, "python", "default")
            await until(api, PODS, lambda pods: not pods)
            await until(api, SANDBOXES, lambda boxes: not boxes)

    async def back(data_dir: Path, box: str, names: set[str]) -> None:
        async with the_api(data_dir) as api:
            pods = await until(api, PODS, lambda pods: len(pods) == 4 and all(pod.ready for pod in pods.values()))
            assert set(pods) == names
            claims = await until(api, CLAIMS, lambda claims: "mine" in claims and bound(claims["mine"]))
            assert claims["mine"].status.sandbox is not None
            assert claims["mine"].status.sandbox.name == box
            # and the pool gives: another claim gets one of the members that came back
            await api.create(CLAIMS, claim("more"), "default")
            claims = await until(api, CLAIMS, lambda claims: "more" in claims and bound(claims["more"]))
            assert claims["more"].status.sandbox is not None
            assert claims["more"].status.sandbox.name in names - {box}

    with running_cluster(tmp_path / "data") as cluster:
        box, names = asyncio.run(fill(cluster.data_dir))
        sandpool("backup", str(file), *cluster.flag)
        asyncio.run(destroy(cluster.data_dir))
        sandpool("restore", str(file), *cluster.flag)
        asyncio.run(back(cluster.data_dir, box, names))
