"""Steps that must come to their end once begun, also when whoever waits for them is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(step: Coroutine[Any, Any, T]) -> T:
    """Its result. A cancellation that comes meanwhile is raised after it: for short steps only."""
    task = asyncio.ensure_future(step)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:  # its own failure is told below
            break
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved: the cancellation goes before
        raise cancelled
    return task.result()
