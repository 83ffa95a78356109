"""The Sandbox controller when calls fail: what is told, what is retried, and what never happens twice."""

from __future__ import annotations

import asyncio

import pytest

from integration.controllers.box_cluster import Cluster, a_box_cluster, controlled
from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import Conflict, InternalError, Unreachable
from sandpool.model.kinds import PODS, SANDBOXES
from sandpool.model.labels import ADOPTABLE, SANDBOX_NAME_HASH
from sandpool.model.names import name_hash
from sandpool.model.patches import merge_patch
from support.simulated.loop_cluster import a_cluster

pytestmark = pytest.mark.looptime

IS_READY = ("True", "DependenciesReady")


class Faults:
    """Makes calls fail: the given verb and plural, so many times."""

    def __init__(self, verb: str, plural: str, times: int, error: SandpoolError) -> None:
        self.what, self.times, self.error = (verb, plural), times, error

    async def __call__(self, verb: str, plural: str) -> None:
        if (verb, plural) == self.what and self.times > 0:
            self.times -= 1
            raise self.error


def outcomes(cluster: Cluster, word: str) -> float | None:
    labels = {"controller": "sandbox", "outcome": word}
    return cluster.metrics.registry.get_sample_value("sandpool_reconciles_total", labels)


async def running(cluster: Cluster) -> None:
    await cluster.settle()
    await cluster.start()
    await cluster.settle()


async def test_an_answer_that_was_lost_makes_no_second_pod() -> None:
    async with a_box_cluster() as cluster:
        cluster.flaky.after = Faults("create", "pods", 1, Unreachable("cut"))
        await cluster.make()
        await running(cluster)
        assert await cluster.ready() == IS_READY
        assert cluster.counted.count("create", "pods", "ok") == 0
        assert len((await cluster.api.list(PODS, "default")).items) == 1
        assert await cluster.said("Healthy") is None


async def test_w4_a_pod_that_the_cache_does_not_show_is_found_on_the_server() -> None:
    async with a_box_cluster() as cluster:

        async def deaf(verb: str, plural: str) -> None:
            if (verb, plural) == ("create", "pods"):
                cluster.api.flow.clear()  # from now on the watches say nothing

        cluster.flaky.before = deaf
        cluster.flaky.after = Faults("create", "pods", 1, Unreachable("cut"))
        await cluster.make()
        await cluster.settle(0.5)
        assert cluster.refused == ["Unreachable", "AlreadyExists"]
        assert cluster.counted.count("get", "pods", "ok") == 1
        await cluster.settle(2)
        assert cluster.refused == ["Unreachable", "AlreadyExists"], "it is known now"
        assert await cluster.said("Healthy") is None
        cluster.api.flow.set()


async def test_w7_a_pod_outside_the_cache_is_taken_over() -> None:
    async with a_cluster() as api, controlled(api, tracked_only=True) as cluster:
        spec = {"containers": [{"name": "main", "image": "python"}]}
        await api.create(PODS, {"metadata": {"name": "box", "labels": {ADOPTABLE: "true"}}, "spec": spec}, "default")
        await cluster.make()
        await running(cluster)
        assert await cluster.ready() == IS_READY
        assert cluster.writes == ["create pods", "patch pods", "patch_status sandboxes"]
        lost = merge_patch({"metadata": {"labels": {SANDBOX_NAME_HASH: None}}})
        await api.patch(PODS, "box", lost, "default")
        await cluster.settle(5)
        assert (await cluster.pod()).metadata.labels[SANDBOX_NAME_HASH] == name_hash("box")
        assert await cluster.ready() == IS_READY


async def test_w4_looking_again_before_the_watch_speaks_writes_nothing() -> None:
    async with a_box_cluster() as cluster:
        box = await cluster.make()
        await asyncio.sleep(0)
        await cluster.settle()
        cluster.api.flow.clear()
        for _ in range(10):
            cluster.controller.loop.wake(box.metadata.key, "test")
            await cluster.settle()
        assert cluster.writes == ["create pods"]
        cluster.api.flow.set()


async def test_a_failure_that_passes_quickly_is_not_told() -> None:
    async with a_box_cluster() as cluster:
        cluster.flaky.before = Faults("create", "pods", 3, InternalError("no"))
        await cluster.make()
        await cluster.settle(0.2)
        await running(cluster)
        assert await cluster.ready() == IS_READY
        assert cluster.counted.count("patch_status") == 1


