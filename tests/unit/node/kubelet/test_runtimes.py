"""RuntimeClasses and the node: what works here is shown, and a pod never gets a weaker runtime than it asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from sandpool.kube.errors import Forbidden
from sandpool.model.codec import convert
from sandpool.model.core import RuntimeClass
from sandpool.model.kinds import NODES, RUNTIME_CLASSES, raw
from sandpool.model.patches import merge_patch
from sandpool.node.backend import Probe, Workload
from sandpool.node.kubelet import machine
from sandpool.node.kubelet.agent import KubeletServices
from sandpool.node.kubelet.placement import Runtimes
from sandpool.node.kubelet.runtimes import AVAILABLE, ENFORCED, WHY, Correct, Create, Remove, class_body, wrong
from sandpool.node.runtimes.fake import FakeBackend
from support.api.heard_events import HeardEvents
from support.simulated.kubelet_node import ANode, Body, a_node, a_pod, condition

pytestmark = pytest.mark.looptime

OFFERS = {
    "namespaces": Probe(True, enforced=frozenset({"filesystem", "memory"})),
    "gvisor": Probe(False, "NoRunsc", "runsc is not on PATH; install a recent one"),
}


async def offering() -> Mapping[str, Probe]:
    return OFFERS


async def classes(node: ANode) -> dict[str, Body]:
    page = await node.api.inner.list(raw(RUNTIME_CLASSES))
    return {one.metadata.name: one.body for one in page.items}


async def test_what_works_and_what_does_not_is_shown() -> None:
    async with a_node(around=KubeletServices(offering=offering)) as node:
        await asyncio.sleep(1)
        found = await classes(node)
        assert {name: one["handler"] for name, one in found.items()} == {"namespaces": "namespaces", "gvisor": "gvisor"}
        good, bad = found["namespaces"]["metadata"], found["gvisor"]["metadata"]
        assert (good["labels"], good["annotations"]) == ({AVAILABLE: "true"}, {ENFORCED: "filesystem,memory"})
        assert (bad["labels"][AVAILABLE], bad["annotations"][WHY]) == ("false", OFFERS["gvisor"].message)
        shown = (await node.api.inner.get(raw(NODES), "local")).body["status"]
        conditions = {c["type"]: (c["status"], c["reason"], c["message"]) for c in shown["conditions"]}
        assert conditions["RuntimeNamespaces"][:2] == ("True", "Works")
        assert conditions["RuntimeGvisor"][:2] == ("False", "NoRunsc")
        assert "runsc is not on PATH" in conditions["RuntimeGvisor"][2]
        assert shown["runtimeHandlers"] == [{"name": "namespaces"}]
        assert shown["capacity"]["memory"] == machine.capacity()["memory"]
        assert shown["nodeInfo"]["kernelVersion"]
        assert shown["nodeInfo"]["operatingSystem"] == "linux"


async def test_what_somebody_spoils_is_put_right() -> None:
    async with a_node(around=KubeletServices(offering=offering)) as node:
        await asyncio.sleep(1)
        spoil = merge_patch({"metadata": {"labels": {AVAILABLE: "true"}, "annotations": {WHY: None}}})
        await node.api.inner.patch(RUNTIME_CLASSES, "gvisor", spoil)
        await node.api.inner.delete(RUNTIME_CLASSES, "namespaces")
        await asyncio.sleep(11)
        found = await classes(node)
        assert set(found) == {"namespaces", "gvisor"}
        assert found["gvisor"]["metadata"]["labels"][AVAILABLE] == "false"
        node.api.clear()
        await asyncio.sleep(100)
        assert node.api.count(resource="runtimeclasses") == 0


async def test_a_pod_that_asks_for_what_is_not_there_waits_and_says_why() -> None:
    heard = HeardEvents()
    async with a_node(around=KubeletServices(heard, offering)) as node:
        await node.api.inner.create(RUNTIME_CLASSES, {"metadata": {"name": "kata"}, "handler": "kata"})
        await asyncio.sleep(1)
        await node.create(a_pod("weak", runtimeClassName="gvisor"))
        await node.create(a_pod("unknown", runtimeClassName="kata"))
        await node.create(a_pod("good", runtimeClassName="namespaces"))
        await node.create(a_pod("any"))
        await asyncio.sleep(5)
        for name, words in (("weak", "runsc is not on PATH"), ("unknown", "no runtime is called 'kata' here")):
            pod = await node.get(name)
            (scheduled,) = pod["status"]["conditions"]
            assert (scheduled["type"], scheduled["status"], scheduled["reason"]) == (
                "PodScheduled",
                "False",
                "Unschedulable",
            )
            assert words in scheduled["message"]
            assert any(words in text for text in heard.of("FailedScheduling"))
        assert {seen.key.name for seen in node.backend.list_pods()} == {"good", "any"}
        assert [condition(await node.get(name), "Ready") for name in ("good", "any")] == ["True", "True"]


async def test_nor_does_one_that_was_placed_by_somebody_else() -> None:
    heard = HeardEvents()
    async with a_node(around=KubeletServices(heard, offering)) as node:
        await asyncio.sleep(1)
        await node.create(a_pod(runtimeClassName="gvisor", nodeName="local"))
        await asyncio.sleep(300)
        pod = await node.get()
        waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
        assert (waiting["reason"], pod["status"]["phase"]) == ("FailedCreatePodSandBox", "Pending")
        assert node.backend.list_pods() == []
        assert len(heard.of("FailedCreatePodSandBox")) == 1
        await node.delete()
        await asyncio.sleep(1)
        assert (await node.names(), node.left) == ([], 0)


async def test_a_class_of_another_name_stands_for_its_handler() -> None:
    told: list[Workload] = []

    class Recording(FakeBackend):
        async def start_pod(self, workload: Workload) -> None:
            told.append(workload)
            await super().start_pod(workload)

    async with a_node(make_backend=lambda clock: Recording(clock), around=KubeletServices(offering=offering)) as node:
        with pytest.raises(Forbidden, match='pod rejected: RuntimeClass "safe" not found'):
            await node.create(a_pod(runtimeClassName="safe"))
        await node.api.inner.create(RUNTIME_CLASSES, {"metadata": {"name": "safe"}, "handler": "namespaces"})
        await node.create(a_pod(runtimeClassName="safe"))
        await asyncio.sleep(3)
        assert condition(await node.get(), "Ready") == "True"
        assert [work.spec.runtime_class_name for work in told] == ["namespaces"]


async def test_without_an_offer_any_class_will_do() -> None:
    async with a_node() as node:
        await node.api.inner.create(RUNTIME_CLASSES, {"metadata": {"name": "gvisor"}, "handler": "runsc"})
        await node.create(a_pod(runtimeClassName="gvisor"))
        await asyncio.sleep(3)
        assert condition(await node.get(), "Ready") == "True"
        assert node.api.count(resource="runtimeclasses") == 0


async def test_the_class_of_a_runtime_that_is_no_longer_offered_goes() -> None:
    async def less() -> Mapping[str, Probe]:
        return {"gvisor": Probe(True)}

    async with a_node(around=KubeletServices(offering=less), started=False) as node:
        for body in (
            class_body("namespaces", Probe(True)),  # an earlier start made it
            {"metadata": {"name": "own", "labels": {AVAILABLE: "true"}}, "handler": "namespaces"},
        ):
            await node.api.inner.create(RUNTIME_CLASSES, body)
        node.start()
        await asyncio.sleep(1)
        assert set(await classes(node)) == {"gvisor", "own"}, "one that somebody else made is not ours to remove"


def a_class(name: str, probe: Probe, **more: Any) -> RuntimeClass:
    return convert(RUNTIME_CLASSES, {**class_body(name, probe), **more})


def test_what_is_wrong_with_the_classes() -> None:
    right = {name: a_class(name, probe) for name, probe in OFFERS.items()}
    assert list(wrong(OFFERS, {})) == [Create("namespaces"), Create("gvisor")]
    assert list(wrong(OFFERS, right)) == []
    stale = a_class("gvisor", Probe(True))
    assert list(wrong(OFFERS, {**right, "gvisor": stale})) == [Correct("gvisor")]
    theirs = a_class("gvisor", Probe(True), handler="kata")
    assert list(wrong(OFFERS, {**right, "gvisor": theirs})) == [], "another's is left alone"
    assert list(wrong({}, right)) == [Remove("namespaces"), Remove("gvisor")], "nobody is let in on their word"
    assert list(wrong({}, {"gvisor": theirs})) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("here", None),
        ("alias", None),
        ("gone", "it broke"),
        ("broken", "it broke"),
        ("odd", "no runtime is called 'what'"),
        ("none", 'RuntimeClass "none" not found'),
    ],
)
def test_why_a_class_will_not_do(name: str, words: str | None) -> None:
    known = Runtimes({"alias": "here", "broken": "gone", "odd": "what"}, {"gone": "it broke"}, {"here"})
    found = known.why_not(name)
    assert found is None if words is None else words in str(found)


def test_the_machine_has_something() -> None:
    found = machine.capacity()
    assert int(found["cpu"]) >= 1
    assert found["memory"].endswith("Ki")
    assert int(found["memory"].removesuffix("Ki")) > 100_000
