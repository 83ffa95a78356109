"""Steps that must come to their end once begun, also when whoever waits for them is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def stoppable(step: Callable[[threading.Event], T]) -> T:
    """Runs a blocking step in a thread. If whoever waits is cancelled, the step is told by its event, and is waited for: it may
    not go on in a folder that is being removed."""
    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(step, stop))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await uninterrupted(_over(task))
        raise
    finally:
        del task  # else a failure and this frame hold each other, and what the step was given with them


async def _over(task: asyncio.Future[Any]) -> None:
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # retrieved: the cancellation goes before


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
    try:
        return task.result()
    finally:
        del task
