"""Runs steps that must finish once begun, even if the waiting caller is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def stoppable_thread(step: Callable[[threading.Event], T]) -> T:
    """Runs a blocking step in a thread. If the caller is cancelled, it sets the step's event and waits for the step to end, because the step
    must not keep working in a directory that is being removed."""
    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(step, stop))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await shielded(_finished(task))
        raise
    finally:
        del task  # else a failure's traceback and this frame keep each other, and the step's arguments, alive


async def _finished(task: asyncio.Future[Any]) -> None:
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # marks it as retrieved; the caller raises the cancellation instead


async def shielded(step: Coroutine[Any, Any, T]) -> T:
    """Runs the step and returns its result. A cancellation in the meantime is raised when the step has ended, so use it for short steps only."""
    task = asyncio.ensure_future(step)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:  # the step's own failure: raised below
            break
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved; the cancellation takes precedence
        raise cancelled
    try:
        return task.result()
    finally:
        del task
