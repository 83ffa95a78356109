"""The implementations of kube.Api that the conformance suite runs on, each opened the same way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from conformance.bodies import sandbox
from sandpool.base.clock import SystemClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.apiserver.access.directory import open_access, write_kubeconfig
from sandpool.controlplane.apiserver.server import ApiServer, ServerOptions
from sandpool.controlplane.garbage_collection import GarbageCollector
from sandpool.controlplane.namespaces import NamespaceController, ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds
from sandpool.kube.api import Api
from sandpool.kube.http import connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.model.kinds import SANDBOXES
from sandpool.model.patches import merge_patch
from support.kube.fixture import real_compaction, real_kubeconfig

NAMES = ("memory", "sqlite", "http", "kube")
WINDOW = 1000  # changes that a store of these tests remembers


@dataclass(frozen=True)
class Implementation:
    """An Api, and what a test may expect of the cluster behind it."""

    name: str
    api: Api
    compact: Callable[[], Awaitable[None]] | None  # forgets all history; None: cannot be asked to
    collects: bool = True  # dependents are collected and deleted namespaces finished


@contextlib.asynccontextmanager
async def opened(name: str, folder: Path) -> AsyncIterator[Implementation]:
    """An implementation with no objects in it (or, for a real cluster, with those of others)."""
    if name == "kube":
        async with over_http(name, real_kubeconfig(), real_compaction()) as implementation:
            yield implementation
        return
    async with local_objects(folder, durable=name == "sqlite") as objects:
        local = LocalApi(objects)

        async def compact() -> None:
            await outgrow(local)

        if name == "http":
            async with served(objects, folder) as kubeconfig, over_http(name, kubeconfig, compact) as implementation:
                yield implementation
        else:
            yield Implementation(name, local, compact)


@contextlib.asynccontextmanager
async def local_objects(folder: Path, *, durable: bool) -> AsyncIterator[Objects]:
    """A cluster on one machine without its REST surface: the store, the rules, and the controllers of a cluster itself."""
    log = SqliteLog(folder / "store.db", Bounds(window=WINDOW)) if durable else MemoryLog(WINDOW)
    store = await Store.open(log, history_limits=HistoryLimits(changes=WINDOW))
    objects = Objects(store, lambda: datetime.now(UTC), lambda: str(uuid.uuid4()))
    await ensure_namespaces(objects)
    clock = SystemClock()
    keepers = [
        asyncio.create_task(each.run())
        for each in (GarbageCollector(store, objects, clock), NamespaceController(store, objects, clock))
    ]
    try:
        yield objects
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        await store.close()


@contextlib.asynccontextmanager
async def served(objects: Objects, folder: Path) -> AsyncIterator[Path]:
    """Those objects behind our API server on a free port; gives the admin's kubeconfig."""
    access = open_access(folder / "access", (), datetime.now(UTC))
    server = ApiServer(objects, access, ServerOptions())
    await server.start()
    kubeconfig = folder / "kubeconfig"
    write_kubeconfig(kubeconfig, server.url, access.authority, access.admin_token)
    try:
        yield kubeconfig
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def over_http(
    name: str, kubeconfig: Path, compact: Callable[[], Awaitable[None]] | None
) -> AsyncIterator[Implementation]:
    config = load_kubeconfig([kubeconfig])
    async with connect(config, clock=SystemClock(), draw=random.random, env=os.environ) as api:
        yield Implementation(name, api, compact)


async def outgrow(api: Api) -> None:
    """Writes so many sandboxes elsewhere that no earlier change of any sandbox is remembered."""
    await api.create(SANDBOXES, sandbox("filler"), "default")
    for start in range(0, 2 * WINDOW, 200):
        patches = (merge_patch({"status": {"nodeName": str(start + i)}}) for i in range(200))
        await asyncio.gather(*(api.patch_status(SANDBOXES, "filler", patch, "default") for patch in patches))
