"""What the pods of one namespace make a node do, however much that is, leaves the turns of another. Virtual time; turns and reads are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.api import Api, Call, Verb
from sandpool.kube.errors import Gone
from sandpool.kube.interceptors import Interceptor
from sandpool.model.kinds import CONFIG_MAPS, NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PODS, raw
from sandpool.node.kubelet import volume_claims, volume_refresh
from sandpool.node.kubelet.agent import KubeletServices
from support.api.counting_api import CountingApi
from support.node.answering_backend import AnsweringBackend
from support.simulated.kubelet_node import START, ANode, Body, a_node, a_pod, condition

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


class Hanging(Interceptor):
    """ConfigMaps of one namespace are never read to the end."""

    async def send(self, call: Call) -> Any:
        if call.verb is Verb.GET and call.resource is CONFIG_MAPS and call.namespace == "default":
            await asyncio.sleep(1e6)
        return await self.inner.send(call)


async def test_pods_that_are_slow_to_start_leave_workers_to_another_namespace() -> None:
    """They wait for what they refer to, one after the other, and hold a worker meanwhile."""
    async with a_node(between=Hanging) as node:
        await create(node, NAMESPACES, {"metadata": {"name": OTHER}})
        for number in range(100):
            await create(node, PODS, showing(f"p{number}", *(f"c{each}" for each in range(6))))
        await asyncio.sleep(5)
        await create(node, CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, OTHER)
        await create(node, PODS, showing("p", "a"), OTHER)
        await asyncio.sleep(5)
        pod = (await node.api.inner.get(raw(PODS), "p", OTHER)).body
        assert condition(pod, "Ready") == "True"


async def test_files_are_brought_up_to_date_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One namespace has 20 batches and another has one: it waits for one of them, and so does the event loop, also if nothing changed."""
    monkeypatch.setattr(volume_refresh, "TOGETHER", 2)
    inner, read, passed, turns = volume_refresh.look_up, list[str](), list[str](), list[int]()  # type: ignore[attr-defined]

    async def look_up(api: Api, namespace: str, wanted: Any) -> Any:
        read.append(namespace)
        turns.append(len(passed))
        asyncio.get_running_loop().call_soon(passed.append, namespace)
        return await inner(api, namespace, wanted)

    monkeypatch.setattr(volume_refresh, "look_up", look_up)
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
    monkeypatch.setattr(volume_refresh, "MANY", 3)
    async with a_node() as node:
        await create(node, CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
        for number in range(8):
            await create(node, PODS, showing(f"p{number}", "a"))
        await asyncio.sleep(20)
        before = node.api.count("get", "configmaps")
        await asyncio.sleep(30)
        assert node.api.count("get", "configmaps") == before + 3


class Folders:
    """Claims on disk."""

    def __init__(self) -> None:
        self.kept: set[str] = set()

    async def claims(self) -> Collection[str]:
        return tuple(self.kept)

    async def remove_claim(self, uid: str) -> None:
        self.kept.discard(uid)


async def create_claim(node: ANode, name: str, namespace: str = "default") -> str:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": name}, "spec": spec}
    return (await node.api.inner.create(PERSISTENT_VOLUME_CLAIMS, body, namespace)).metadata.uid


async def test_a_folder_that_no_pod_uses_costs_one_list_and_then_reads_of_its_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(volume_claims, "PAGE", 4)
    folders = Folders()
    async with a_node(around=KubeletServices(folders=folders)) as node:
        await create(node, NAMESPACES, {"metadata": {"name": OTHER}})
        for number in range(10):
            await create_claim(node, f"c{number}")
        mine, again = await create_claim(node, "mine", OTHER), await create_claim(node, "again", OTHER)
        folders.kept = {mine, again, "left over"}
        await asyncio.sleep(35)
        assert folders.kept == {mine, again}
        assert node.api.count("list", "persistentvolumeclaims") == 3, "twelve, four at a time"
        node.api.clear()
        await asyncio.sleep(60)
        assert folders.kept == {mine, again}
        assert node.api.count("list", "persistentvolumeclaims") == 0
        assert node.api.count("get", "persistentvolumeclaims") == 4, "each of both in each round"
        await node.api.inner.delete(PERSISTENT_VOLUME_CLAIMS, "mine", OTHER)
        await asyncio.sleep(30)
        assert folders.kept == {again}
        await node.api.inner.delete(PERSISTENT_VOLUME_CLAIMS, "again", OTHER)
        await create_claim(node, "again", OTHER)
        await asyncio.sleep(30)
        assert folders.kept == set(), "another one of the same name has a folder of its own"
        assert node.api.count("list", "persistentvolumeclaims") == 0


async def test_a_folder_that_a_pod_leaves_while_others_are_looked_for_stays() -> None:
    """Only what no pod used before the look is removed after it: of the others nobody has looked whether their claim is there."""
    folders = Folders()
    async with a_node(started=False) as node:
        idle, leaving = await create_claim(node, "idle"), await create_claim(node, "leaving")
        folders.kept = {idle, leaving}
        used = [{leaving}, {leaving}, {leaving}, set[str]()]
        keeper = volume_claims.ClaimCleaner(node.api, folders, lambda: used.pop(0), node.clock, 30.0)
        for _ in range(2):
            await keeper.tidy()
        assert folders.kept == {idle, leaving}


async def test_a_list_whose_snapshot_is_forgotten_is_taken_whole() -> None:
    class Forgetting(CountingApi):
        async def send(self, call: Call) -> Any:
            if call.verb is Verb.LIST and call.list_options.limit:
                raise Gone("The provided continue parameter is too old")
            return await super().send(call)

    folders = Folders()
    async with a_node(started=False) as node:
        folders.kept = {idle := await create_claim(node, "idle"), "left over"}
        await volume_claims.ClaimCleaner(Forgetting(node.api.inner), folders, set, node.clock, 30.0).tidy()
        assert folders.kept == {idle}
