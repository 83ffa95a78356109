"""The kubelet and the controllers of a local cluster as one part: when it is ready, how it ends, what its failure does."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from sandpool.app.controllers import Observability
from sandpool.app.local_cluster import LocalCluster, serve
from sandpool.app.local_control import LocalControl
from sandpool.app.local_options import LocalOptions
from sandpool.base.clock import SystemClock
from sandpool.base.errors import SandpoolError
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.data_dir import DataDir
from sandpool.controlplane.namespaces import ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.loop.lifetimes import first_error
from sandpool.model.kinds import NODES, PODS
from sandpool.node.backend import Changed
from sandpool.node.runtimes.fake import FakeBackend
from support.simulated.kubelet_node import a_pod


class NoRoom(SandpoolError):
    pass


class BadBackend(FakeBackend):
    """It cannot be opened."""

    async def open(self, changed: Changed) -> None:
        raise NoRoom("no room for pods")


@asynccontextmanager
async def an_api() -> AsyncIterator[LocalApi]:
    store = await Store.open(MemoryLog())
    objects = Objects(store, lambda: datetime.now(UTC), lambda: str(uuid.uuid4()))
    await ensure_namespaces(objects)
    try:
        yield LocalApi(objects)
    finally:
        await store.close()


def control(api: LocalApi, backend: FakeBackend) -> LocalControl:
    return LocalControl(api, backend, SystemClock(), Observability(), random=Random(1).random)


async def test_it_is_ready_while_it_runs_and_only_then() -> None:
    stop = asyncio.Event()
    async with an_api() as api, asyncio.timeout(30):
        parts = control(api, FakeBackend(SystemClock()))
        checks = parts.checks
        assert checks.keys() == {"kubelet", "controllers"}
        assert not any(check() for check in checks.values())
        async with parts.running(stop):
            assert all(check() for check in checks.values())
            await api.create(PODS, a_pod(), "default")
            async with api.watch(PODS, "default", initial=True) as events:
                async for event in events:
                    if event.object is not None and event.object.ready:
                        break
            assert [node.metadata.name for node in (await api.list(NODES)).items] == ["local"]
            stop.set()
        assert not any(check() for check in checks.values())


async def test_a_backend_that_cannot_be_opened_ends_it_with_its_error() -> None:
    stop = asyncio.Event()
    async with an_api() as api, asyncio.timeout(30):
        with pytest.raises(BaseException) as caught:
            async with control(api, BadBackend(SystemClock())).running(stop):
                await stop.wait()
        assert isinstance(first_error(caught.value), NoRoom)


async def test_a_stop_while_it_starts_is_heeded() -> None:
    stop = asyncio.Event()
    stop.set()
    async with an_api() as api, asyncio.timeout(30), control(api, FakeBackend(SystemClock())).running(stop):
        pass


@pytest.mark.parametrize("when", ["before", "when ready"])
async def test_a_cluster_that_is_stopped_leaves_its_directory_free(tmp_path: Path, when: str) -> None:
    directory, stop = DataDir(tmp_path / "data"), asyncio.Event()
    seen: list[LocalCluster] = []

    def ready(cluster: LocalCluster) -> None:
        seen.append(cluster)
        assert directory.read_running() == cluster.running
        stop.set()

    if when == "before":
        stop.set()
    async with asyncio.timeout(30):
        await serve(LocalOptions(directory), ready, stop)
    assert len(seen) == (when == "when ready")
    assert directory.holder() is None
