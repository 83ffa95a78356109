"""What the pods of one namespace make a node do, however much that is, leaves the turns of another. Virtual time; turns and reads are counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.api import Api
from sandpool.model.kinds import CONFIG_MAPS, NAMESPACES, PODS
from sandpool.node.kubelet import refreshing
from support.answering_backend import AnsweringBackend
from support.kubelet_node import START, ANode, Body, a_node, a_pod

pytestmark = pytest.mark.looptime
OTHER = "other"


async def create(node: ANode, resource: Any, body: Body, namespace: str = "default") -> None:
    await node.api.inner.create(resource, body, namespace)


def probed(name: str, word: str) -> Body:
    probe = {"exec": {"command": [word]}, "periodSeconds": 1, "timeoutSeconds": 1}
    return a_pod(name, containers=[{"name": "main", "image": "host", "readinessProbe": probe}])


def showing(name: str, *shown: str) -> Body:
    return a_pod(name, volumes=[{"name": one, "configMap": {"name": one}} for one in shown])


async def test_a_probe_waits_for_few_of_another_namespace() -> None:
    backend = AnsweringBackend(LoopClock(START))
    backend.codes["ready"], backend.slow["hang"] = 0, 1e6
    async with a_node(make_backend=lambda clock: backend) as node:
        await create(node, NAMESPACES, {"metadata": {"name": OTHER}})
        for number in range(320):
            await create(node, PODS, probed(f"p{number}", "hang"))
        await asyncio.sleep(30)
        began = len(backend.at)
        await create(node, PODS, probed("p", "ready"), OTHER)
        await asyncio.sleep(60)
        words = [word for _, word in backend.at[began:]]
        assert words.index("ready") < 3 * 16, "three seconds of theirs, in which it also starts: 320 wait at any time"
        assert words.count("ready") > 20, "and not only once"
        assert words.count("hang") > 500, "they are asked too"


async def test_files_are_brought_up_to_date_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One namespace has 20 batches and another has one: it waits for one of them, and so does the event loop, also if nothing changed."""
    monkeypatch.setattr(refreshing, "TOGETHER", 2)
    inner, read, passed, turns = refreshing.look_up, list[str](), list[str](), list[int]()

    async def look_up(api: Api, namespace: str, wanted: Any) -> Any:
        read.append(namespace)
        turns.append(len(passed))
        asyncio.get_running_loop().call_soon(passed.append, namespace)
        return await inner(api, namespace, wanted)

    monkeypatch.setattr(refreshing, "look_up", look_up)
    async with a_node() as node:
        await create(node, NAMESPACES, {"metadata": {"name": OTHER}})
        for number in range(20):
            for name in (f"a{number}", f"b{number}"):
                await create(node, CONFIG_MAPS, {"metadata": {"name": name}, "data": {"k": "v"}})
            await create(node, PODS, showing(f"p{number}", f"a{number}", f"b{number}"))
        await create(node, CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, OTHER)
        await create(node, PODS, showing("p", "a"), OTHER)
        await asyncio.sleep(35)
        for _ in range(2):
            assert (len(read), read.index(OTHER)) == (21, 1)
            assert len(set(turns)) == 21, "each in another turn of the loop"
            for seen in (read, turns):
                seen.clear()
            await asyncio.sleep(30)


async def test_a_batch_of_files_is_of_so_many_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshing, "MANY", 3)
    async with a_node() as node:
        await create(node, CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
        for number in range(8):
            await create(node, PODS, showing(f"p{number}", "a"))
        await asyncio.sleep(20)
        before = node.api.count("get", "configmaps")
        await asyncio.sleep(30)
        assert node.api.count("get", "configmaps") == before + 3
