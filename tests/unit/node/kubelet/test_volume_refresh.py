"""What changes while a pod runs, on a node in virtual time: its labels, and the objects that its volumes show."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.model.kinds import CONFIG_MAPS, PODS, SECRETS
from sandpool.model.metadata import Uid
from sandpool.model.patches import merge_patch
from sandpool.node.kubelet import volume_refresh
from sandpool.node.runtimes.fake import FakeBackend
from sandpool.node.volumes.spec import Content, VolumeSpec
from support.simulated.kubelet_node import START, ANode, Body, a_node, a_pod

pytestmark = pytest.mark.looptime

VOLUMES = [
    {"name": "c", "configMap": {"name": "c"}},
    {"name": "s", "projected": {"sources": [{"secret": {"name": "s"}}]}},
    {"name": "d", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    {"name": "e", "emptyDir": {}},
]


class Following(FakeBackend):
    """Keeps what it was told afterwards."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__(clock)
        self.labels: list[Mapping[str, str]] = []
        self.shown: list[dict[str, Mapping[str, bytes]]] = []

    def relabel(self, uid: Uid, labels: Mapping[str, str]) -> None:
        self.labels.append(dict(labels))

    async def refresh(self, uid: Uid, volumes: Sequence[VolumeSpec]) -> None:
        self.shown.append({one.name: one.source.files for one in volumes if isinstance(one.source, Content)})


class Surviving(Following):
    """Its pods outlive the process."""

    async def close(self) -> None:
        return None


def labelled(**labels: str) -> Body:
    body = a_pod()
    body["metadata"]["labels"] = labels
    return body


async def patch(node: ANode, resource: Any, name: str, change: Body) -> None:
    await node.api.inner.patch(resource, name, merge_patch(change), "default")


async def test_a_backend_is_told_other_labels_once_and_at_once() -> None:
    backend = Following(LoopClock(START))
    async with a_node(make_backend=lambda clock: backend) as node:
        await node.create(labelled(app="a"))
        await asyncio.sleep(30)
        assert backend.labels == [], "it was started with them"
        await patch(node, PODS, "p", {"metadata": {"labels": {"app": "b"}}})
        await asyncio.sleep(0.1)
        assert backend.labels == [{"app": "b"}]
        await patch(node, PODS, "p", {"metadata": {"annotations": {"other": "thing"}}})
        await asyncio.sleep(600)
        assert backend.labels == [{"app": "b"}]


async def test_a_new_process_tells_the_labels_of_pods_that_it_finds() -> None:
    """Nobody knows which ones the backend had, and while no kubelet ran they may have changed."""
    backend = Surviving(LoopClock(START))
    async with a_node(make_backend=lambda clock: backend) as node:
        await node.create(labelled(app="a"))
        await asyncio.sleep(30)
        await node.stop()
        assert backend.labels == []
        await patch(node, PODS, "p", {"metadata": {"labels": {"app": "b"}}})
        node.start()
        await asyncio.sleep(30)
        assert backend.labels == [{"app": "b"}]


async def test_files_follow_what_they_show() -> None:
    backend = Following(LoopClock(START))
    async with a_node(make_backend=lambda clock: backend) as node:
        await node.api.inner.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "old"}}, "default")
        await node.api.inner.create(SECRETS, {"metadata": {"name": "s"}, "data": {"p": "b2xk"}}, "default")
        await node.create(a_pod(volumes=VOLUMES))
        await asyncio.sleep(100)
        assert backend.shown == [{"c": {"k": b"old"}, "s": {"p": b"old"}, "d": {"l": b""}}]
        await patch(node, CONFIG_MAPS, "c", {"data": {"k": "new"}})
        await asyncio.sleep(60)
        assert [files["c"] for files in backend.shown] == [{"k": b"old"}, {"k": b"new"}]
        await patch(node, SECRETS, "s", {"data": {"p": "bmV3"}})
        await asyncio.sleep(60)
        assert [files["s"] for files in backend.shown] == [{"p": b"old"}, {"p": b"old"}, {"p": b"new"}]
        await patch(node, PODS, "p", {"metadata": {"labels": {"app": "b"}}})
        await asyncio.sleep(60)
        assert backend.shown[3]["d"] == {"l": b'app="b"'}
        await node.api.inner.delete(CONFIG_MAPS, "c", "default")
        await asyncio.sleep(60)
        assert backend.shown[4].keys() == {"s", "d"}, "what cannot be put together any more stays as it is"
        await asyncio.sleep(600)
        assert len(backend.shown) == 5, "nothing is handed on twice"


async def test_pods_of_a_namespace_that_show_the_same_cost_one_read() -> None:
    backend = Following(LoopClock(START))
    async with a_node(make_backend=lambda clock: backend) as node:
        await node.api.inner.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "v"}}, "default")
        for index in range(5):
            await node.create(a_pod(f"p{index}", volumes=VOLUMES[:1]))
        await node.create(a_pod("none"))
        await asyncio.sleep(20)
        before = node.api.count("get", "configmaps")
        await asyncio.sleep(30)
        assert node.api.count("get", "configmaps") == before + 1
        for index in range(5):
            await node.delete(f"p{index}", grace=0)
        await asyncio.sleep(60)
        before = node.api.count("get")
        await asyncio.sleep(600)
        assert node.api.count("get") == before


async def test_what_many_pods_show_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of a namespace its pods show, no more of it is held at a time than a few objects."""
    monkeypatch.setattr(volume_refresh, "TOGETHER", 3)
    held: list[int] = []
    inner = volume_refresh.look_up  # type: ignore[attr-defined]

    async def look_up(api: Any, namespace: str, wanted: Any) -> Any:
        held.append(len(wanted))
        return await inner(api, namespace, wanted)

    monkeypatch.setattr(volume_refresh, "look_up", look_up)
    backend = Following(LoopClock(START))
    async with a_node(make_backend=lambda clock: backend) as node:
        for number in range(8):
            body = {"metadata": {"name": f"c{number}"}, "data": {"k": "1"}}
            await node.api.inner.create(CONFIG_MAPS, body, "default")
            shown = [{"name": f"v{n}", "configMap": {"name": f"c{n}"}} for n in {number, number // 2 * 2}]
            await node.create(a_pod(f"p{number}", volumes=shown))
        await asyncio.sleep(35)
        assert (max(held), len(held)) == (3, 4)
        assert len(backend.shown) == 8
