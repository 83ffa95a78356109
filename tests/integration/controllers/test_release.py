"""What a released claim leaves behind is deleted here, sandbox first, then pod: no collector runs in these tests unless one is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from integration.controllers.box_cluster import Cluster, a_box_cluster, controlled
from sandpool.app.controller_manager import RELEASED
from sandpool.app.controllers import ControllerOptions, Workers
from sandpool.controllers.sandbox.options import Options
from sandpool.kube.api import Propagation
from sandpool.kube.errors import Unreachable
from sandpool.model.kinds import CLAIMS, PODS, SANDBOXES
from sandpool.model.patches import merge_patch
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ControlPlane, a_control_plane
from support.simulated.loop_cluster import a_cluster

OPTIONS = Options(release_after=RELEASED)
IN_HAND = OPTIONS.release_in_hand
BOTH = ["delete sandboxes", "delete pods"]


def reference(claim: Any) -> dict[str, Any]:
    return {
        "apiVersion": claim.api_version,
        "kind": claim.kind,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def claimed(cluster: Cluster, name: str = "mine", box: str = "box") -> None:
    """A claim that has a sandbox that runs."""
    claim = await cluster.api.create(
        CLAIMS, {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": "pool"}}}, "default"
    )
    await cluster.make(box)
    await cluster.api.patch(
        SANDBOXES, box, merge_patch({"metadata": {"ownerReferences": [reference(claim)]}}), "default"
    )
    await cluster.settle()
    await cluster.start(box)
    await cluster.settle(60)
    cluster.counted.clear()


@asynccontextmanager
async def a_claimed_box(options: Options = OPTIONS) -> AsyncIterator[Cluster]:
    async with a_box_cluster(options) as cluster:
        await claimed(cluster)
        yield cluster


async def release(cluster: Cluster, name: str = "mine", seconds: float = 5) -> None:
    await cluster.api.delete(CLAIMS, name, "default")
    await cluster.settle(seconds)


async def orphan(cluster: Cluster, box: str = "box") -> None:
    """What a collector does for `--cascade=orphan` before it lets the claim go."""
    await cluster.api.patch(SANDBOXES, box, merge_patch({"metadata": {"ownerReferences": None}}), "default")


@pytest.mark.looptime
async def test_the_sandbox_goes_and_then_its_pod() -> None:
    async with a_claimed_box() as cluster:
        await release(cluster)
        assert cluster.writes == BOTH
        assert cluster.refused == []
        assert len(cluster.counted.calls) == 2, "and nothing is read"
        assert await cluster.there(SANDBOXES) is None
        assert (await cluster.pod()).metadata.leaving
        await cluster.finish()
        await cluster.settle(60)
        assert len(cluster.counted.calls) == 2
        assert cluster.controller.remembered == 0


@pytest.mark.looptime
async def test_the_collector_has_a_head_start_and_what_it_did_is_not_done_again() -> None:
    async with a_claimed_box() as cluster:
        await cluster.api.delete(CLAIMS, "mine", "default")
        await cluster.settle(IN_HAND - 0.1)
        assert cluster.writes == []
        await cluster.api.delete(SANDBOXES, "box", "default")
        await cluster.api.delete(PODS, "box", "default")
        await cluster.settle(60)
        assert cluster.counted.calls == []


@pytest.mark.looptime
async def test_a_pod_that_the_collector_has_not_come_to_yet_goes_as_well() -> None:
    async with a_claimed_box() as cluster:
        await cluster.api.delete(CLAIMS, "mine", "default")
        await cluster.api.delete(SANDBOXES, "box", "default")
        await cluster.settle(5)
        assert cluster.writes == ["delete pods"]


@pytest.mark.looptime
async def test_without_the_option_all_is_left_to_the_collector() -> None:
    async with a_claimed_box(Options()) as cluster:
        await release(cluster, seconds=60)
        assert cluster.counted.calls == []


@pytest.mark.looptime
async def test_an_orphaned_sandbox_stays() -> None:
    async with a_claimed_box() as cluster:
        await cluster.api.delete(CLAIMS, "mine", "default", propagation=Propagation.ORPHAN)
        await cluster.settle(5)
        await orphan(cluster)
        await cluster.api.patch(CLAIMS, "mine", merge_patch({"metadata": {"finalizers": None}}), "default")
        await cluster.settle(60)
        assert not [write for write in cluster.writes if write.startswith("delete")]
        assert not (await cluster.sandbox()).metadata.leaving
        assert not (await cluster.pod()).metadata.leaving


@pytest.mark.looptime
async def test_an_orphaned_sandbox_stays_although_nobody_heard_of_it_yet() -> None:
    """The watch of claims told that it is gone; that of sandboxes is behind, and the finalizer was never seen."""
    async with a_claimed_box() as cluster:

        async def meanwhile(verb: str, plural: str) -> None:
            if (verb, plural) == ("delete", "sandboxes"):
                await orphan(cluster)

        cluster.flaky.before = meanwhile
        await release(cluster, seconds=60)
        assert cluster.refused == ["Conflict"]
        assert not (await cluster.sandbox()).metadata.leaving
        assert not (await cluster.pod()).metadata.leaving


@pytest.mark.looptime
async def test_a_sandbox_that_somebody_else_owns_as_well_stays() -> None:
    async with a_claimed_box() as cluster:
        other = await cluster.api.create(
            CLAIMS, {"metadata": {"name": "other"}, "spec": {"warmPoolRef": {"name": "pool"}}}, "default"
        )
        references = [reference(await cluster.api.get(CLAIMS, "mine", "default")), reference(other)]
        references[1] |= {"controller": False}
        patch = merge_patch({"metadata": {"ownerReferences": references}})
        await cluster.api.patch(SANDBOXES, "box", patch, "default")
        await cluster.settle(5)
        cluster.counted.clear()
        await release(cluster, seconds=60)
        assert not [write for write in cluster.writes if write.startswith("delete")]


@pytest.mark.looptime
async def test_a_sandbox_with_a_finalizer_keeps_its_pod_until_it_is_gone() -> None:
    async with a_claimed_box() as cluster:
        held = merge_patch({"metadata": {"finalizers": ["example.com/held"]}})
        await cluster.api.patch(SANDBOXES, "box", held, "default")
        await cluster.settle(5)
        cluster.counted.clear()
        await release(cluster, seconds=60)
        assert cluster.writes == ["delete sandboxes"]
        assert not (await cluster.pod()).metadata.leaving
        await cluster.api.patch(SANDBOXES, "box", merge_patch({"metadata": {"finalizers": None}}), "default")
        await cluster.settle(5)
        assert cluster.writes == BOTH


@pytest.mark.looptime
async def test_a_claim_that_is_made_again_under_its_name_keeps_nothing_of_the_first() -> None:
    async with a_claimed_box() as cluster:
        await cluster.api.delete(CLAIMS, "mine", "default")
        await cluster.api.create(
            CLAIMS, {"metadata": {"name": "mine"}, "spec": {"warmPoolRef": {"name": "pool"}}}, "default"
        )
        await cluster.settle(5)
        assert cluster.writes == BOTH


@pytest.mark.looptime
async def test_a_pod_that_changed_meanwhile_is_looked_at_and_deleted_all_the_same() -> None:
    async with a_claimed_box() as cluster:

        async def meanwhile(verb: str, plural: str) -> None:
            if (verb, plural) == ("delete", "pods") and not labelled:
                labelled.append(plural)
                await cluster.api.patch(PODS, "box", merge_patch({"metadata": {"labels": {"a": "b"}}}), "default")

        labelled: list[str] = []
        cluster.flaky.before = meanwhile
        await release(cluster)
        assert cluster.refused == ["Conflict"]
        assert cluster.writes == [*BOTH, "delete pods"]
        assert (await cluster.pod()).metadata.leaving


@pytest.mark.looptime
async def test_a_lost_answer_is_no_second_end() -> None:
    async with a_claimed_box() as cluster:

        async def lose(verb: str, plural: str) -> None:
            if verb == "delete" and plural not in lost:
                lost.append(plural)
                raise Unreachable("no answer")

        lost: list[str] = []
        cluster.flaky.after = lose
        await release(cluster, seconds=60)
        assert lost == ["sandboxes", "pods"]
        assert await cluster.there(SANDBOXES) is None
        assert (await cluster.pod()).metadata.leaving
        assert cluster.counted.count("delete") <= 4


@pytest.mark.looptime
async def test_a_new_leader_asks_before_it_deletes_what_was_released_while_nobody_led() -> None:
    async with a_cluster() as api:
        async with controlled(api, OPTIONS) as cluster:
            await claimed(cluster)
        await api.delete(CLAIMS, "mine", "default")
        async with controlled(api, OPTIONS) as cluster:
            await cluster.settle(5)
            assert [f"{made.verb} {made.resource}" for made in cluster.counted.calls] == ["get sandboxclaims", *BOTH]


@pytest.mark.looptime
async def test_a_claim_that_is_only_not_seen_yet_loses_nothing() -> None:
    """Its sandbox was heard of first. The server knows."""
    async with a_claimed_box() as cluster:
        claims = cluster.controller.observer.caches.claims
        (claim,) = claims.values()
        del claims.objects[claim.metadata.key]
        cluster.controller.loop.wake((await cluster.sandbox()).metadata.key, "test")
        await cluster.settle(60)
        assert cluster.counted.count("delete") == 0
        assert cluster.counted.count("get", "sandboxclaims") == 1


def test_many_at_once_cost_two_requests_each_and_the_collector_none_twice() -> None:
    """Beside a collector that never sleeps: whoever is first, each object is deleted once, and nothing is refused."""

    async def main() -> None:
        options = ControllerOptions(sandbox=OPTIONS, workers=Workers(claim=400, sandbox=400))
        async with a_control_plane(options=options) as plane:
            await plane.template()
            await plane.pool(40)
            await plane.filled(40)
            names = [f"c{index}" for index in range(30)]
            await asyncio.gather(*(plane.claim(name) for name in names))
            await plane.served(names)
            await plane.filled(40)
            await asyncio.sleep(40)
            plane.clear()
            await asyncio.gather(*(plane.user.delete(CLAIMS, name, "default") for name in names))
            await plane.until(lambda: _only_members(plane))
            await asyncio.sleep(40)
            assert sum(plane.distant.sums.values()) <= 2 * len(names)
            assert plane.distant.failures == []

    run_virtually(main())


async def _only_members(plane: ControlPlane) -> bool:
    return len(await plane.sandboxes()) == len((await plane.user.list(PODS, "default")).items) == 40
