"""Where blocking work is done: files are written, read and removed beside the event loop, in few threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sandpool.node.backend import BackendError

T = TypeVar("T")


class Threads:
    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, f"sandpool-{name}")

    async def run(self, call: Callable[[], T]) -> T:
        try:
            work = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError as error:  # somebody still reads a log
            raise BackendError("Closed", "this backend has been closed") from error
        try:
            return await work
        finally:
            del work, call  # else a failure and this frame hold each other

    def close(self) -> None:
        """All that was begun is done when it returns."""
        self._pool.shutdown()


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """For what may not be left half done: a cancellation waits until it is whole, and comes then."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except BaseException:  # noqa: S110  # raised below
            pass
    if cancelled:
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains
        raise asyncio.CancelledError
    try:
        return task.result()
    finally:
        del task
