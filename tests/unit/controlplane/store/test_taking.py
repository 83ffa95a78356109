"""A watcher that has missed much takes it in portions, and misses nothing."""

from __future__ import annotations

import asyncio

from sandpool.controlplane.store.history import LARGEST_TAKEN, MOST_TAKEN
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.model.metadata import NO_REVISION


async def filled(store: Store, number: int, size: int, namespace: str) -> None:
    value = b"x" * size
    await asyncio.gather(
        *(store.put(f"core/maps/{namespace}/m{index}", NO_REVISION, lambda _: value) for index in range(number))
    )


async def test_few_bytes_at_once() -> None:
    store = await Store.open(MemoryLog())
    watcher = store.watch("core/maps/", store.revision)
    await filled(store, 20, LARGEST_TAKEN // 3, "a")
    seen: list[int] = []
    while len(seen) < 20:
        changes = await watcher.changes()
        assert sum(len(change.record.value) for change in changes) <= LARGEST_TAKEN
        seen += [change.record.revision for change in changes]
        assert watcher.revision == seen[-1]  # what a bookmark may say: nothing before it is missing
    assert seen == sorted(seen) == list(range(1, 21))
    await store.close()


async def test_one_that_is_larger_than_all_that_comes_alone() -> None:
    store = await Store.open(MemoryLog())
    watcher = store.watch("core/maps/", store.revision)
    await filled(store, 3, 2 * LARGEST_TAKEN, "a")
    assert [len(await watcher.changes()) for _ in range(3)] == [1, 1, 1]
    await store.close()


async def test_what_is_behind_many_changes_of_others_is_found() -> None:
    store = await Store.open(MemoryLog())
    watcher = store.watch("core/maps/b/", store.revision)
    await filled(store, 2 * MOST_TAKEN + 10, 1, "a")
    await filled(store, 1, 1, "b")
    async with asyncio.timeout(10):
        assert [change.record.key for change in await watcher.changes()] == ["core/maps/b/m0"]
    assert watcher.revision == store.revision
    await store.close()
