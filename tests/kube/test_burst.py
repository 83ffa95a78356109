"""What a burst of claims costs on a real cluster, counted by the API server itself: its audit log, not our own counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS
from support.kube import server as kube_server
from support.kube.access import USER
from support.kube.process import controller
from support.kube.stage import Stage, User, a_stage, a_user

pytestmark = [pytest.mark.kube, pytest.mark.alone, pytest.mark.timeout(900)]

MOST_WRITES = 8  # per claim, the refill included, and the status of its pool not, which one write tells for many claims
WORKERS = (
    "--sandbox-claim-concurrent-workers=400",
    "--sandbox-concurrent-workers=400",
    "--kube-api-qps=-1",
)
PATIENCE = 300.0


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with a_stage(tmp_path_factory.mktemp("stage"), "burst") as stage:
        yield stage


async def quiet(user: User, stage: Stage) -> None:
    """Nothing that the controllers could still say is unsaid: no write of theirs for some seconds."""
    audit = stage.audit
    seen = -1

    async def silent() -> bool:
        nonlocal seen
        before, seen = seen, sum(audit.writes(USER).values())
        if before != seen:
            await asyncio.sleep(5)
        return before == seen

    await user.until(silent, "no writes for some seconds", PATIENCE)


async def test_five_bursts_of_300_claims_on_a_pool_of_600(stage: Stage) -> None:
    with controller(stage.folder, stage.identity.kubeconfig, *WORKERS) as process:
        process.wait_ready(leading=True)
        async with a_user(stage, "bursts") as user:
            await user.template()
            await user.pool(600)
            await user.filled(600, seconds=PATIENCE)
            await quiet(user, stage)
            audit = stage.audit
            audit.mark()
            for number in range(5):
                names = [f"c{number}-{index}" for index in range(300)]
                await asyncio.gather(*(user.claim(name) for name in names))
                await user.served(*names, seconds=PATIENCE)
                await user.filled(600, seconds=PATIENCE)
            await quiet(user, stage)
            claims: list[SandboxClaim] = await user.all(CLAIMS)
            bound = [claim.status.sandbox.name for claim in claims if claim.status.sandbox is not None]
            assert len(bound) == len(set(bound)) == 1500
            held(audit.writes(USER), 1500)
            # An Event is written when there is time. On a busy server one may run into the time limit of a write.
            assert {what: count for what, count in audit.refused(USER).items() if " events " not in what} == {}
            assert not Counter(
                each.about for each in audit.requests(USER) if each.verb == "get" and work(each.resource)
            )
            assert "traceback" not in process.log.read_text(), process.tail()


def work(resource: str) -> bool:
    return resource not in ("leases", "customresourcedefinitions")


def held(writes: Counter[str], claims: int) -> None:
    """The budget of one warm claim, refill included."""
    told = {name: count for name, count in writes.items() if not name.endswith(" events")}
    assert sum(told.values()) - writes["patch sandboxwarmpools/status"] <= MOST_WRITES * claims, writes
    assert writes["patch sandboxes"] == claims  # the transfers
    assert writes["patch sandboxclaims/status"] == claims  # the bindings
    assert writes["patch sandboxclaims"] <= 2 * claims  # which sandbox, and when it was first ready
    assert writes["create sandboxes"] == writes["create pods"] == writes["patch pods"] == claims
    # One when it becomes Ready. That it starts is told only of one that takes longer than the controller has patience for.
    assert claims <= writes["patch sandboxes/status"] <= 1.05 * claims
    assert writes["patch sandboxwarmpools/status"] < 0.1 * claims
    assert sum(writes.values()) - sum(told.values()) <= claims  # at most one Event for each
