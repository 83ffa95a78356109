"""What is counted of a store, and what a tenant is told when it holds too much."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sandpool.base.shares import OPERATOR
from sandpool.controlplane.objects.holdings import HoldingLimits, Holdings, Rate
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import WriteOptions
from sandpool.controlplane.store.errors import StoreFailed
from sandpool.controlplane.store.log import Loaded, MemoryLog, Sink, Unit
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.errors import ApiError, Forbidden, TooManyRequests, Unavailable
from sandpool.model.kinds import (
    CONFIG_MAPS,
    NAMESPACES,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    TEMPLATES,
)
from sandpool.model.patches import json_patch, merge_patch
from support.api.local_objects import pod, sandbox

KIB = 1024
TENANT = WriteOptions(tenant="a")
MUCH = HoldingLimits()


def made(name: str, size: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"x": "x" * size}}


class Place:
    """A store with objects on it, and a clock that is moved by hand."""

    def __init__(self, store: Store, limits: HoldingLimits) -> None:
        uids = count()
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)
        self.store = store
        self.objects = Objects(store, lambda: self.moment, lambda: f"uid-{next(uids)}", limits=limits)
        self.holdings: Holdings = self.objects.holdings

    async def begin(self) -> Place:
        for name in ("a", "b"):
            await self.objects.create(NAMESPACES, "", {"metadata": {"name": name}})
        return self

    async def store_map(self, name: str, size: int = 0, namespace: str = "a", tenant: str | None = None) -> None:
        options = WriteOptions(tenant=namespace if tenant is None else tenant)
        await self.objects.create(CONFIG_MAPS, namespace, made(name, size), options)

    def really(self) -> tuple[Counter[str], Counter[str]]:
        """Objects and bytes by namespace, counted anew."""
        objects: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for record in self.store.scan("").records:
            _, _, *rest = record.key.split("/")
            namespace = rest[0] if len(rest) == 2 else OPERATOR
            objects[namespace] += 1
            size[namespace] += len(record.value)
        return objects, size

    def counted_right(self) -> bool:
        self.holdings.settle()
        objects, size = self.really()
        holdings = self.holdings
        return (
            holdings.objects.held == {name: objects[name] for name in objects if name}
            and holdings.size.held == {name: size[name] for name in size if name}
            and (holdings.objects.own, holdings.size.own) == (objects[OPERATOR], size[OPERATOR])
        )


async def place(limits: HoldingLimits = MUCH) -> Place:
    return await Place(await Store.open(MemoryLog()), limits).begin()


@pytest.fixture
async def here() -> AsyncIterator[Place]:
    made = await place()
    yield made
    await made.store.close()


async def test_what_is_counted_is_what_is_there(here: Place) -> None:
    draw = random.Random(7)
    for step in range(300):
        name, namespace = f"m{draw.randrange(10)}", draw.choice("ab")
        try:
            match draw.randrange(3):
                case 0:
                    await here.store_map(name, draw.randrange(500), namespace)
                case 1:
                    patch = merge_patch({"data": {"x": "y" * draw.randrange(500)}})
                    await here.objects.patch(CONFIG_MAPS, namespace, name, patch)
                case _:
                    await here.objects.delete(CONFIG_MAPS, namespace, name)
        except ApiError:
            pass
        assert step % 20 or here.counted_right()
    await here.objects.create(SANDBOXES, "a", sandbox("s"))
    await here.objects.create(PODS, "a", pod("p"))
    assert here.counted_right()
    assert (here.holdings.sandboxes.held, here.holdings.pods.held) == ({"a": 1}, {"a": 1})


async def test_a_start_counts_what_is_there(tmp_path: Path) -> None:
    store = await Store.open(SqliteLog(tmp_path / "store.db"))
    first = await Place(store, MUCH).begin()
    await asyncio.gather(*(first.store_map(f"m{number}", number) for number in range(20)))
    await store.close()
    again = Place(await Store.open(SqliteLog(tmp_path / "store.db")), MUCH)
    assert again.counted_right()
    assert again.holdings.objects.holds("a") == 20
    await again.store.close()


class Failing(MemoryLog):
    """Fails what it is given while it is told to."""

    failing = False
    sink: Sink

    async def open(self, sink: Sink) -> Loaded:
        self.sink = sink
        return await super().open(sink)

    def append(self, unit: Unit) -> None:
        if not self.failing:
            super().append(unit)


async def test_what_was_not_stored_is_not_counted() -> None:
    log = Failing()
    here = await Place(await Store.open(log), MUCH).begin()
    await here.store_map("kept", 100)
    log.failing = True
    writing = [asyncio.create_task(here.store_map(f"lost{number}", 100)) for number in range(3)]
    writing.append(
        asyncio.create_task(here.objects.patch(CONFIG_MAPS, "a", "kept", merge_patch({"data": {"x": ""}})))  # type: ignore[arg-type]
    )
    await asyncio.sleep(0)
    here.holdings.settle()
    assert here.holdings.objects.holds("a") == 4  # decided: it counts at once
    log.sink.failed(StoreFailed("the disk is full"))
    assert all(isinstance(error, Unavailable) for error in await asyncio.gather(*writing, return_exceptions=True))
    assert here.counted_right()
    assert here.holdings.objects.holds("a") == 1
    await here.store.close()


async def test_too_many_bytes() -> None:
    here = await place(HoldingLimits(size=900 * KIB))
    for number in range(7):
        await here.store_map(f"m{number}", 100 * KIB)
    with pytest.raises(Forbidden) as refused:
        await here.store_map("m7", 120 * KIB)
    words = str(refused.value)
    assert words.startswith('configmaps "m7" is forbidden: exceeded share of namespace a, requested: bytes=12')
    assert words.endswith("Delete objects of this namespace, or ask the operator for more (--max-stored-bytes)")
    assert (refused.value.code, refused.value.details["name"]) == (403, "m7")
    await here.store_map("b", 50 * KIB, "b")
    await here.store_map("by-the-operator", 120 * KIB, "a", tenant=OPERATOR)
    await here.objects.patch(CONFIG_MAPS, "a", "m0", merge_patch({"data": {"x": "less"}}), TENANT)
    await here.objects.delete(CONFIG_MAPS, "a", "m1")
    await here.objects.delete(CONFIG_MAPS, "a", "m2")
    await here.store_map("m7", 120 * KIB)
    await here.store.close()


async def test_a_small_patch_that_makes_much_of_it() -> None:
    here = await place(HoldingLimits(size=900 * KIB))
    await here.store_map("m", 300 * KIB)
    double = json_patch([{"op": "copy", "from": "/data/x", "path": f"/data/{name}"} for name in "yz"])
    with pytest.raises(Forbidden, match="requested: bytes=6"):
        await here.objects.patch(CONFIG_MAPS, "a", "m", double, TENANT)
    assert here.counted_right()
    await here.store.close()


async def test_too_many_objects() -> None:
    here = await place(HoldingLimits(objects=9))
    for number in range(8):
        await here.store_map(f"m{number}")
    with pytest.raises(Forbidden, match=r"requested: objects=1, used: objects=8, limited: objects=8\. .*--max-objects"):
        await here.store_map("m8")
    dry = WriteOptions(dry_run=True, tenant="a")
    with pytest.raises(Forbidden):
        await here.objects.create(CONFIG_MAPS, "a", made("m8"), dry)
    await here.store_map("b", namespace="b")
    await here.store_map("by-the-operator", tenant=OPERATOR)
    await here.store.close()


@pytest.mark.parametrize(("kind", "body"), [(SANDBOXES, sandbox), (PODS, pod)], ids=["sandboxes", "pods"])
async def test_too_many_sandboxes_and_pods_whoever_makes_them(kind: Any, body: Any) -> None:
    here = await place(HoldingLimits(sandboxes=9))
    asked = [
        here.objects.create(kind, "a", body(f"s{number}")) for number in range(20)
    ]  # before any of them is on disk
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Forbidden)]
    assert len(refused) == 12
    assert f"used: {kind.plural}=8, limited: {kind.plural}=8. " in str(refused[0])
    assert "(--max-sandboxes)" in str(refused[0])
    await here.objects.create(kind, "b", body("s"))
    await here.objects.delete(kind, "a", "s0")
    await here.store.close()


@pytest.mark.parametrize(
    ("kind", "spec", "most"),
    [
        (POOLS, {"sandboxTemplateRef": {"name": "t"}}, 2000),
        (TEMPLATES, {"podTemplate": {"spec": {"containers": []}}}, 2000),
        (NETWORK_POLICIES, {"podSelector": {}}, 10_000),
    ],
    ids=lambda each: getattr(each, "plural", ""),
)
async def test_of_kinds_that_concern_many_others_there_are_few(kind: Any, spec: dict[str, Any], most: int) -> None:
    here = await place()
    assert here.holdings.few[kind.plural].total == most
    await here.store.close()
    here = await place(HoldingLimits(objects=200))
    with pytest.raises(Forbidden, match=rf"{kind.plural}=\d+\. .*--max-objects"):
        await asyncio.gather(
            *(
                here.objects.create(kind, "a", {"metadata": {"name": f"o{number}"}, "spec": spec}, TENANT)
                for number in range(30)
            )
        )
    others = WriteOptions(tenant="b")
    await here.objects.create(kind, "b", {"metadata": {"name": "o"}, "spec": spec}, others)
    await here.store.close()


def large(document: dict[str, Any], size: int) -> dict[str, Any]:
    return document | {"metadata": document["metadata"] | {"annotations": {"much": "x" * size}}}


@pytest.mark.parametrize(("kind", "body"), [(SANDBOXES, sandbox), (PODS, pod)], ids=["sandboxes", "pods"])
async def test_large_sandboxes_and_pods_whoever_makes_them(kind: Any, body: Any) -> None:
    """A pool of a few words makes hundreds of them: they must not take what other tenants have left to write in."""
    here = await place(HoldingLimits(size=900 * KIB))
    asked = [here.objects.create(kind, "a", large(body(f"s{number}"), 40 * KIB)) for number in range(40)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Forbidden)]
    assert len(refused) > 15
    assert "(--max-stored-bytes)" in str(refused[0])
    assert here.holdings.size.used < 900 * KIB
    await here.store_map("b", 5 * KIB, "b")
    await here.objects.delete(kind, "a", "s0")
    await here.store.close()


async def test_too_many_volume_claims_of_sandboxes() -> None:
    here = await place(HoldingLimits(objects=9))
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    for number in range(8):
        await here.objects.create(PERSISTENT_VOLUME_CLAIMS, "a", {"metadata": {"name": f"v{number}"}, "spec": spec})
    with pytest.raises(Forbidden, match="--max-objects"):
        await here.objects.create(PERSISTENT_VOLUME_CLAIMS, "a", {"metadata": {"name": "v8"}, "spec": spec})
    await here.store_map("b", namespace="b")
    await here.store.close()


async def test_what_controllers_change_grows_within_the_share_of_its_namespace() -> None:
    """They copy annotations of a sandbox to its pod, after the sandbox was charged."""
    here = await place(HoldingLimits(size=900 * KIB))
    await here.objects.create(PODS, "a", pod("p"))
    for number in range(7):
        await here.store_map(f"m{number}", 100 * KIB)
    annotated = [merge_patch({"metadata": {"annotations": {"much": "x" * size}}}) for size in (120 * KIB, 1 * KIB)]
    with pytest.raises(Forbidden, match="--max-stored-bytes"):
        await here.objects.patch(PODS, "a", "p", annotated[0])
    for number in range(7, 12):
        with suppress(Forbidden):
            await here.store_map(f"m{number}", 20 * KIB)
    await here.objects.patch(PODS, "a", "p", annotated[1])  # a little always has room
    told = merge_patch({"status": {"message": "x" * 60 * KIB}})
    await here.objects.patch(PODS, "a", "p", told, subresource="status")
    await here.objects.delete(PODS, "a", "p")
    await here.store.close()


async def test_too_much_in_a_moment() -> None:
    here = await place(HoldingLimits(writes=Rate(900 * KIB, 100 * KIB)))
    await here.store_map("m", 300 * KIB)
    label = [merge_patch({"metadata": {"labels": {"n": str(number)}}}) for number in range(5)]
    await here.objects.patch(CONFIG_MAPS, "a", "m", label[0], TENANT)
    with pytest.raises(TooManyRequests) as refused:
        await here.objects.patch(CONFIG_MAPS, "a", "m", label[1], TENANT)
    assert refused.value.retry_after == 2
    await here.objects.patch(CONFIG_MAPS, "a", "m", label[2])  # the operator's
    await here.store_map("b", 50 * KIB, "b")
    here.moment = datetime(2026, 1, 1, 0, 0, 4, tzinfo=UTC)
    await here.objects.patch(CONFIG_MAPS, "a", "m", label[3], TENANT)
    await here.objects.delete(CONFIG_MAPS, "a", "m")
    await here.store.close()
