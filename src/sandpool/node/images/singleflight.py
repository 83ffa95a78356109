"""Concurrent callers with the same key share one piece of work, which is cancelled when the last of them stops waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from sandpool.base.errors import NodeError
from sandpool.base.shielded import shielded

T = TypeVar("T")
OnProgress = Callable[[str], object]


class Flight(Generic[T]):
    """`run` does the work and is given a function that publishes progress; `clean` is called when the last caller has left, however it
    ended."""

    def __init__(self, run: Callable[[OnProgress], Coroutine[Any, Any, T]], clean: Callable[[], object]) -> None:
        self.listeners: list[OnProgress] = []
        self.clean = clean
        self.task = asyncio.create_task(run(self._publish))

    def _publish(self, text: str) -> None:
        for listener in tuple(self.listeners):
            listener(text)


class SingleFlight(Generic[T]):
    """Flights by key: a caller that arrives while one is running joins it."""

    def __init__(self) -> None:
        self._running: dict[Hashable, Flight[T]] = {}

    @asynccontextmanager
    async def join(self, key: Hashable, begin: Callable[[], Flight[T]], on_progress: OnProgress) -> AsyncIterator[T]:
        """Yields the result; `clean` does not run before the block ends."""
        flight = self._running.get(key)
        if flight is None:
            flight = self._running[key] = begin()
            flight.task.add_done_callback(partial(self._forget, key, flight))  # later callers start a new flight
        flight.listeners.append(on_progress)
        try:
            yield await self._result(flight)
        finally:
            flight.listeners.remove(on_progress)
            if not flight.listeners:
                await self._end(key, flight)

    async def _result(self, flight: Flight[T]) -> T:
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if flight.task.cancelled() and waiting is not None and not waiting.cancelling():
                raise NodeError(
                    "ErrImagePull", "the pull was cancelled, because this process is shutting down"
                ) from None
            raise

    def _forget(self, key: Hashable, flight: Flight[T], _: object = None) -> None:
        if self._running.get(key) is flight:
            del self._running[key]

    async def _end(self, key: Hashable, flight: Flight[T]) -> None:
        self._forget(key, flight)
        try:
            if not flight.task.done():
                flight.task.cancel()
                await shielded(_finished(flight.task))
        finally:
            flight.clean()

    async def close(self) -> None:
        """Cancels everything; callers that wait get an error."""
        for flight in list(self._running.values()):
            flight.task.cancel()
            await shielded(_finished(flight.task))


async def _finished(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
