"""A kubelet in virtual time: what becomes of pods, what it costs, and that nothing is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest

from sandpool.base.clock import LoopClock
from sandpool.controlplane.apiserver.tables.core import PODS as COLUMNS
from sandpool.kube.api import Api
from sandpool.model.kinds import LEASES, NODES, PODS, raw
from sandpool.model.metadata import Uid
from sandpool.model.patches import json_patch, merge_patch
from sandpool.node.backend import BackendError, Workload
from sandpool.node.kubelet.options import KubeletOptions
from sandpool.node.runtimes.fake import EXIT_AFTER, EXIT_CODE, NEVER_READY, START_ERROR, FakeBackend, FakeOptions
from support.api.flaky_api import FlakyApi, nothing
from support.simulated.kubelet_node import ANode, Body, a_node, a_pod, condition

pytestmark = pytest.mark.looptime

SLOW = FakeOptions(start=(5, 5), ready=(5, 5), stop=(3, 3))


def columns(pod: Body, now: datetime) -> dict[str, object]:
    return {column.name: column.cell(pod, now) for column in COLUMNS}


async def test_300_pods_become_ready_with_one_write_each() -> None:
    async with a_node() as node:
        await asyncio.sleep(1)
        node.api.clear()
        await asyncio.gather(*(node.create(a_pod(f"p{i}")) for i in range(300)))
        await asyncio.sleep(3)
        pods = [(await node.get(f"p{i}")) for i in range(300)]
        assert all(condition(pod, "Ready") == "True" for pod in pods)
        assert len({pod["status"]["podIP"] for pod in pods}) == 300
        assert node.api.count("create") == 0, "they had their node from the start"
        assert node.api.count("patch_status", "pods") == 300
        written = [made for made in node.api.calls if made.verb in ("create", "patch_status", "delete")]
        assert all(made.outcome == "ok" for made in written)
        assert node.api.count(verb="get") == 0


async def test_a_pod_reads_as_kubectl_shows_it() -> None:
    async with a_node(options=KubeletOptions(node="here", address="192.0.2.7")) as node:
        await node.create(a_pod())
        await asyncio.sleep(1)
        pod = await node.get()
        shown = columns(pod, node.clock.now())
        assert (shown["Ready"], shown["Status"], shown["Restarts"]) == ("1/1", "Running", "0")
        assert (shown["IP"], shown["Node"]) == (pod["status"]["podIP"], "here")
        status = pod["status"]
        assert status["phase"] == "Running"
        assert status["hostIP"] == "192.0.2.7"
        assert status["podIPs"] == [{"ip": status["podIP"]}]
        assert status["qosClass"] == "BestEffort"
        assert [c["type"] for c in status["conditions"] if c["status"] == "True"] == [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        ]


async def test_the_sequence_of_a_slow_pod() -> None:
    async with a_node(SLOW) as node:
        await node.create(a_pod())
        await asyncio.sleep(1)
        pod = await node.get()
        assert columns(pod, node.clock.now())["Status"] == "ContainerCreating"
        assert (pod["status"]["phase"], condition(pod, "PodScheduled")) == ("Pending", "True")
        assert "podIP" not in pod["status"]
        began = pod["status"]["startTime"]
        await asyncio.sleep(6)  # it runs, and the difference has waited long enough for company
        pod = await node.get()
        assert (pod["status"]["phase"], condition(pod, "Ready")) == ("Running", "False")
        assert columns(pod, node.clock.now())["Ready"] == "0/1"
        await asyncio.sleep(5)
        pod = await node.get()
        assert condition(pod, "Ready") == "True"
        assert pod["status"]["startTime"] == began


async def test_a_pod_that_is_never_ready() -> None:
    async with a_node() as node:
        await node.create(a_pod(annotations={NEVER_READY: "true"}))
        await asyncio.sleep(3600)
        pod = await node.get()
        assert (pod["status"]["phase"], condition(pod, "Ready")) == ("Running", "False")
        assert node.api.count("patch_status", "pods") == 1


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")],
)
async def test_pods_that_finish(policy: str, code: int, phase: str) -> None:
    async with a_node() as node:
        notes = {EXIT_AFTER: "5", EXIT_CODE: str(code)}
        await node.create(a_pod(annotations=notes, restartPolicy=policy))
        await asyncio.sleep(10)
        pod = await node.get()
        assert pod["status"]["phase"] == phase
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == code
        assert columns(pod, node.clock.now())["Status"] == ("Completed" if code == 0 else "Error")
        assert condition(pod, "Ready") == "False"
        writes = node.api.writes
        await node.restart()
        await asyncio.sleep(5)
        assert node.api.count("patch_status", "pods") <= 3
        assert (await node.get())["status"] == pod["status"]
        assert writes > 0
        await node.delete()
        await asyncio.sleep(5)
        assert await node.names() == []
        assert node.left == 0


async def test_restarts_back_off() -> None:
    async with a_node() as node:
        await node.create(a_pod(annotations={EXIT_AFTER: "1", EXIT_CODE: "1"}))
        await asyncio.sleep(5)  # ended after 1 s, restarted at once, ended again
        pod = await node.get()
        assert columns(pod, node.clock.now())["Status"] == "CrashLoopBackOff"
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
        assert pod["status"]["phase"] == "Running"
        await asyncio.sleep(10)
        assert (await node.get())["status"]["containerStatuses"][0]["restartCount"] == 2
        await asyncio.sleep(12)
        assert (await node.get())["status"]["containerStatuses"][0]["restartCount"] == 2
        await asyncio.sleep(10)
        assert (await node.get())["status"]["containerStatuses"][0]["restartCount"] == 3


async def test_a_pod_that_cannot_start_says_why_and_is_tried_again_ever_later() -> None:
    async with a_node() as node:
        await node.create(a_pod(annotations={START_ERROR: "ErrImagePull"}))
        await asyncio.sleep(100)
        pod = await node.get()
        assert columns(pod, node.clock.now())["Status"] == "ErrImagePull"
        assert pod["status"]["phase"] == "Pending"
        assert START_ERROR in pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
        assert node.api.count("patch_status", "pods") <= 2
        await node.delete()
        await asyncio.sleep(1)
        assert await node.names() == []
        assert node.left == 0


async def test_init_containers_have_run() -> None:
    async with a_node() as node:
        await node.create(a_pod(initContainers=[{"name": "first", "image": "host"}]))
        await asyncio.sleep(3)
        pod = await node.get()
        assert condition(pod, "Initialized") == "True"
        assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
        assert columns(pod, node.clock.now())["Status"] == "Running"


MOMENTS = [0.0, 0.0001, 1.0, 5.5, 6.9, 11.0]
"""Before the kubelet has seen the pod, while it starts, while it is not ready, when it is ready (SLOW)."""


@pytest.mark.parametrize("grace", [None, 1, 0])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_delete_in_every_state_leaves_nothing(moment: float, grace: int | None) -> None:
    async with a_node(SLOW) as node:
        await asyncio.sleep(1)
        await node.create(a_pod())
        await asyncio.sleep(moment)
        await node.delete(grace=grace)
        await asyncio.sleep(40)
        assert await node.names() == []
        assert node.left == 0
        assert node.api.count(outcome="Conflict") == 0


async def test_a_graceful_end_keeps_the_pod_until_it_has_stopped() -> None:
    async with a_node(SLOW) as node:
        await node.create(a_pod())
        await asyncio.sleep(20)
        await node.delete()
        await asyncio.sleep(2.5)
        assert columns(await node.get(), node.clock.now())["Status"] == "Terminating"
        await asyncio.sleep(1)
        assert await node.names() == []


async def test_a_grace_that_shrinks_is_followed() -> None:
    async with a_node(FakeOptions(stop=(25, 25))) as node:
        await node.create(a_pod())
        await asyncio.sleep(2)
        await node.delete()
        await asyncio.sleep(1)
        await node.delete(grace=2)
        await asyncio.sleep(2.5)
        assert await node.names() == []


async def test_a_pod_of_the_same_name_is_another_pod() -> None:
    async with a_node(FakeOptions(stop=(10, 10))) as node:
        await node.create(a_pod())
        await asyncio.sleep(2)
        first = await node.get()
        await node.delete(grace=0)  # gone at once, though the backend has it for a while
        await node.create(a_pod())
        await asyncio.sleep(2)
        second = await node.get()
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert condition(second, "Ready") == "True"
        assert len(node.backend.list_pods()) == 1


async def test_a_pod_held_by_a_finalizer_ends_and_says_so_once() -> None:
    async with a_node() as node:
        body = a_pod()
        body["metadata"]["finalizers"] = ["example.com/hold"]
        await node.create(body)
        await asyncio.sleep(2)
        await node.delete()
        await asyncio.sleep(60)
        pod = await node.get()
        assert pod["status"]["phase"] == "Failed"
        assert condition(pod, "Ready") == "False"
        assert node.backend.list_pods() == []
        assert node.api.count("delete", "pods") == 1
        await node.api.inner.patch(PODS, "p", merge_patch({"metadata": {"finalizers": None}}), "default")
        await asyncio.sleep(1)
        assert await node.names() == []
        assert node.left == 0


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_restart_in_every_state_loses_nothing(moment: float) -> None:
    async with a_node(SLOW) as node:
        await asyncio.sleep(1)
        await node.create(a_pod())
        await asyncio.sleep(moment)
        before = await node.get()
        await node.restart()
        await asyncio.sleep(30)
        after = await node.get()
        assert condition(after, "Ready") == "True"
        if condition(before, "Ready") == "True":
            assert after["status"] == before["status"]
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        if "podIP" in before["status"]:
            assert after["status"]["podIP"] == before["status"]["podIP"]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_delete_while_the_kubelet_is_down(moment: float) -> None:
    async with a_node(SLOW) as node:
        await asyncio.sleep(1)
        await node.create(a_pod())
        await asyncio.sleep(moment)
        await node.stop()
        await node.delete()
        node.backend = node.make_backend()
        node.start()
        await asyncio.sleep(40)
        assert await node.names() == []
        assert node.left == 0


class Surviving(FakeBackend):
    """A backend whose pods outlive the process."""

    async def close(self) -> None:
        return None


async def test_pods_that_survived_are_found_and_strays_are_stopped() -> None:
    survivor: list[Surviving] = []

    def same(clock: LoopClock) -> Surviving:
        if not survivor:
            survivor.append(Surviving(clock))
        return survivor[0]

    async with a_node(make_backend=same) as node:
        await node.create(a_pod("kept"))
        await node.create(a_pod("gone"))
        await asyncio.sleep(2)
        kept = await node.get("kept")
        await node.stop()
        await node.delete("gone", grace=0)
        writes = node.api.count("patch_status", "pods")
        node.start()
        await asyncio.sleep(2)
        assert [seen.key.name for seen in node.backend.list_pods()] == ["kept"]
        assert await node.get("kept") == kept
        assert node.api.count("patch_status", "pods") == writes


async def test_a_cordoned_node_takes_no_pods_and_says_so() -> None:
    async with a_node() as node:
        await asyncio.sleep(1)
        await node.api.inner.patch(NODES, "local", merge_patch({"spec": {"unschedulable": True}}))
        await node.create(a_pod())
        await asyncio.sleep(1)
        pod = await node.get()
        assert condition(pod, "PodScheduled") == "False"
        assert "kubectl uncordon local" in pod["status"]["conditions"][0]["message"]
        await node.api.inner.patch(NODES, "local", merge_patch({"spec": {"unschedulable": None}}))
        await asyncio.sleep(1)
        assert condition(await node.get(), "Ready") == "True"


async def test_a_gate_holds_a_pod_until_it_is_lifted() -> None:
    async with a_node() as node:
        await node.create(a_pod(schedulingGates=[{"name": "example.com/wait"}]))
        await asyncio.sleep(1)
        assert "nodeName" not in (await node.get())["spec"]
        await node.api.inner.patch(PODS, "p", merge_patch({"spec": {"schedulingGates": []}}), "default")
        await asyncio.sleep(1)
        assert condition(await node.get(), "Ready") == "True"


async def test_pods_of_other_nodes_are_left_alone() -> None:
    async with a_node() as node:
        await node.create(a_pod(nodeName="elsewhere"))
        await asyncio.sleep(5)
        assert (await node.get())["status"]["phase"] == "Pending"
        assert node.api.count("patch_status", "pods") == 0
        assert node.left == 0


async def test_conditions_of_others_stay_and_gates_are_obeyed() -> None:
    gate = {"type": "example.com/gate", "status": "False", "lastProbeTime": None}
    add = json_patch([{"op": "add", "path": "/status/conditions/-", "value": gate}])
    async with a_node(SLOW) as node:
        await node.create(a_pod(readinessGates=[{"conditionType": "example.com/gate"}]))
        await asyncio.sleep(2)
        await node.api.inner.patch_status(PODS, "p", add, "default")
        await asyncio.sleep(20)
        pod = await node.get()
        assert (condition(pod, "ContainersReady"), condition(pod, "Ready")) == ("True", "False")
        assert condition(pod, "example.com/gate") == "False"
        index = [c["type"] for c in pod["status"]["conditions"]].index("example.com/gate")
        lift = json_patch([{"op": "replace", "path": f"/status/conditions/{index}/status", "value": "True"}])
        await node.api.inner.patch_status(PODS, "p", lift, "default")
        await asyncio.sleep(1)
        assert condition(await node.get(), "Ready") == "True"


async def test_a_status_that_somebody_spoils_is_put_right() -> None:
    async with a_node() as node:
        await node.create(a_pod())
        await asyncio.sleep(2)
        good = await node.get()
        await node.api.inner.patch_status(PODS, "p", merge_patch({"status": {"podIP": "192.0.2.1"}}), "default")
        await asyncio.sleep(5)
        assert (await node.get())["status"]["podIP"] == good["status"]["podIP"]


async def test_the_node_is_registered_renewed_and_registered_again() -> None:
    async with a_node() as node:
        await asyncio.sleep(1)
        made = (await node.api.inner.get(raw(NODES), "local")).body
        assert [c["status"] for c in made["status"]["conditions"] if c["type"] == "Ready"] == ["True"]
        assert made["status"]["capacity"] == made["status"]["allocatable"]
        first = await node.api.inner.get(LEASES, "local", "kube-node-lease")
        await asyncio.sleep(35)
        later = await node.api.inner.get(LEASES, "local", "kube-node-lease")
        assert first.spec.renew_time is not None
        assert later.spec.renew_time is not None
        assert (later.spec.renew_time - first.spec.renew_time).total_seconds() == pytest.approx(30, abs=0.1)
        await node.api.inner.delete(NODES, "local")
        await node.api.inner.delete(LEASES, "local", "kube-node-lease")
        await asyncio.sleep(11)
        again = (await node.api.inner.get(raw(NODES), "local")).body
        assert again["metadata"]["uid"] != made["metadata"]["uid"]
        assert (await node.api.inner.get(LEASES, "local", "kube-node-lease")).spec.holder_identity == "local"


async def test_the_same_seed_gives_the_same_run() -> None:
    async def statuses() -> list[object]:
        async with a_node(FakeOptions(seed=7, start=(0, 5), ready=(0, 5), failure_rate=0.3)) as node:
            for i in range(20):
                await node.create(a_pod(f"p{i}"))
            await asyncio.sleep(4)
            return [(await node.get(f"p{i}"))["status"] for i in range(20)]

    first = await statuses()
    assert first == await statuses()
    assert {s["phase"] for s in first if isinstance(s, dict)} == {"Pending", "Running"}


async def test_every_pod_converges_when_starts_fail() -> None:
    async with a_node(FakeOptions(failure_rate=0.5)) as node:
        for i in range(30):
            await node.create(a_pod(f"p{i}"))
        await asyncio.sleep(7200)
        pods = [await node.get(f"p{i}") for i in range(30)]
        assert {condition(pod, "Ready") for pod in pods} == {"True"}
        assert any(pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods)


async def test_churn_leaves_nothing() -> None:
    async with a_node() as node:
        for turn in range(5):
            await asyncio.gather(*(node.create(a_pod(f"p{turn}-{i}")) for i in range(40)))
            await asyncio.sleep(0.03)  # some run by now, some do not
            await asyncio.gather(*(node.delete(f"p{turn}-{i}") for i in range(40)))
        await asyncio.sleep(60)
        assert await node.names() == []
        assert node.left == 0


class Stubborn(FakeBackend):
    """The first orders to stop fail."""

    failed = 0

    async def stop_pod(self, uid: Uid, grace: float) -> None:
        if self.failed < 3:
            self.failed += 1
            raise BackendError("Busy", "not now")
        await super().stop_pod(uid, grace)


async def test_a_stop_that_fails_is_ordered_again() -> None:
    async with a_node(make_backend=Stubborn) as node:
        await node.create(a_pod())
        await asyncio.sleep(2)
        await node.delete()
        await asyncio.sleep(5)
        assert await node.names() == []
        assert node.left == 0


async def test_the_last_delete_means_the_pod_that_was_stopped() -> None:
    """The pod is forced out and made again at the very moment when the kubelet deletes the one that it has stopped."""
    made: list[FlakyApi] = []

    def between(api: Api) -> FlakyApi:
        made.append(FlakyApi(api))
        return made[0]

    async with a_node(between=between) as node:

        async def swap(verb: str, plural: str) -> None:
            if verb == "delete":
                made[0].before = nothing
                await node.delete(grace=0)
                await node.create(a_pod())

        await node.create(a_pod())
        await asyncio.sleep(2)
        made[0].before = swap
        first = await node.get()
        await node.delete()
        await asyncio.sleep(5)
        second = await node.get()
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert condition(second, "Ready") == "True"


class Unsteady(FakeBackend):
    """The first starts fail."""

    failed = 0

    async def start_pod(self, workload: Workload) -> None:
        if self.failed < 3:
            self.failed += 1
            raise BackendError("Unlucky", "not this time")
        await super().start_pod(workload)


async def test_trouble_that_is_over_is_forgotten() -> None:
    async with a_node(make_backend=Unsteady) as node:
        await node.create(a_pod())
        await asyncio.sleep(1)
        assert columns(await node.get(), node.clock.now())["Status"] == "Unlucky"
        await asyncio.sleep(20)
        good = await node.get()
        assert condition(good, "Ready") == "True"
        await node.backend.stop_pod(Uid(good["metadata"]["uid"]), 0)  # as if it had been lost
        await asyncio.sleep(20)
        assert await node.get() == good, "brought back as it was, with nothing to tell"
        assert len(node.backend.list_pods()) == 1


async def test_a_restart_keeps_the_count_of_restarts() -> None:
    async with a_node() as node:
        await node.create(a_pod(annotations={EXIT_AFTER: "1", EXIT_CODE: "1"}))
        await asyncio.sleep(5)
        before = await node.get()
        assert columns(before, node.clock.now())["Status"] == "CrashLoopBackOff"
        await node.restart()
        await asyncio.sleep(1)
        assert (await node.get())["status"] == before["status"]
        await asyncio.sleep(10)
        assert (await node.get())["status"]["containerStatuses"][0]["restartCount"] == 2


async def test_another_process_tells_the_node_what_it_is() -> None:
    async with a_node() as node:
        await asyncio.sleep(1)
        node.options = replace(node.options, version="v9")
        await node.restart()
        await asyncio.sleep(1)
        told = (await node.api.inner.get(raw(NODES), "local")).body
        assert told["status"]["nodeInfo"]["kubeletVersion"] == "v9"


async def test_pods_that_find_no_address_say_so_and_get_one_when_there_is_one() -> None:
    async with a_node(FakeOptions(network="10.200.0.0/30")) as node:
        for i in range(3):
            await node.create(a_pod(f"p{i}"))
            await asyncio.sleep(1)
        await asyncio.sleep(5)
        pod = await node.get("p2")
        assert columns(pod, node.clock.now())["Status"] == "NoAddress"
        assert "10.200.0.0/30" in pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
        await node.delete("p0")
        await asyncio.sleep(5)
        assert condition(await node.get("p2"), "Ready") == "True"


def story_of(node: ANode) -> str:
    return "\n".join(str(entry) for entry in node.story.of(("kubelet", ("default", "p"))))


async def test_the_story_of_a_pod_says_what_was_done() -> None:
    async with a_node() as node:
        await node.create(a_pod())
        await asyncio.sleep(2)
        story = story_of(node)
        assert "| start |" in story
        assert "| publish phase, " in story
