"""Background parts that run while a body of code runs: they start before it and end after it.

Nested, they start in the order in which they are written and end the other way round. A part that fails cancels the body
and everything inside it, and its error is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from sandpool.base.errors import SandpoolError

Work = Coroutine[Any, Any, None]


def beside(**parts: Work) -> AbstractAsyncContextManager[None]:
    """Runs these parts while the body runs, and cancels them at its end. They must not end before."""
    return beside_all(tuple(parts.items()))


@asynccontextmanager
async def beside_all(parts: Sequence[tuple[str, Work]]) -> AsyncIterator[None]:
    """As `beside`, for parts whose names are not unique, or no identifiers. A name is for the error of a part that ends by itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_endless(work, name), name=name) for name, work in parts]
            yield
            for task in tasks:
                task.cancel()
    finally:
        for _, work in parts:
            work.close()  # if the body ended at once, some have not even begun


async def reached(event: asyncio.Event, stop: asyncio.Event) -> bool:
    """Waits for the event, but not past `stop`. True if the event is set and `stop` is not."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(either.wait()) for either in (event, stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return event.is_set() and not stop.is_set()


def first_error(error: BaseException) -> BaseException:
    """The first error, without the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def ungrouped() -> Iterator[None]:
    """Raises an error that is meant for the user without the groups around it. Before Python 3.11.4 `except*` would put a group around it
    again."""
    try:
        yield
    except BaseExceptionGroup as group:
        for_user, other = group.split((SandpoolError, OSError))
        if for_user is None or other is not None:
            raise
        raise first_error(for_user) from None


async def _endless(work: Work, name: str) -> None:
    await work
    raise SandpoolError(f"{name} ended by itself; it should run until it is cancelled")
