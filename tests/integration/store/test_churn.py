"""Thousands of short lives: what comes and goes leaves nothing behind, in memory or on disk."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.namespaces import ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds
from sandpool.kube.api import EventType
from sandpool.model.kinds import CLAIMS
from sandpool.model.metadata import Revision
from sandpool.model.patches import merge_patch

WORKERS = 50
BOUNDS = Bounds(window=2_000, checkpoint=256 * 1024, wal=2 * 1024 * 1024)
REMEMBER = HistoryLimits(changes=2_000)


async def one_life(api: LocalApi, name: str) -> None:
    await api.create(CLAIMS, {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": "python"}}}, "default")
    for step in range(3):
        await api.patch(CLAIMS, name, merge_patch({"metadata": {"labels": {"step": str(step)}}}), "default")
    await api.delete(CLAIMS, name, "default")


async def a_round(api: LocalApi, number: int, lives: int) -> None:
    async def worker(index: int) -> None:
        for life in range(lives // WORKERS):
            await one_life(api, f"claim-{number}-{index}-{life}")

    await asyncio.gather(*(worker(index) for index in range(WORKERS)))


async def mirror(api: LocalApi, since: Revision, until: asyncio.Event) -> dict[str, str]:
    """What a watcher believes exists, built from nothing but its events."""
    believed: dict[str, str] = {}
    async with api.watch(CLAIMS, "default", since=since) as events:
        async for event in events:
            if event.object is not None:
                name = event.object.metadata.name
                if event.type is EventType.DELETED:
                    assert believed.pop(name)
                else:
                    believed[name] = event.object.metadata.resource_version
                    if name == "last":
                        until.set()
                        return believed
    raise AssertionError("the watch ended")


async def churn(folder: Path, rounds: int, lives: int) -> tuple[list[int], list[int], int]:
    path = folder / "store.db"
    store = await Store.open(SqliteLog(path, BOUNDS), history_limits=REMEMBER)
    try:
        objects = Objects(store, lambda: datetime.now(UTC), lambda: str(uuid.uuid4()))
        await ensure_namespaces(objects)
        api = LocalApi(objects)
        seen = asyncio.Event()
        watcher = asyncio.create_task(mirror(api, store.revision, seen))
        memory, disk, wal = [], [], 0
        for number in range(rounds):
            await a_round(api, number, lives)
            gc.collect()
            memory.append(tracemalloc.get_traced_memory()[0])
            disk.append(path.stat().st_size)
            wal = max(wal, Path(f"{path}-wal").stat().st_size)
        await api.create(CLAIMS, {"metadata": {"name": "last"}, "spec": {"warmPoolRef": {"name": "python"}}}, "default")
        await seen.wait()
        assert (await watcher).keys() == {"last"}
        assert [claim.metadata.name for claim in (await api.list(CLAIMS, "default")).items] == ["last"]
        assert store.revision - store.oldest <= 3 * REMEMBER.changes
        return memory, disk, wal
    finally:
        await store.close()


@pytest.mark.long
async def test_nothing_grows_with_what_has_come_and_gone(tmp_path: Path) -> None:
    rounds = 12
    tracemalloc.start()
    try:
        memory, disk, wal = await churn(tmp_path, rounds, lives=5_000)
    finally:
        tracemalloc.stop()
    settled = rounds // 2  # by then the history is full and free pages are reused
    assert max(memory[settled:]) <= memory[settled - 1] * 1.25, memory
    assert max(disk[settled:]) <= disk[settled - 1] * 1.25, disk
    assert wal <= 2 * BOUNDS.wal, wal
