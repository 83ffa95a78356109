"""The same objects over a real SQLite file: what was acknowledged is there after reopening, and work goes on where it was."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandpool.base.clock import SystemClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.event_expiry import EventExpiry
from sandpool.controlplane.garbage_collection import GarbageCollector
from sandpool.controlplane.namespaces import NamespaceController, ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.api import EventType, Propagation
from sandpool.kube.errors import NotFound
from sandpool.model import kinds
from sandpool.model.patches import merge_patch
from support.api.local_objects import claim, config_map, sandbox
from support.api.local_parts import running


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Store, Objects, LocalApi]]:
    store = await Store.open(SqliteLog(folder / "store.db"))
    objects = Objects(store, lambda: datetime.now(UTC), lambda: str(uuid.uuid4()))
    await ensure_namespaces(objects)
    try:
        yield store, objects, LocalApi(objects)
    finally:
        await store.close()


async def gone(api: LocalApi, resource: kinds.Resource, name: str, namespace: str = "") -> None:  # type: ignore[name-defined]
    """Waits, by a watch and not by the clock, until the object is no longer there."""
    page = await api.list(resource, namespace, fields=f"metadata.name={name}")
    if not page.items:
        return
    async with (
        asyncio.timeout(30),
        api.watch(resource, namespace, fields=f"metadata.name={name}", since=page.revision) as events,
    ):
        async for event in events:
            if event.type is EventType.DELETED:
                return


async def test_acknowledged_writes_are_there_after_reopening(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _, api):
        await asyncio.gather(*(api.create(kinds.CLAIMS, claim(f"c{index}"), "default") for index in range(50)))
        patched = await asyncio.gather(
            *(
                api.patch(
                    kinds.CLAIMS, f"c{index}", merge_patch({"metadata": {"labels": {"n": str(index)}}}), "default"
                )
                for index in range(50)
            )
        )
        await api.delete(kinds.CLAIMS, "c0", "default")
        revision = store.revision
    async with opened(tmp_path) as (store, _, api):
        page = await api.list(kinds.CLAIMS, "default")
        assert sorted(page.items, key=str) == sorted(patched[1:], key=str)
        assert store.revision == revision, "opening writes nothing"
        async with api.watch(kinds.CLAIMS, "default", since=patched[0].metadata.revision) as events:
            last = [await anext(events) for _ in range(50)][-1]
        assert (last.type, last.revision) == (EventType.DELETED, revision)


async def test_concurrent_writers_of_one_object(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, _, api):
        await api.create(kinds.CONFIG_MAPS, config_map(), "default")
        await asyncio.gather(
            *(
                api.patch(kinds.CONFIG_MAPS, "c", merge_patch({"data": {f"k{index}": "1"}}), "default")
                for index in range(200)
            )
        )
        assert len((await api.get(kinds.CONFIG_MAPS, "c", "default")).data) == 201


@pytest.mark.parametrize("stop_after", [0, 1, 3, 8])
async def test_an_interrupted_namespace_deletion_goes_on(tmp_path: Path, stop_after: int) -> None:
    async with opened(tmp_path) as (store, objects, api):
        await api.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
        for index in range(10):
            await api.create(kinds.CONFIG_MAPS, config_map(f"c{index}"), "t")
        await api.create(kinds.SANDBOXES, sandbox(), "t")
        await api.delete(kinds.NAMESPACES, "t")
        start = store.revision
        life = asyncio.create_task(NamespaceController(store, objects, SystemClock()).run())
        async with api.watch(kinds.CONFIG_MAPS, "t", since=start) as events:
            for _ in range(stop_after):
                await anext(events)
        life.cancel()
        await asyncio.wait([life])
    async with opened(tmp_path) as (store, objects, api):
        async with running(NamespaceController(store, objects, SystemClock())):
            await gone(api, kinds.NAMESPACES, "t")
        assert (await api.list(kinds.CONFIG_MAPS, "t")).items == ()
        assert (await api.list(kinds.SANDBOXES, "t")).items == ()


async def test_collection_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, _, api):
        owner = await api.create(kinds.CLAIMS, claim("owner"), "default")
        reference = {
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
            "kind": "SandboxClaim",
            "name": "owner",
            "uid": owner.metadata.uid,
            "blockOwnerDeletion": True,
        }
        await api.create(kinds.SANDBOXES, sandbox("child", ownerReferences=[reference]), "default")
        await api.delete(kinds.CLAIMS, "owner", "default", propagation=Propagation.FOREGROUND)
    async with opened(tmp_path) as (store, objects, api):
        async with running(GarbageCollector(store, objects, SystemClock())):
            await gone(api, kinds.CLAIMS, "owner", "default")
        with pytest.raises(NotFound):
            await api.get(kinds.SANDBOXES, "child", "default")


async def test_all_parts_beside_each_other(tmp_path: Path) -> None:
    clock = SystemClock()
    async with opened(tmp_path) as (store, objects, api):
        parts = [part(store, objects, clock) for part in (GarbageCollector, NamespaceController, EventExpiry)]
        async with running(*parts):
            await api.create(kinds.NAMESPACES, {"metadata": {"name": "t"}})
            await api.create(kinds.EVENTS, {"metadata": {"name": "e"}, "involvedObject": {"namespace": "t"}}, "t")
            await api.delete(kinds.NAMESPACES, "t")
            await gone(api, kinds.NAMESPACES, "t")
        assert (await api.list(kinds.EVENTS, "t")).items == ()
