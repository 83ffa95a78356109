"""A way to a server that breaks: each connection is cut after so many bytes, in either direction, wherever that is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CuttingProxy:
    def __init__(self, port: int, seed: int, shortest: int, longest: int) -> None:
        self._there = port
        self._random = random.Random(seed)
        self._range = (shortest, longest)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cuts = 0

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        left = [self._random.randint(*self._range)]
        far_reader, far = await asyncio.open_connection("127.0.0.1", self._there)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, far, left))
                both.create_task(self._copy(far_reader, writer, left))
        except (asyncio.CancelledError, OSError, ExceptionGroup):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
            far.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]) -> None:
        while data := await reader.read(4096):
            writer.write(data[: left[0]])
            await writer.drain()
            left[0] -= len(data)
            if left[0] <= 0:
                self.cuts += 1
                raise ConnectionResetError("cut")
        raise ConnectionResetError("one end has closed")

    async def end(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def a_cutting_proxy(port: int, seed: int, shortest: int, longest: int) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(port, seed, shortest, longest)
    server = await asyncio.start_server(proxy.pass_on, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
