"""`sandpool why` on a running cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from sandpool.cli.main import run
from sandpool.model.claim import BoundSandbox
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, POOLS, TEMPLATES
from support.api.manifests import POOL, TEMPLATE
from support.product.cluster import Cluster, claim, running_cluster, sandpool
from support.product.cluster_watch import the_api, until

TRIES = 500


def remembered(cluster: Cluster, controller: str, name: str) -> None:
    """Returns once the controller has told the end of a reconcile: it does so a moment after its last write."""
    for _ in range(TRIES):
        if cluster.request("GET", f"/sandpool/stories/default/{controller}/{name}")["entries"]:
            return
    raise AssertionError(f"{controller} tells nothing of {name}")


async def a_bound_claim(cluster: Cluster) -> BoundSandbox:
    async with the_api(cluster.data_dir) as api:
        await api.create(TEMPLATES, yaml.safe_load(TEMPLATE), "default")
        await api.create(POOLS, yaml.safe_load(POOL), "default")
        await until(api, POOLS, lambda pools: any(pool.status.ready_replicas for pool in pools.values()))
        await api.create(CLAIMS, claim("mine"), "default")
        await until(api, CLAIMS, lambda found: any(is_true(one.status.conditions, "Ready") for one in found.values()))
        bound = (await api.get(CLAIMS, "mine", "default")).status.sandbox
        assert bound is not None
        return bound


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def why(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command in this process: what it says, and how it ends."""

    def said(*arguments: str) -> Said:
        capsys.readouterr()
        code = run(["why", *arguments])
        return Said(code, *capsys.readouterr())

    return said


def test_the_story_of_a_claim_and_of_what_it_got(tmp_path: Path, why: Callable[..., Said]) -> None:
    with running_cluster(tmp_path / "data") as cluster:
        bound = asyncio.run(a_bound_claim(cluster))
        remembered(cluster, "claim", "mine")
        told = sandpool("why", "claim/mine", *cluster.flag)
        assert told.stderr == ""
        lines = told.stdout.splitlines()
        assert lines[0] == "claim default/mine"
        assert lines[1].startswith("  Ready True since ")
        assert f"sandbox default/{bound.name}" in lines
        assert f"pod default/{bound.name}" in lines
        assert any("claim " in line and "woken by SandboxClaim" in line for line in lines)
        story = json.loads(why("sandboxclaims/mine", "-o", "json", *cluster.flag).out)["story"]
        assert {one["who"] for one in story} >= {"claim", f"sandbox {bound.name}", f"pod {bound.name}"}
        assert [one["when"][:19] for one in story] == sorted(one["when"][:19] for one in story)
        for what in (f"sandbox/{bound.name}", "pool/python", "template/python"):
            assert "woken by" in why(what, *cluster.flag).out, what

        cluster.request("DELETE", CLAIMS.path("default", "mine"))
        after = why("claim/mine", *cluster.flag)
        assert after.out.startswith("claim default/mine: it does not exist now\n")
        assert "woken by SandboxClaim" in after.out


def test_what_it_says_when_there_is_nothing_to_tell(tmp_path: Path, why: Callable[..., Said]) -> None:
    nobody = why("claim/x", "--data-dir", str(tmp_path / "none"))
    assert (nobody.code, nobody.out) == (3, "")
    assert "start it with `sandpool up --data-dir" in nobody.err
    with running_cluster(tmp_path / "data", "--backend", "none") as cluster:
        missing = why("claim/x", "-n", "team", *cluster.flag)
        assert (missing.code, missing.out) == (3, "")
        assert "there is no claim 'x' in namespace 'team'" in missing.err
        cluster.create_claim("idle")
        idle = why("claim/idle", *cluster.flag)
        assert idle.code == 0
        assert idle.out.startswith("claim default/idle\npool default/python: it does not exist now\n")
        assert "runs no controllers. Start it without `--backend none`" in idle.err
