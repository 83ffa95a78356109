"""A writer's thread that dies, for lack of memory or anything else: callers that wait for it get an error."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandpool.controlplane.memory_pressure import caused_by_memory
from sandpool.controlplane.store.errors import StoreFailed
from sandpool.controlplane.store.log import Commit
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.model.metadata import NO_REVISION


class Heard:
    def __init__(self) -> None:
        self.failures: list[StoreFailed] = []

    def committed(self, commit: Commit) -> None: ...

    def failed(self, error: StoreFailed) -> None:
        self.failures.append(error)


async def test_writes_fail_and_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, heard = SqliteLog(tmp_path / "store.db"), Heard()
    store = await Store.open(log, observer=heard)

    def no_memory() -> None:
        raise MemoryError

    monkeypatch.setattr(log.writer, "gather", no_memory)  # what it calls next
    await store.put("core/pods/a", NO_REVISION, lambda revision: b"{}")
    async with asyncio.timeout(30):
        with pytest.raises(StoreFailed, match="MemoryError"):
            await store.put("core/pods/b", NO_REVISION, lambda revision: b"{}")
        with pytest.raises(StoreFailed, match="MemoryError"):
            await store.put("core/pods/c", NO_REVISION, lambda revision: b"{}")
        assert caused_by_memory(heard.failures[0])
        await store.close()
