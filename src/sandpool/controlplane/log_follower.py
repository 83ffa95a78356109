"""How the cluster's own controllers keep up with the log: one task reads it, others work, and who fell behind starts over."""

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
    """Until cancelled: `load` looks at everything, then `observe` reads what changes, while `work` does what is due. A
    reader that fell too far behind loads everything again, which is why nobody need remember more than the present."""
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