async def test_w20_a_failure_that_lasts_is_told_beside_ready_and_taken_back() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        since = [c.last_transition_time for c in (await cluster.sandbox()).status.conditions if c.type == "Ready"]
        faults = Faults("patch", "pods", 10**6, InternalError("no"))
        cluster.flaky.before = faults
        await cluster.edit(podTemplate={"metadata": {"labels": {"app": "x"}}})
        await cluster.settle(10)
        assert await cluster.ready() == IS_READY
        assert await cluster.said("Healthy") == ("False", "ControllerTrouble")
        faults.times = 0
        await cluster.settle(60)
        assert (await cluster.pod()).metadata.labels["app"] == "x"
        assert await cluster.said("Healthy") is None
        assert since == [
            c.last_transition_time for c in (await cluster.sandbox()).status.conditions if c.type == "Ready"
        ]
        assert [event.reason for event in await cluster.events()] == ["ControllerTrouble"]


async def test_w1_a_claim_that_cannot_be_made_keeps_the_pod_away() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    async with a_box_cluster() as cluster:
        faults = Faults("create", "persistentvolumeclaims", 10**6, InternalError("no"))
        cluster.flaky.before = faults
        await cluster.make(volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": spec}])
        await cluster.settle(5)
        assert cluster.counted.count("create", "pods") == 0
        assert await cluster.ready() == ("False", "ReconcilerError")
        faults.times = 0
        await cluster.settle(60)
        await running(cluster)
        assert await cluster.ready() == IS_READY


async def test_a_status_that_could_not_be_written_is_written_later() -> None:
    async with a_box_cluster() as cluster:
        cluster.flaky.before = Faults("patch_status", "sandboxes", 2, InternalError("no"))
        await cluster.make()
        await running(cluster)
        await cluster.settle(1)
        assert await cluster.ready() == IS_READY


async def test_w6_a_pod_that_is_gone_already_is_no_error_on_suspension() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()

        async def faster(verb: str, plural: str) -> None:
            if (verb, plural) == ("delete", "pods"):
                await cluster.api.delete(PODS, "box", "default", grace=0)

        cluster.flaky.before = faster
        await cluster.edit(operatingMode="Suspended")
        await cluster.settle(5)
        assert await cluster.said("Suspended") == ("True", "PodTerminated")
        assert await cluster.said("Healthy") is None
        assert outcomes(cluster, "error") == 0


async def test_w6_a_successor_is_not_deleted_for_its_predecessor() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "python"}]}

        async def swap(verb: str, plural: str) -> None:
            if (verb, plural) == ("delete", "pods"):
                await cluster.api.delete(PODS, "box", "default", grace=0)
                await cluster.api.create(PODS, {"metadata": {"name": "box"}, "spec": spec}, "default")

        cluster.flaky.before = swap
        await cluster.edit(operatingMode="Suspended")
        await cluster.settle(5)
        assert not (await cluster.pod()).metadata.leaving
        assert await cluster.said("Suspended") == ("False", "PodNotOwned")
        assert outcomes(cluster, "conflict") == 0, "the one that was meant is gone: nothing to try again"


async def test_w8_its_own_writes_do_not_wake_it() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running(service=True)
        before = cluster.reconciles
        await cluster.settle(3600)
        assert cluster.reconciles == before


async def test_w19_an_end_is_told_once_while_the_watch_is_slow() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        await cluster.edit(shutdownTime="2025-01-01T00:00:00Z")
        await cluster.settle()
        box = await cluster.sandbox()
        cluster.counted.clear()
        cluster.api.flow.clear()
        for _ in range(5):
            cluster.controller.loop.wake(box.metadata.key, "test")
            await cluster.settle()
        assert cluster.writes == [], "neither the status nor the delete is repeated"
        cluster.api.flow.set()


