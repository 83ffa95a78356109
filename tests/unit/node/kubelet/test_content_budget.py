"""What pods hold of ConfigMaps and Secrets is shared by namespaces, on a node in virtual time: who waits, who does not, and what is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.model.kinds import CONFIG_MAPS, PODS
from sandpool.model.metadata import Uid
from sandpool.model.patches import merge_patch
from sandpool.node.backend import BackendError, Workload
from sandpool.node.images.image import Credential
from sandpool.node.kubelet.content_budget import LEAST, ContentBudget, files_size, total, words_size
from sandpool.node.kubelet.options import KubeletOptions
from sandpool.node.kubelet.references import Unresolved
from sandpool.node.runtimes.fake import EXIT_AFTER, FakeBackend
from sandpool.node.volumes.spec import Content, EmptyDir, VolumeSpec
from support.simulated.kubelet_node import START, ANode, Body, a_node, a_pod, condition

pytestmark = pytest.mark.looptime

SIZE = 40_000
LITTLE = KubeletOptions(content=100_000)
A, B, C = Uid("a"), Uid("b"), Uid("c")


def showing(name: str, volumes: int = 1, **how: Any) -> Body:
    return a_pod(name, volumes=[{"name": f"v{n}", "configMap": {"name": "c"}} for n in range(volumes)], **how)


async def with_content(node: ANode, namespace: str = "default", size: int = SIZE) -> None:
    await node.api.inner.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "x" * size}}, namespace)


def waits(pod: Body) -> str:
    waiting = pod["status"]["containerStatuses"][0]["state"].get("waiting", {})
    return f"{waiting.get('reason')}: {waiting.get('message')}"


async def test_a_pod_that_does_not_fit_waits_for_others_of_its_namespace() -> None:
    async with a_node(options=LITTLE) as node:
        for namespace in ("default", "kube-public"):
            await with_content(node, namespace)
        for name in ("p1", "p2", "p3"):
            await node.create(showing(name))
            await asyncio.sleep(1)
        assert condition(await node.get("p1"), "Ready") == condition(await node.get("p2"), "Ready") == "True"
        said = waits(await node.get("p3"))
        assert said.startswith(f"FailedMount: its files and variables take {SIZE} bytes, and pods of namespace default")
        writes = node.api.count("patch_status", "pods")
        await asyncio.sleep(120)
        assert node.api.count("patch_status", "pods") <= writes + 1, "it says so once"
        await node.delete("p1")
        await asyncio.sleep(20)
        assert condition(await node.get("p3"), "Ready") == "True"
        for name in ("p2", "p3"):
            await node.delete(name)
        await asyncio.sleep(5)
        assert node.left == node.holding == 0


async def test_another_namespace_has_its_share() -> None:
    async with a_node(options=LITTLE) as node:
        await with_content(node)
        await with_content(node, "kube-public", 10_000)
        for name in ("p1", "p2", "p3"):
            await node.create(showing(name))
        await asyncio.sleep(5)
        await node.api.inner.create(PODS, showing("other"), "kube-public")
        await asyncio.sleep(5)
        other = await node.api.inner.get(PODS, "other", "kube-public")
        assert other.status.phase == "Running"


async def test_a_pod_that_is_over_gives_back() -> None:
    async with a_node(options=LITTLE) as node:
        await with_content(node)
        for number in range(5):
            await node.create(showing(f"p{number}", 2, annotations={EXIT_AFTER: "1"}, restartPolicy="Never"))
            await asyncio.sleep(20)
            assert (await node.get(f"p{number}"))["status"]["phase"] == "Succeeded"
        assert node.kubelet is not None
        assert (len(node.kubelet.content), node.kubelet.content.shares.used) == (0, 0)


class Refusing(FakeBackend):
    async def start_pod(self, workload: Workload) -> None:
        raise BackendError("Busy", "not now")


async def test_a_pod_that_could_not_be_started_holds_nothing() -> None:
    async with a_node(options=LITTLE, make_backend=Refusing) as node:
        await with_content(node)
        await node.create(showing("p", 2))
        await asyncio.sleep(60)
        assert waits(await node.get()).startswith("Busy")
        assert node.kubelet is not None
        assert node.kubelet.content.shares.used == 0


async def test_files_that_come_later() -> None:
    backend = Following(LoopClock(START))
    async with a_node(options=LITTLE, make_backend=lambda clock: backend) as node:
        volumes = [{"name": f"v{n}", "configMap": {"name": "c", "optional": True}} for n in range(3)]
        await node.create(a_pod(volumes=volumes))
        await asyncio.sleep(40)
        assert backend.shown == [0]
        await with_content(node)
        await asyncio.sleep(40)
        assert backend.shown == [0], "there is no room for them"


class Following(FakeBackend):
    def __init__(self, clock: LoopClock) -> None:
        super().__init__(clock)
        self.shown: list[int] = []

    async def refresh(self, uid: Uid, volumes: Sequence[VolumeSpec]) -> None:
        self.shown.append(files_size(volumes))


async def test_files_that_grow() -> None:
    """They stay as they were until there is room: nobody gets around the share by starting with little."""
    backend = Following(LoopClock(START))
    async with a_node(options=LITTLE, make_backend=lambda clock: backend) as node:
        await with_content(node, size=10)
        await node.create(showing("p", 3))
        await asyncio.sleep(40)
        assert backend.shown == [3 * 4096]

        async def becomes(size: int) -> None:
            await node.api.inner.patch(CONFIG_MAPS, "c", merge_patch({"data": {"k": "x" * size}}), "default")
            await asyncio.sleep(40)

        await becomes(SIZE)
        assert backend.shown == [3 * 4096]
        await becomes(SIZE // 2)
        assert backend.shown == [3 * 4096, 3 * SIZE // 2]
        assert node.kubelet is not None
        assert node.kubelet.content.shares.used >= 3 * SIZE // 2
        await node.delete("p")
        await asyncio.sleep(5)
        assert node.left == node.holding == 0


def test_counting() -> None:
    holding = ContentBudget(900)
    holding.take(A, "red", 300, 100)
    holding.take(A, "red", 200, 100)  # started again
    assert holding.shares.held == {"red": 300}
    with pytest.raises(Unresolved, match="would have more than their share of the 900 bytes"):
        holding.take(B, "red", 600, 0)
    holding.take(B, "red", 400, 0)
    holding.change(A, 0)
    assert holding.shares.held == {"red": 500}
    with pytest.raises(Unresolved):
        holding.change(A, 700)
    holding.change(C, 700)  # which is not there any more
    holding.take(C, "blue", 100, 0)
    assert holding.shares.held == {"red": 500, "blue": 100}
    for uid in (A, B, C, C):
        holding.give_back(uid)
    assert (len(holding), holding.shares.used, holding.shares.held) == (0, 0, {})


def test_a_pod_that_holds_nothing_always_starts() -> None:
    holding = ContentBudget(10)
    holding.take(A, "red", 8, 0)
    holding.take(B, "red", 0, 0)
    assert len(holding) == 2


def test_sizes() -> None:
    files = Content({"a": b"x" * 5000, "b": b""})
    assert files_size([VolumeSpec("v", files), VolumeSpec("w", files), VolumeSpec("e", EmptyDir())]) == 2 * (
        5000 + 4096
    )
    assert words_size({"main": {"A": "\U0001f600" * 1000}}, [Credential("r", "user", "word")]) >= 4008
    assert total({"memory": "32Gi"}) == 2 << 30
    assert total({"memory": "1Gi"}) == total({}) == LEAST
