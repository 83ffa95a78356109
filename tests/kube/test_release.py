"""What claims release on a real cluster, beside its real garbage collector: who deletes it, and how many requests that takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from sandpool.kube.api import Propagation
from sandpool.model.kinds import CLAIMS, PODS, SANDBOXES
from support.kube import server as kube_server
from support.kube.access import USER
from support.kube.audit import Audit
from support.kube.process import controller
from support.kube.stage import Stage, User, a_stage, a_user

pytestmark = [pytest.mark.kube, pytest.mark.alone, pytest.mark.timeout(600)]

KINDS = ("sandboxes", "pods")
COLLECTOR = "generic-garbage-collector"
MANY, PATIENCE = 120, 180.0


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with (
        a_stage(tmp_path_factory.mktemp("stage"), "release") as stage,
        controller(stage.folder, stage.identity.kubeconfig) as process,
    ):
        process.wait_ready(leading=True)
        yield stage


async def served(user: User, count: int) -> dict[str, str]:
    await user.template()
    await user.pool(count)
    await user.filled(count, seconds=PATIENCE)
    names = [f"c{index}" for index in range(count)]
    await asyncio.gather(*(user.claim(name) for name in names))
    bound = await user.served(*names, seconds=PATIENCE)
    await user.filled(count, seconds=PATIENCE)
    return bound


async def gone(user: User, *names: str) -> None:
    async def none_left() -> bool:
        left = {one.metadata.name for kind in (SANDBOXES, PODS) for one in await user.all(kind)}
        return not left.intersection(names)

    await user.until(none_left, f"{len(names)} sandboxes and their pods are gone", PATIENCE)


def about(audit: Audit, namespace: str, who: str) -> Counter[str]:
    """Requests about sandboxes and pods, and about the claims that the collector asks for."""
    return Counter(
        f"{each.about} {each.code}"
        for each in audit.requests()
        if each.namespace == namespace
        and each.resource in ("sandboxes", "pods", "sandboxclaims")
        and (each.user == USER if who == USER else COLLECTOR in each.agent)
        and each.verb in ("get", "delete")
    )


async def test_many_released_claims_are_not_left_to_the_collector(stage: Stage) -> None:
    async with a_user(stage, "many") as user:
        bound = await served(user, MANY)
        audit = stage.audit
        audit.mark()
        await asyncio.gather(*(user.delete(CLAIMS, name) for name in bound))
        await gone(user, *bound.values())
        ours, collector = about(audit, "many", USER), about(audit, "many", COLLECTOR)
        deletes = {kind: sum(n for what, n in ours.items() if what.startswith(f"delete {kind}")) for kind in KINDS}
        assert all(number <= 1.05 * MANY for number in deletes.values()), (ours, collector)
        assert sum(deletes.values()) > MANY / 2, (ours, collector)
        assert not ours["get sandboxclaims 404"], "their end was seen"
        # Alone the collector reads and deletes each sandbox and each pod.
        assert sum(ours.values()) + sum(collector.values()) <= 4 * MANY, (ours, collector)


async def test_an_orphaned_sandbox_keeps_running(stage: Stage) -> None:
    async with a_user(stage, "orphan") as user:
        bound = await served(user, 3)
        await user.api.delete(CLAIMS, "c0", "orphan", propagation=Propagation.ORPHAN)

        async def orphaned() -> bool:
            box = await user.get(SANDBOXES, bound["c0"])
            return not box.metadata.owner_references and "c0" not in {
                one.metadata.name for one in await user.all(CLAIMS)
            }

        await user.until(orphaned, "the claim is gone and its sandbox nobody's")
        await user.delete(CLAIMS, "c1")  # released later, and gone
        await gone(user, bound["c1"])
        for kind in (SANDBOXES, PODS):
            assert not (await user.get(kind, bound["c0"])).metadata.leaving