async def test_a_sandbox_that_was_made_anew_gets_no_status_of_the_old_one() -> None:
    async with a_box_cluster() as cluster:
        await cluster.make()
        await cluster.settle()

        async def anew(verb: str, plural: str) -> None:
            if (verb, plural) == ("patch_status", "sandboxes"):
                cluster.flaky.before = nothing
                await cluster.api.delete(SANDBOXES, "box", "default")
                await cluster.make()

        async def nothing(verb: str, plural: str) -> None: ...

        cluster.flaky.before = anew
        await cluster.api.patch_status(
            PODS,
            "box",
            merge_patch({"status": {"phase": "Failed"}}),
            "default",
        )
        await cluster.settle(5)
        assert cluster.refused == ["Invalid"]
        assert await cluster.said("Finished") is None
        assert await cluster.ready() == ("False", "DependenciesNotReady"), "it waits for the pod of its predecessor"


async def test_a_pod_that_can_never_be_is_refused_and_not_tried_again_by_the_clock() -> None:
    async with a_box_cluster() as cluster:
        spec = {"containers": [{"name": "Not A Name", "image": "python"}]}
        await cluster.make(podTemplate={"spec": spec})
        await cluster.settle(5)
        assert cluster.writes == ["create pods", "patch_status sandboxes"], "told at once, and tried once"
        assert await cluster.ready() == ("False", "ReconcilerError")
        assert await cluster.said("Healthy") == ("False", "ConfigurationTrouble")
        tries = cluster.counted.count("create", "pods")
        await cluster.settle(3600)
        assert cluster.counted.count("create", "pods") == tries
        await cluster.edit(podTemplate={"spec": {"containers": [{"name": "main", "image": "python"}]}})
        await running(cluster)
        assert await cluster.ready() == IS_READY


async def test_a_pod_that_goes_while_it_is_patched_is_no_error() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()

        async def faster(verb: str, plural: str) -> None:
            if (verb, plural) == ("patch", "pods"):
                await cluster.finish()

        cluster.flaky.before = faster
        await cluster.edit(podTemplate={"metadata": {"labels": {"app": "x"}}})
        await running(cluster)
        assert await cluster.ready() == IS_READY
        assert (await cluster.pod()).metadata.labels["app"] == "x"
        assert outcomes(cluster, "error") == 0


async def test_while_nobody_knows_whether_there_is_a_pod_that_is_said() -> None:
    async with a_box_cluster() as cluster:
        faults = Faults("create", "pods", 10**6, Unreachable("cut"))
        cluster.flaky.before = faults
        await cluster.make()
        await cluster.settle(5)
        assert await cluster.said("PodScheduled") == ("Unknown", "PodSchedulingUnknown")
        assert await cluster.said("Healthy") == ("False", "ControllerTrouble")
        faults.times = 0
        await cluster.settle(60)
        await running(cluster)
        assert await cluster.ready() == IS_READY
        assert await cluster.said("Healthy") is None


async def test_nothing_is_remembered_of_sandboxes_that_are_gone() -> None:
    async with a_box_cluster() as cluster:
        for number in range(10):
            await cluster.make(f"box-{number}")
        await cluster.settle()
        for number in range(10):
            await cluster.api.delete(SANDBOXES, f"box-{number}", "default")
        await cluster.settle()
        assert cluster.controller.remembered == 0


async def test_the_end_of_a_sandbox_is_not_told_of_its_successor() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running(shutdownTime="2026-01-01T00:01:00Z")

        async def anew(verb: str, plural: str) -> None:
            if (verb, plural) == ("delete", "pods"):
                await cluster.api.delete(SANDBOXES, "box", "default")
                await cluster.make()
                await asyncio.sleep(0.1)  # the watch says so before the pass is over

        cluster.flaky.before = anew
        cluster.counted.clear()
        await cluster.settle(70)
        told = [made for made in cluster.counted.calls if made.verb == "patch_status" and "Expired" in str(made.patch)]
        assert len(told) == 1, "of the first one"
        assert await cluster.ready() == ("False", "DependenciesNotReady")


async def test_a_conflict_that_is_about_something_else_does_not_spare_the_pod() -> None:
    async with a_box_cluster() as cluster:
        await cluster.running()
        cluster.flaky.before = Faults("delete", "pods", 1, Conflict("the server could not decide"))
        await cluster.edit(operatingMode="Suspended")
        await cluster.settle(1)
        assert cluster.counted.count("delete", "pods", "Conflict") == 1
        assert (await cluster.pod()).metadata.leaving
