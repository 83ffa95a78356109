"""What a tenant makes difficult, for owner collection or by its namespace's end, takes long for itself and for nobody else."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

import pytest

from sandpool.controlplane import garbage_collection as collect
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.garbage_collection import GarbageCollector
from sandpool.controlplane.namespaces import NamespaceController
from sandpool.controlplane.owner_graph import Node
from sandpool.controlplane.store.record import Record
from sandpool.kube.api import Batched
from sandpool.model import kinds
from sandpool.model.patches import merge_patch
from support.api.local_objects import Bench, config_map
from support.api.local_parts import quiet, running, until
from support.clocks.manual_clock import ManualClock

Body = dict[str, Any]


def reference(name: str, uid: str, **more: Any) -> Body:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, **more}


async def test_what_one_leaves_behind_is_not_collected_before_what_another_does(b: Bench) -> None:
    for namespace, number in (("greedy", 1500), ("modest", 1)):
        await b.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
        for index in range(number):
            left = config_map(f"c{index}", ownerReferences=[reference("nobody", "gone")])
            await b.create(kinds.CONFIG_MAPS, left, namespace)
    async with running(GarbageCollector(b.store, b.objects, ManualClock())):
        while b.names_of(kinds.CONFIG_MAPS, "modest"):
            await asyncio.sleep(0)
        assert len(b.names_of(kinds.CONFIG_MAPS, "greedy")) > 500
        await until(lambda: not b.names_of(kinds.CONFIG_MAPS, "greedy"))


async def test_an_owner_that_is_named_a_thousand_times_is_read_once(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(record: Record) -> Node:
        read.append(record.key)
        return node_of(record)

    node_of = collect.node_of  # type: ignore[attr-defined]
    monkeypatch.setattr(collect, "node_of", counted)
    owner = await b.create(kinds.CONFIG_MAPS, config_map("owner"))
    uid = owner["metadata"]["uid"]
    async with running(GarbageCollector(b.store, b.objects, ManualClock())):
        named = [reference("owner", uid, controller=False), *(reference("owner", f"u{index}") for index in range(1000))]
        await b.create(kinds.CONFIG_MAPS, config_map("owned", ownerReferences=named))
        await until(lambda: len(b.get(kinds.CONFIG_MAPS, "owned")["metadata"]["ownerReferences"]) == 1)
    assert len([key for key in read if key.endswith("/owner")]) == 1


async def test_what_a_web_of_owners_costs(b: Bench) -> None:
    """Each waits for all that came after it, and the last for somebody else. Calls of Python functions: the same on every machine."""
    made: list[Body] = []
    for index in range(40):
        owners = [reference(*one, blockOwnerDeletion=True) for one in [_named(each) for each in made]]
        body = config_map(f"c{index}", ownerReferences=owners, finalizers=["example.com/held", "foregroundDeletion"])
        made.append(await b.create(kinds.CONFIG_MAPS, body))
    for each in made:
        await b.delete(kinds.CONFIG_MAPS, each["metadata"]["name"])
    calls = longest = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and "/sandpool/controlplane/" in frame.f_code.co_filename

    async with running(GarbageCollector(b.store, b.objects, ManualClock())):
        sys.setprofile(profile)
        try:
            for _ in range(400):
                before = calls
                await asyncio.sleep(0)
                longest = max(longest, calls - before)
        finally:
            sys.setprofile(None)
        await quiet(b.store)
    assert longest < 10_000  # in one turn of the loop
    assert len(b.names_of(kinds.CONFIG_MAPS)) == len(made)


def _named(made: Body) -> tuple[str, str]:
    return made["metadata"]["name"], made["metadata"]["uid"]


def large(name: str) -> Body:
    return {"metadata": {"name": name}, "data": {"x": "x" * 100_000}}


async def test_what_controllers_write_for_one_leaves_turns_to_another(b: Bench) -> None:
    api = LocalApi(b.objects)
    for namespace in ("greedy", "modest"):
        await b.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
    greedy = [asyncio.create_task(api.create(kinds.CONFIG_MAPS, large(f"c{n}"), "greedy")) for n in range(20)]
    await api.create(kinds.CONFIG_MAPS, large("c"), "modest")
    assert len(b.names_of(kinds.CONFIG_MAPS, "greedy")) < 5
    await asyncio.gather(*greedy)
    label = merge_patch({"metadata": {"labels": {"a": "b"}}})
    greedy = [asyncio.create_task(api.patch(kinds.CONFIG_MAPS, f"c{n}", label, "greedy")) for n in range(20)]
    await api.patch(kinds.CONFIG_MAPS, "c", label, "modest")
    assert len(b.names_of(kinds.CONFIG_MAPS, "greedy", labels="a=b")) < 5
    await asyncio.gather(*greedy)


async def test_what_is_read_for_one_leaves_turns_to_another(b: Bench) -> None:
    api = LocalApi(b.objects)
    for namespace, number in (("greedy", 20), ("modest", 1)):
        await b.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
        for index in range(number):
            await b.create(kinds.CONFIG_MAPS, large(f"c{index}"), namespace)
    read: list[str] = []

    async def get(name: str, namespace: str) -> None:
        read.append((await api.get(kinds.CONFIG_MAPS, name, namespace)).metadata.namespace)

    greedy = [asyncio.create_task(get(f"c{n}", "greedy")) for n in range(20)]
    await asyncio.sleep(0)
    await get("c0", "modest")
    assert len(read) < 5, "of which the last is the modest one's"
    await asyncio.gather(*greedy)
    assert len(read) == 21


async def test_a_list_of_large_objects_leaves_turns_to_others(b: Bench) -> None:
    api = LocalApi(b.objects)
    for index in range(20):
        await b.create(kinds.CONFIG_MAPS, large(f"c{index}"))
    listing = asyncio.create_task(api.list(kinds.CONFIG_MAPS))
    turns = 0
    while not listing.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 5:
            await b.delete(kinds.CONFIG_MAPS, "c19")
    assert turns > 20
    assert len([one for one in listing.result().items if one.metadata.name.startswith("c")]) == 20, "as it was"


async def test_a_small_object_is_read_at_once(b: Bench) -> None:
    api = LocalApi(b.objects)
    await b.create(kinds.CONFIG_MAPS, large("large"))
    await b.create(kinds.CONFIG_MAPS, config_map("small"))
    await api.get(kinds.CONFIG_MAPS, "large", "default")  # whose turn this is
    for _ in range(100):
        with pytest.raises(StopIteration):
            api.get(kinds.CONFIG_MAPS, "small", "default").send(None)


async def test_what_controllers_hear_of_comes_in_portions(b: Bench) -> None:
    for index in range(10):
        await b.create(kinds.CONFIG_MAPS, large(f"c{index}"))
    for index in range(10):
        await b.create(kinds.CONFIG_MAPS, config_map(f"d{index}"))
    async with LocalApi(b.objects).watch(kinds.CONFIG_MAPS, initial=True) as events:
        assert isinstance(events, Batched)
        taken = [len(await events.batch()) for _ in range(11)]
    assert taken == [1] * 10 + [11]


async def test_a_namespace_begins_while_a_full_one_ends(b: Bench) -> None:
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "greedy"}})
    for index in range(1000):
        await b.create(kinds.CONFIG_MAPS, config_map(f"c{index}"), "greedy")
    async with running(NamespaceController(b.store, b.objects, ManualClock())):
        await quiet(b.store)
        await b.delete(kinds.NAMESPACES, "greedy")
        while len(b.names_of(kinds.CONFIG_MAPS, "greedy")) == 1000:
            await asyncio.sleep(0)
        await b.create(kinds.NAMESPACES, {"metadata": {"name": "modest"}})
        while b.absent(kinds.SERVICE_ACCOUNTS, "default", "modest"):
            await asyncio.sleep(0)
        assert len(b.names_of(kinds.CONFIG_MAPS, "greedy")) > 100
        await until(lambda: b.absent(kinds.NAMESPACES, "greedy"))


async def test_what_holds_a_namespace_is_told_in_few_words(b: Bench) -> None:
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "greedy"}})
    held = [f"example.com/f{index:04d}" for index in range(3000)]
    await b.create(kinds.CONFIG_MAPS, config_map("c", finalizers=held), "greedy")
    async with running(NamespaceController(b.store, b.objects, ManualClock())):
        await b.delete(kinds.NAMESPACES, "greedy")
        await until(lambda: "conditions" in b.get(kinds.NAMESPACES, "greedy")["status"])
    said = {one["type"]: one["message"] for one in b.get(kinds.NAMESPACES, "greedy")["status"]["conditions"]}
    assert said["NamespaceFinalizersRemaining"].endswith("example.com/f0019 in 1 resource instances, and 2980 more")
