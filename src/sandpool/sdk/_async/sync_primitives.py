"""Primitives for waiting and sharing: Event, Semaphore, Shared. Written by hand in _async and in _sync.

Here everything belongs to one event loop; in _sync, to one process with several threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from sandpool.sdk.deadline import Deadline, left
from sandpool.sdk.errors import TimedOut


class Event:
    """Once set, every `wait` returns, also later ones."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, deadline: Deadline) -> None:
        """TimedOut if it is not set before the deadline."""
        try:
            async with asyncio.timeout(left(deadline)):
                await self._event.wait()
        except TimeoutError as error:
            raise TimedOut("no event within the time allowed") from error


class Semaphore:
    """At most so many holders at once."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    async def acquire(self, deadline: Deadline) -> None:
        """TimedOut if none is free before the deadline."""
        try:
            async with asyncio.timeout(left(deadline)):
                await self._free.acquire()
        except TimeoutError as error:
            raise TimedOut("no connection was free within the time allowed") from error

    def release(self) -> None:
        self._free.release()


class Closable(Protocol):
    def close(self) -> Awaitable[None]: ...


T = TypeVar("T", bound=Closable)


class Shared(Generic[T]):
    """One instance for each event loop, made on first use. It is closed when the loop shuts down its asynchronous generators, as
    asyncio.run has it do."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]]
        self._held = WeakKeyDictionary()

    async def get(self) -> T:
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
