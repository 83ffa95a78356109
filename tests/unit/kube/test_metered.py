"""An Api without a wire that is counted: verb, resource and outcome of every call, as the HTTP adapter tells them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from sandpool.base.clock import SystemClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.namespaces import ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.api import Api
from sandpool.kube.errors import AlreadyExists, NotFound
from sandpool.kube.interceptors import Metered, Traced
from sandpool.model.kinds import CONFIG_MAPS, POOLS
from sandpool.model.patches import merge_patch

POOL = {"metadata": {"name": "p"}, "spec": {"replicas": 1, "sandboxTemplateRef": {"name": "t"}}}
NAME = "sandboxwarmpools.extensions.agents.x-k8s.io"


@pytest.fixture
async def inner() -> AsyncIterator[Api]:
    store = await Store.open(MemoryLog())
    objects = Objects(store, lambda: datetime.now(UTC), lambda: str(uuid.uuid4()))
    await ensure_namespaces(objects)
    yield LocalApi(objects)
    await store.close()


async def test_every_call_is_told_with_its_outcome(inner: Api) -> None:
    told: list[tuple[str, str, str]] = []
    seconds: list[float] = []

    def hear(verb: str, resource: str, outcome: str, took: float) -> None:
        told.append((verb, resource, outcome))
        seconds.append(took)

    api = Metered(inner, SystemClock(), hear)
    made = await api.create(POOLS, POOL, "default")
    with pytest.raises(AlreadyExists):
        await api.create(POOLS, POOL, "default")
    await api.patch(POOLS, "p", merge_patch({"spec": {"replicas": 2}}), "default")
    await api.patch_status(POOLS, "p", merge_patch({"status": {"replicas": 1}}), "default")
    assert (await api.get(POOLS, "p", "default")).spec.replicas == 2
    page = await api.list(POOLS, "default")
    async with api.watch(POOLS, "default", since=made.metadata.revision) as events:
        assert (await anext(events)).object is not None
    assert [item.metadata.name for item in page.items] == ["p"]
    await api.delete(POOLS, "p", "default")
    with pytest.raises(NotFound):
        await api.get(CONFIG_MAPS, "absent", "default")
    assert told == [
        ("create", NAME, "ok"),
        ("create", NAME, "AlreadyExists"),
        ("patch", NAME, "ok"),
        ("patch_status", NAME, "ok"),
        ("get", NAME, "ok"),
        ("delete", NAME, "ok"),
        ("get", "configmaps", "NotFound"),
    ]
    assert all(took >= 0 for took in seconds)


async def test_a_call_that_never_began_leaves_nothing_behind(inner: Api) -> None:
    """Its task was cancelled before its first step: no call further down was made that nobody would await."""
    told: list[str] = []
    api = Traced(Metered(inner, SystemClock(), lambda verb, *_: told.append(verb)))
    task = asyncio.create_task(api.delete(POOLS, "p", "default"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == []
