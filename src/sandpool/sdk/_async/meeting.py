"""Where several users of one thing meet: who waits for whom, and what all of them share. Written by hand in _async and in _sync.

Here everything belongs to one event loop; in _sync, to one process with several threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from sandpool.sdk.deadline import Deadline, left
from sandpool.sdk.errors import TimedOut


class Bell:
    """Rung once or more, it wakes who waits, or who will."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    def mute(self) -> None:
        self._rung.clear()

    async def wait(self, deadline: Deadline) -> None:
        """TimedOut if nobody rings until then."""
        try:
            async with asyncio.timeout(left(deadline)):
                await self._rung.wait()
        except TimeoutError as error:
            raise TimedOut("nothing was heard within the time allowed") from error


class Turns:
    """So many at once, and no more."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    async def take(self, deadline: Deadline) -> None:
        """TimedOut if none is free until then."""
        try:
            async with asyncio.timeout(left(deadline)):
                await self._free.acquire()
        except TimeoutError as error:
            raise TimedOut("no connection was free within the time allowed") from error

    def give_back(self) -> None:
        self._free.release()


class Closable(Protocol):
    def close(self) -> Awaitable[None]: ...


T = TypeVar("T", bound=Closable)


class Common(Generic[T]):
    """One of its kind for each event loop, made when it is first asked for. It is closed when the loop ends in order, as
    asyncio.run lets it: a loop then closes all generators that are still open."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]]
        self._held = WeakKeyDictionary()

    async def here(self) -> T:
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is not None:
            return held[0]
        made = self._make()
        guard = _closing(made)
        self._held[loop] = (made, guard)
        await anext(guard)
        return made


async def _closing(held: Closable) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await held.close()
