"""Opens the data directory of a local cluster, its store with a disk reserve, and its objects."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from sandpool.app.local_options import LocalOptions
from sandpool.base.clock import Clock
from sandpool.controlplane.damage import open_options
from sandpool.controlplane.data_dir import Lock
from sandpool.controlplane.memory_pressure import MemoryGuard, caused_by_memory
from sandpool.controlplane.namespaces import ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.uids import NewUids
from sandpool.controlplane.store.errors import StoreFailed
from sandpool.controlplane.store.log import Commit
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.node.disk.guard import DiskGuard
from sandpool.node.disk.space import Disk, Level
from sandpool.telemetry.metrics import Metrics

MOST_ROOM = 32 * 1024 * 1024
"""Upper limit of the spare bytes that the store keeps allocated, in its file and in its write-ahead log each."""
STORAGE_CLASS = "standard"
"""The default storage class. Whatever the class, a PersistentVolumeClaim is a directory on this machine."""


class StoreWatch:
    """Counts commits and records whether the last one succeeded: a cluster that cannot write is not ready."""

    def __init__(self, metrics: Metrics, guard: MemoryGuard | None = None) -> None:
        self._metrics = metrics
        self._guard = guard
        self.writable = True
        self.starved: Callable[[], object] = lambda: None  # called when a commit failed because the disk is full

    def committed(self, commit: Commit) -> None:
        self.writable = True
        self._metrics.committed(commit.writes, commit.seconds)

    def failed(self, error: StoreFailed) -> None:
        self.writable = False
        if getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            self.starved()
        if self._guard is not None and caused_by_memory(error):
            self._guard.end("a commit failed, and what of it is on disk is known after a start")


@dataclass(frozen=True, slots=True)
class ClusterStore:
    """The open data directory of a cluster: its lock, its store, its objects and the guard of its disk."""

    lock: Lock
    store: Store
    objects: Objects
    watch: StoreWatch
    guard: DiskGuard


@asynccontextmanager
async def open_cluster_store(
    options: LocalOptions, clock: Clock, watch: StoreWatch, metrics: Metrics
) -> AsyncIterator[ClusterStore]:
    """Takes the lock of the data directory, opens the store and creates the first namespaces. Closes them in reverse order."""
    directory = options.data_dir
    directory.prepare()
    async with AsyncExitStack() as stack:
        lock = directory.take()
        stack.callback(lock.release)
        guard = DiskGuard(directory.root, directory.reserve, clock, options.disk_reserve)
        await asyncio.to_thread(guard.open)
        bounds = replace(options.retention.log, room=min(guard.reserve // 8, MOST_ROOM))
        durable = SqliteLog(directory.store, bounds, open_options(directory, options.accept_loss))
        store = await Store.open(durable, observer=watch, history_limits=options.retention.history)
        stack.push_async_callback(store.close)
        objects = Objects(store, clock.now, NewUids(), limits=options.holdings, storage_class=STORAGE_CLASS)
        metrics.shares |= objects.holdings.shares
        watch.starved = guard.starved
        await ensure_namespaces(objects)
        guard.on_change = partial(_report_disk, objects, durable)
        guard.on_change(guard.disk)
        metrics.show(guard.read)
        yield ClusterStore(lock, store, objects, watch, guard)


def _report_disk(objects: Objects, log: SqliteLog, disk: Disk) -> None:
    full = disk.level is Level.FULL
    objects.room.why = disk.message if full else ""
    log.room_is_short(full)
