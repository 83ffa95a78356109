"""Pods that refer to other objects, on a node in virtual time: what is read, what is said, and that it heals."""

from __future__ import annotations

import asyncio
import base64
import logging
import threading
from collections.abc import Collection
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.model.kinds import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS, raw
from sandpool.node.backend import Workload
from sandpool.node.kubelet import apply, lookup
from sandpool.node.kubelet.agent import KubeletServices
from sandpool.node.kubelet.pods import NodePod
from sandpool.node.kubelet.references import Kind, Reference, Unresolved
from sandpool.node.kubelet.resolve import Resolved
from sandpool.node.kubelet.volume_claims import removable
from sandpool.node.runtimes.fake import FakeBackend
from sandpool.node.volumes.spec import Claim
from support.api.heard_events import HeardEvents
from support.simulated.kubelet_node import ANode, Body, a_node, a_pod, condition

pytestmark = pytest.mark.looptime

HIDDEN = "hunter2-very-secret"
CODED = base64.b64encode(HIDDEN.encode()).decode()


class Recording(FakeBackend):
    """Keeps what it was told to start."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__(clock)
        self.told: list[Workload] = []

    async def start_pod(self, workload: Workload) -> None:
        self.told.append(workload)
        await super().start_pod(workload)


def env(**value_from: Any) -> Body:
    container = {"name": "main", "image": "host", "env": [{"name": "X", "valueFrom": value_from}]}
    return a_pod(containers=[container])


def claiming(name: str = "p", claim: str = "data") -> Body:
    return a_pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


async def create_claim(node: ANode, name: str = "data") -> str:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = await node.api.inner.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": name}, "spec": spec}, "default")
    return made.metadata.uid


async def test_a_missing_object_is_named_and_when_it_comes_the_pod_starts() -> None:
    heard = HeardEvents()
    async with a_node(around=KubeletServices(heard)) as node:
        await node.create(env(configMapKeyRef={"name": "c", "key": "k"}))
        await asyncio.sleep(60)
        pod = await node.get()
        waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting["reason"] == "CreateContainerConfigError"
        assert waiting["message"].startswith('configmap "c" not found; create it')
        assert pod["status"]["phase"] == "Pending"
        assert set(heard.heard) == {("Warning", "Failed", f"Error: CreateContainerConfigError: {waiting['message']}")}
        assert node.api.count("patch_status", "pods") <= 2, "the same trouble is written once"
        assert 5 <= node.api.count("get", "configmaps") <= 10, "later each time, but not much later"
        await node.api.inner.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"other": "v"}}, "default")
        await asyncio.sleep(20)
        waiting = (await node.get())["status"]["containerStatuses"][0]["state"]["waiting"]
        assert "couldn't find key k in ConfigMap default/c" in waiting["message"]
        await node.api.inner.delete(CONFIG_MAPS, "c", "default")
        await node.api.inner.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "v"}}, "default")
        await asyncio.sleep(20)
        assert condition(await node.get(), "Ready") == "True"
        reads = node.api.count("get")
        await asyncio.sleep(600)
        assert node.api.count("get") == reads


async def test_only_the_container_that_it_is_about_says_so() -> None:
    async with a_node() as node:
        body = env(secretKeyRef={"name": "s", "key": "k"})
        body["spec"]["containers"].append({"name": "second", "image": "host"})
        await node.create(body)
        await asyncio.sleep(5)
        states = [status["state"]["waiting"]["reason"] for status in (await node.get())["status"]["containerStatuses"]]
        assert states == ["CreateContainerConfigError", "ContainerCreating"]


async def test_a_volume_that_cannot_be_had() -> None:
    heard = HeardEvents()
    async with a_node(around=KubeletServices(heard)) as node:
        await node.create(claiming())
        await asyncio.sleep(5)
        waiting = (await node.get())["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting["reason"] == "FailedMount"
        assert 'volume "v": persistentvolumeclaim "data" not found' in heard.of("FailedMount")[0]
        await create_claim(node)
        await asyncio.sleep(15)
        assert condition(await node.get(), "Ready") == "True"


async def test_what_was_found_reaches_the_backend_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made: list[Recording] = []

    def make(clock: LoopClock) -> Recording:
        made.append(Recording(clock))
        return made[-1]

    heard = HeardEvents()
    async with a_node(make_backend=make, around=KubeletServices(heard)) as node:
        body = env(secretKeyRef={"name": "s", "key": "k"})
        body["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "s"}}]
        body["spec"]["imagePullSecrets"] = [{"name": "s"}]
        await node.create(body)
        await asyncio.sleep(3)
        await node.api.inner.create(SECRETS, {"metadata": {"name": "s"}, "data": {"k": CODED}}, "default")
        await asyncio.sleep(15)
        assert condition(await node.get(), "Ready") == "True"
        assert made[0].told[0].env == {"main": {"X": HIDDEN}}
        told = f"{node.story.__dict__} {heard.heard} {caplog.text} {await node.get()} {made[0].told}"
        assert HIDDEN not in told
        assert CODED not in told
        assert "cannot be read" in heard.of("FailedToRetrieveImagePullSecret")[0]


async def test_each_object_is_read_once_for_a_start() -> None:
    async with a_node() as node:
        await node.api.inner.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "v"}}, "default")
        body = env(configMapKeyRef={"name": "c", "key": "k"})
        body["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "c"}}]
        body["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "c"}}]
        await node.create(body)
        await asyncio.sleep(3)
        assert node.api.count("get") == node.api.count("get", "configmaps") == 1


async def test_a_claim_is_bound_when_a_pod_first_uses_it() -> None:
    made: list[Recording] = []

    def make(clock: LoopClock) -> Recording:
        made.append(Recording(clock))
        return made[-1]

    async with a_node(make_backend=make) as node:
        uid = await create_claim(node)
        await node.create(claiming("one"))
        await node.create(claiming("two"))
        await asyncio.sleep(3)
        claim = (await node.api.inner.get(raw(PERSISTENT_VOLUME_CLAIMS), "data", "default")).body
        assert claim["status"] == {
            "phase": "Bound",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
        }
        assert [work.volumes[0].source for work in made[0].told] == [Claim("default", "data", uid, 2**30)] * 2
        await node.create(claiming("three"))
        await asyncio.sleep(3)
        assert node.api.count("patch_status", "persistentvolumeclaims") <= 2


class Folders:
    """Claims on disk."""

    def __init__(self, *uids: str) -> None:
        self.kept = set(uids)
        self.looked = 0

    async def claims(self) -> Collection[str]:
        self.looked += 1
        return tuple(self.kept)

    async def remove_claim(self, uid: str) -> None:
        self.kept.discard(uid)


async def test_folders_of_claims_that_are_gone_are_removed_and_no_others() -> None:
    folders = Folders("left over from before")
    async with a_node(around=KubeletServices(folders=folders)) as node:
        kept, gone = await create_claim(node, "kept"), await create_claim(node, "gone")
        folders.kept |= {kept, gone}
        await node.create(claiming("one", "kept"))
        await node.create(claiming("two", "gone"))
        await asyncio.sleep(60)
        assert folders.kept == {kept, gone}, "what an earlier process left is found"
        await node.api.inner.delete(PERSISTENT_VOLUME_CLAIMS, "gone", "default")
        await asyncio.sleep(60)
        assert folders.kept == {kept, gone}, "a pod still has it"
        await node.delete("two")
        await node.delete("one")
        await asyncio.sleep(100)
        assert folders.kept == {kept}, "suspended: the claim stays, and so does what is in it"


async def test_a_machine_without_leftovers_costs_no_read() -> None:
    folders = Folders()
    async with a_node(around=KubeletServices(folders=folders)) as node:
        uid = await create_claim(node)
        folders.kept.add(uid)
        await node.create(claiming())
        await asyncio.sleep(300)
        assert folders.looked >= 9
        assert node.api.count("list", "persistentvolumeclaims") == 0


def test_which_folders_may_go() -> None:
    assert removable(("a", "b", "c"), {"a"}, {"b"}) == ["c"]
    assert removable((), {"a"}, {"b"}) == []


async def test_only_what_is_large_is_put_together_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API of all tenants is served there. An ordinary pod is not made to wait for a thread."""
    inner, here = apply.resolve, threading.get_ident()  # type: ignore[attr-defined]
    beside: dict[str, bool] = {}

    def resolve(pod: NodePod, *args: Any) -> Resolved:
        beside[pod.metadata.name] = threading.get_ident() != here
        return inner(pod, *args)

    monkeypatch.setattr(apply, "resolve", resolve)
    backends: list[Recording] = []
    async with a_node(make_backend=lambda clock: backends.append(Recording(clock)) or backends[-1]) as node:
        for name, size in (("small", 100), ("large", 100_000)):
            await node.api.inner.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"k": "x" * size}}, "default")
            await node.create({**a_pod(name, volumes=[{"name": "v", "configMap": {"name": name}}])})
        await node.create(a_pod("plain"))
        for _ in range(1000):
            await asyncio.sleep(1)
            if len(backends[-1].told) == 3:
                break
        assert beside == {"plain": False, "small": False, "large": True}
        assert {str(work.key): len(work.volumes) for work in backends[-1].told} == {
            "default/plain": 0,
            "default/small": 1,
            "default/large": 1,
        }


