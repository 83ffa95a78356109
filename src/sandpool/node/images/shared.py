"""Several who want the same thing at once share the work. It goes on as long as one of them waits, and ends with the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from sandpool.base.errors import NodeError
from sandpool.node.images.uninterrupted import uninterrupted

T = TypeVar("T")
Tell = Callable[[str], object]


class Work(Generic[T]):
    """`run` does it and hears whom to tell; `clean` is called when the last who wanted it has left, however it ended."""

    def __init__(self, run: Callable[[Tell], Coroutine[Any, Any, T]], clean: Callable[[], object]) -> None:
        self.listeners: list[Tell] = []
        self.clean = clean
        self.task = asyncio.create_task(run(self._tell))

    def _tell(self, words: str) -> None:
        for listener in tuple(self.listeners):
            listener(words)


class Shared(Generic[T]):
    def __init__(self) -> None:
        self._running: dict[Hashable, Work[T]] = {}

    @asynccontextmanager
    async def join(self, key: Hashable, begin: Callable[[], Work[T]], tell: Tell) -> AsyncIterator[T]:
        """The result; what `clean` takes away is there as long as the block lasts."""
        work = self._running.get(key)
        if work is None:
            work = self._running[key] = begin()
            work.task.add_done_callback(partial(self._forget, key, work))  # who comes later begins anew
        work.listeners.append(tell)
        try:
            yield await self._result(work)
        finally:
            work.listeners.remove(tell)
            if not work.listeners:
                await self._end(key, work)

    async def _result(self, work: Work[T]) -> T:
        try:
            return await asyncio.shield(work.task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if work.task.cancelled() and waiting is not None and not waiting.cancelling():
                raise NodeError("ErrImagePull", "the pull was ended, because this process ends") from None
            raise

    def _forget(self, key: Hashable, work: Work[T], _: object = None) -> None:
        if self._running.get(key) is work:
            del self._running[key]

    async def _end(self, key: Hashable, work: Work[T]) -> None:
        self._forget(key, work)
        try:
            if not work.task.done():
                work.task.cancel()
                await uninterrupted(_over(work.task))
        finally:
            work.clean()

    async def close(self) -> None:
        """Ends everything; those who wait are told by a cancellation."""
        for work in list(self._running.values()):
            work.task.cancel()
            await uninterrupted(_over(work.task))


async def _over(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
