"""Parts that run beside a body of code: they start before it and end after it.

Nested, they start in the order in which they are written and end the other way round. A part that fails cancels the body
and everything inside it, and its error is what remains.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sandpool.base.errors import SandpoolError

Work = Coroutine[Any, Any, None]


@asynccontextmanager
async def beside(**parts: Work) -> AsyncIterator[None]:
    """Runs these parts while the body runs, and cancels them at its end. They must not end before."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_endless(work, name), name=name) for name, work in parts.items()]
            yield
            for task in tasks:
                task.cancel()
    finally:
        for work in parts.values():
            work.close()  # of a body that ended at once some have not even begun


async def reached(event: asyncio.Event, stop: asyncio.Event) -> bool:
    """Waits for the event, but not past `stop`; whether the event is set and `stop` is not."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(either.wait()) for either in (event, stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return event.is_set() and not stop.is_set()


def first_error(error: BaseException) -> BaseException:
    """The error that began it, without the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def ungrouped() -> Iterator[None]:
    """What a user can be told leaves as itself. Before Python 3.11.4 `except*` would put a group around it again."""
    try:
        yield
    except BaseExceptionGroup as group:
        told, other = group.split((SandpoolError, OSError))
        if told is None or other is not None:
            raise
        raise first_error(told) from None


async def _endless(work: Work, name: str) -> None:
    await work
    raise SandpoolError(f"{name} ended by itself; it should run until the cluster stops")
