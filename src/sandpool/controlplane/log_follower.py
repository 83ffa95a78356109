"""Runs a controller on the store's log: one task observes changes while others work. A reader that falls behind reloads everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sandpool.controlplane.store.port import Watcher
from sandpool.controlplane.store.record import Compacted


async def follow(
    load: Callable[[], Watcher],
    observe: Callable[[Watcher], Coroutine[Any, Any, None]],
    work: Callable[[asyncio.TaskGroup], Coroutine[Any, Any, None]],
) -> None:
    """Runs until cancelled: `load` reads everything, then `observe` consumes the changes, while `work` reconciles. After
    Compacted everything is loaded again, so controllers need to keep only the current state."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work(tasks))
        while True:
            watcher = load()
            try:
                await observe(watcher)
            except Compacted:
                continue
            finally:
                watcher.close()
