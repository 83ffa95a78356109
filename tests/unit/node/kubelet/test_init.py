"""Init containers and sidecars on a node in virtual time, as the API and kubectl's columns show them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandpool.controlplane.apiserver.tables.core import PODS as COLUMNS
from sandpool.node.backend import Exit, Started
from sandpool.node.runtimes.fake import EXIT_AFTER, INIT_FAILURES, FakeBackend, FakeOptions
from support.node.answering_backend import AnsweringBackend
from support.simulated.kubelet_node import ANode, Body, a_node, a_pod, condition

pytestmark = pytest.mark.looptime

FIRST: Body = {"name": "first", "image": "host"}
SIDECAR: Body = {"name": "side", "image": "host", "restartPolicy": "Always"}
SLOW = FakeOptions(start=(5, 5), ready=(1, 1), stop=(1, 1))


async def shown(node: ANode, name: str = "Status") -> str:
    pod = await node.get()
    return str(next(column for column in COLUMNS if column.name == name).cell(pod, node.clock.now()))


async def test_what_is_shown_while_they_run() -> None:
    async with a_node(SLOW) as node:
        await node.create(a_pod(initContainers=[FIRST, {**FIRST, "name": "second"}]))
        await asyncio.sleep(2)
        assert await shown(node) == "Init:0/2"
        pod = await node.get()
        assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
        initialized = next(c for c in pod["status"]["conditions"] if c["type"] == "Initialized")
        assert initialized["message"] == "containers with incomplete status: [first second]"
        await asyncio.sleep(5)
        assert await shown(node) == "Running"
        pod = await node.get()
        states = [(s["ready"], s["started"]) for s in pod["status"]["initContainerStatuses"]]
        assert (states, condition(pod, "Initialized")) == ([(True, False)] * 2, "True")


async def test_one_that_fails_is_tried_again_ever_later() -> None:
    async with a_node() as node:
        await node.create(a_pod(annotations={INIT_FAILURES: "3"}, initContainers=[FIRST]))
        await asyncio.sleep(3)  # failed, restarted at once, failed again
        assert await shown(node) == "Init:CrashLoopBackOff"
        assert (await shown(node, "Restarts")).startswith("1 (")
        pod = await node.get()
        first = pod["status"]["initContainerStatuses"][0]
        assert (first["restartCount"], pod["status"]["phase"]) == (1, "Pending")
        assert first["state"]["waiting"]["message"] == (
            f"back-off 10s restarting failed container=first pod=p_default({pod['metadata']['uid']})"
        )
        assert first["lastState"]["terminated"]["exitCode"] == 1
        await asyncio.sleep(40)
        assert condition(await node.get(), "Ready") == "True"
        assert (await node.get())["status"]["initContainerStatuses"][0]["restartCount"] == 3


async def test_one_that_fails_fails_a_pod_that_must_not_be_restarted() -> None:
    async with a_node() as node:
        await node.create(a_pod(annotations={INIT_FAILURES: "1"}, initContainers=[FIRST], restartPolicy="Never"))
        await asyncio.sleep(3)
        pod = await node.get()
        assert (pod["status"]["phase"], await shown(node)) == ("Failed", "Init:Error")
        await node.delete()
        await asyncio.sleep(3)
        assert node.left == 0


async def test_a_sidecar_runs_beside_and_counts_for_readiness() -> None:
    async with a_node() as node:
        await node.create(a_pod(initContainers=[SIDECAR, FIRST]))
        await asyncio.sleep(3)
        pod = await node.get()
        assert (condition(pod, "Initialized"), condition(pod, "Ready"), await shown(node)) == (
            "True",
            "True",
            "Running",
        )
        assert await shown(node, "Ready") == "2/2"
        side, first = pod["status"]["initContainerStatuses"]
        assert (side["ready"], side["started"], "running" in side["state"]) == (True, True, True)
        assert first["state"]["terminated"]["reason"] == "Completed"


async def test_a_sidecar_that_ends_is_restarted_and_the_pod_stays_initialized() -> None:
    async with a_node() as node:
        await node.create(a_pod(initContainers=[SIDECAR]))
        await asyncio.sleep(3)
        uid = node.backend.list_pods()
        (seen,) = uid
        await node.backend.stop_container(seen.uid, "side", 1.0)
        await asyncio.sleep(3)
        pod = await node.get()
        assert pod["status"]["initContainerStatuses"][0]["restartCount"] == 1
        assert (condition(pod, "Initialized"), condition(pod, "Ready")) == ("True", "True")


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Succeeded"), ("OnFailure", "Succeeded")])
async def test_sidecars_end_with_their_pod(policy: str, phase: str) -> None:
    async with a_node() as node:
        await node.create(a_pod(annotations={EXIT_AFTER: "5"}, initContainers=[SIDECAR], restartPolicy=policy))
        await asyncio.sleep(10)
        pod = await node.get()
        assert (pod["status"]["phase"], await shown(node)) == (phase, "Completed")
        assert isinstance(node.backend.list_pods()[0].init[0].state, Exit)  # type: ignore[index]
        assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
        await asyncio.sleep(60)
        assert isinstance(node.backend.list_pods()[0].init[0].state, Exit), "and is not restarted"  # type: ignore[index]


async def test_the_probe_of_a_sidecar_counts() -> None:
    made: list[AnsweringBackend] = []

    def make(clock: Any) -> FakeBackend:
        made.append(AnsweringBackend(clock))
        return made[-1]

    async with a_node(make_backend=make) as node:
        made[0].codes["ready"] = 1
        await node.create(a_pod(initContainers=[{**SIDECAR, "readinessProbe": {"exec": {"command": ["ready"]}}}]))
        await asyncio.sleep(15)
        ready = next(c for c in (await node.get())["status"]["conditions"] if c["type"] == "Ready")
        assert (ready["status"], ready["message"]) == ("False", "containers with unready status: [side]")
        made[0].codes["ready"] = 0
        await asyncio.sleep(10)
        assert condition(await node.get(), "Ready") == "True"
        (seen,) = node.backend.list_pods()
        assert isinstance(seen.init[0].state, Started)