async def test_no_pod_makes_us_hold_more_than_it_could_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST", 2500)
    reads: list[str] = []
    inner = lookup.find

    async def find(api: Any, resource: Any, name: str, namespace: str) -> Any:
        reads.append(name)
        return await inner(api, resource, name, namespace)

    monkeypatch.setattr(lookup, "find", find)
    async with a_node() as node:
        for number in range(6):
            body = {"metadata": {"name": f"c{number}"}, "data": {"k": "x" * 1000}}
            await node.api.inner.create(CONFIG_MAPS, body, "default")
        volumes = [{"name": f"v{number}", "configMap": {"name": f"c{number}"}} for number in range(6)]
        await node.create(a_pod(volumes=volumes))
        await asyncio.sleep(0.9)
        assert reads == ["c0", "c1", "c2"], "no further ones"
        waiting = (await node.get())["status"]["containerStatuses"][0]["state"]["waiting"]
        assert "take more than 2500 bytes together" in waiting["message"]


async def test_entries_count_also_if_nothing_is_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST", 3 * 50 * (100 + 3))
    async with a_node() as node:
        keys = [f"k{number:02d}" for number in range(50)]
        for name in ("c0", "c1"):
            body = {"metadata": {"name": name}, "data": dict.fromkeys(keys, "")}
            await node.api.inner.create(CONFIG_MAPS, body, "default")
        await node.api.inner.create(SECRETS, {"metadata": {"name": "s"}, "data": dict.fromkeys(keys, "")}, "default")
        wanted = {Reference(Kind.CONFIG_MAP, "c0"), Reference(Kind.CONFIG_MAP, "c1"), Reference(Kind.SECRET, "s")}
        assert len((await lookup.look_up(node.api, "default", wanted)).config_maps) == 2
        await node.api.inner.create(CONFIG_MAPS, {"metadata": {"name": "c2"}, "binaryData": {"k": ""}}, "default")
        with pytest.raises(Unresolved, match="bytes together"):
            await lookup.look_up(node.api, "default", {*wanted, Reference(Kind.CONFIG_MAP, "c2")})
