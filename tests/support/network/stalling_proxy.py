"""A way to a server that stops passing requests on for a while, as a server does that stalls; answers always pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class StallingProxy:
    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self._there = (address.hostname, address.port)
        self._passing = asyncio.Event()
        self._passing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    def stall(self) -> None:
        self._passing.clear()

    def go_on(self) -> None:
        self._passing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far = None
        try:
            far_reader, far = await asyncio.open_connection(*self._there)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, far, self._passing))
                both.create_task(self._copy(far_reader, writer, None))
        except (asyncio.CancelledError, OSError, ExceptionGroup):
            pass  # either end has closed, or the test is over
        finally:
            self._tasks.discard(task)
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None) -> None:
        while chunk := await reader.read(1 << 16):
            if gate is not None:
                await gate.wait()
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError("one end has closed")


@asynccontextmanager
async def stalling_proxy(server: str) -> AsyncIterator[StallingProxy]:
    proxy = StallingProxy(server)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listener.close()
        await proxy.close()
