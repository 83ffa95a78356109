"""What the life of a pod costs: writes and looks at it. Counts, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from sandpool.kube.api import Api, Call, Verb
from sandpool.kube.interceptors import Interceptor
from sandpool.model.kinds import NODES, PODS, raw
from sandpool.model.patches import json_patch, merge_patch
from sandpool.node.kubelet.agent import KubeletServices
from sandpool.node.kubelet.options import KubeletOptions
from sandpool.node.runtimes.fake import NEVER_READY, FakeOptions
from support.api.faulty_api import FaultyApi
from support.simulated.kubelet_node import ANode, a_node, a_pod, condition

pytestmark = pytest.mark.looptime

MANY = 20
R = TypeVar("R")


def looks(node: ANode, name: str) -> list[str]:
    """What each look at the pod did."""
    return [entry.plan for entry in node.story.of(("kubelet", ("default", name)))]


def names() -> Sequence[str]:
    return [f"p{number}" for number in range(MANY)]


async def test_the_whole_life_of_pods() -> None:
    async with a_node() as node:
        await asyncio.sleep(1)
        node.api.clear()
        for name in names():
            await node.create(a_pod(name))
        await asyncio.sleep(3)
        assert node.api.writes == MANY, "one status each"
        for name in names():
            assert [look.partition(" ")[0] for look in looks(node, name)] == ["start", "publish"]
            pod = await node.get(name)
            assert condition(pod, "Ready") == condition(pod, "PodScheduled") == "True"
            patch = merge_patch({"metadata": {"labels": {"claimed": "yes"}}})
            await node.api.inner.patch(PODS, name, patch, "default")
        await asyncio.sleep(3)
        assert all(len(looks(node, name)) == 2 for name in names()), "labels are no reason to look"
        node.api.clear()
        for name in names():
            await node.delete(name)
        await asyncio.sleep(3)
        assert await node.names() == []
        assert node.api.writes == node.api.count("delete", "pods") == MANY, "one delete each"
        for name in names():
            assert [look.partition(" ")[0] for look in looks(node, name)[2:]] == ["stop", "delete"]
        assert node.left == 0


async def test_a_slow_pod_says_so_once() -> None:
    async with a_node(FakeOptions(start=(5, 5), ready=(0.1, 0.1))) as node:
        await asyncio.sleep(1)
        node.api.clear()
        await node.create(a_pod())
        await asyncio.sleep(0.4)
        assert "containerStatuses" not in (await node.get())["status"]
        await asyncio.sleep(0.2)
        (shown,) = (await node.get())["status"]["containerStatuses"]
        assert shown["state"] == {"waiting": {"reason": "ContainerCreating"}}
        await asyncio.sleep(10)
        assert condition(await node.get(), "Ready") == "True"
        assert node.api.count("patch_status", "pods") == 2


async def test_what_somebody_else_says_of_a_pod_is_put_right() -> None:
    async with a_node() as node:
        await node.create(a_pod())
        await asyncio.sleep(2)
        pod = await node.get()
        node.api.clear()
        await node.api.inner.patch_status(PODS, "p", merge_patch({"status": {"podIP": "1.2.3.4"}}), "default")
        await asyncio.sleep(2)
        assert (await node.get())["status"] == pod["status"]
        assert node.api.writes == 1


async def test_a_status_that_somebody_began_is_kept() -> None:
    async with a_node(FakeOptions(start=(1, 1))) as node:
        await asyncio.sleep(1)
        await node.create(a_pod())
        mine = {"type": "example.com/Mine", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        add = json_patch([{"op": "add", "path": "/status/conditions/-", "value": mine}])
        await node.api.inner.patch_status(PODS, "p", add, "default")
        await asyncio.sleep(3)
        pod = await node.get()
        assert condition(pod, "Ready") == condition(pod, "example.com/Mine") == "True"


async def test_a_node_of_an_earlier_version_takes_pods_from_now_on() -> None:
    async with a_node(started=False) as node:
        await node.api.inner.create(NODES, {"metadata": {"name": "local", "annotations": {"mine": "stays"}}})
        node.start()
        await asyncio.sleep(1)
        there = (await node.api.inner.get(raw(NODES), "local")).body
        assert there["metadata"]["annotations"] == {"mine": "stays", "sandpool.dev/takes-pods": "true"}


async def test_a_node_that_places_nothing_takes_nothing() -> None:
    async with a_node(options=KubeletOptions(places=False)) as node:
        await asyncio.sleep(1)
        await node.create(a_pod())
        await asyncio.sleep(5)
        pod = await node.get()
        assert "nodeName" not in pod["spec"]
        assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


class Heard:
    """Events, as they are told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def emit(self, resource: object, about: object, kind: object, reason: str, message: str, action: str = "") -> None:
        self.said.append(f"{reason}: {message}")


async def test_placed_pods_say_so_to_those_who_want_to_hear_it() -> None:
    heard = Heard()
    options = KubeletOptions(routine_events=True)
    async with a_node(options=options, around=KubeletServices(events=heard)) as node:
        await asyncio.sleep(1)
        await node.create(a_pod())
        await node.create(a_pod("mine", nodeName="local"))
        await asyncio.sleep(3)
        assert [said for said in heard.said if "Scheduled" in said] == [
            "Scheduled: Successfully assigned default/p to local"
        ]
        assert sum(said.startswith("Started") for said in heard.said) == 2


async def test_what_changes_while_the_first_word_is_written_is_told_as_well() -> None:
    """It starts in that very moment, and never becomes ready: nothing else will happen to it."""
    faulty: list[FaultyApi] = []

    def between(api: Api) -> Api:
        faulty.append(FaultyApi(api))
        return faulty[0]

    async with a_node(FakeOptions(start=(0.6, 0.6)), between=between) as node:
        await asyncio.sleep(1)
        written = asyncio.Event()
        faulty[0].on("patch_status", "pods").hold(written)
        await node.create(a_pod(annotations={NEVER_READY: "true"}))
        await asyncio.sleep(0.8)
        written.set()
        await asyncio.sleep(5)
        status = (await node.get())["status"]
        assert status["phase"] == "Running"
        assert "running" in status["containerStatuses"][0]["state"]


async def test_a_node_that_places_no_more_says_so() -> None:
    async with a_node() as node:
        await asyncio.sleep(1)
        node.options = KubeletOptions(places=False)
        await node.restart()
        await asyncio.sleep(1)
        there = (await node.api.inner.get(raw(NODES), "local")).body
        assert "annotations" not in there["metadata"]
        await node.create(a_pod())
        assert "nodeName" not in (await node.get())["spec"]


async def test_pods_that_end_do_not_hold_up_one_that_starts() -> None:
    """Many that are released together, and one worker: the new one is ready before most of them are gone."""
    many = 60
    async with a_node(options=KubeletOptions(workers=1), between=Slow) as node:
        for number in range(many):
            await node.create(a_pod(f"old-{number}"))
        await asyncio.sleep(600)
        for number in range(many):
            await node.delete(f"old-{number}")
        await node.create(a_pod("new"))
        while condition(await node.get("new"), "Ready") != "True":
            await asyncio.sleep(0.1)
        assert len(await node.names()) > many // 2


class Slow(Interceptor):
    """Each write takes a while, as on a server that has much to do."""

    async def send(self, call: Call) -> Any:
        if call.verb is not Verb.LIST:
            await asyncio.sleep(0.5)
        return await self.inner.send(call)
