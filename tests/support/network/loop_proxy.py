"""A way to a server that a test can cut: bytes pass unchanged, so TLS is between the two ends as ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class Proxy:
    """`drop` cuts every connection, `shut` also refuses new ones until `open` is called again on the same port."""

    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self._there = (address.hostname, address.port)
        self._listener: asyncio.Server | None = None
        self._port = 0
        self._connections: set[asyncio.Task[None]] = set()
        self.passed = 0  # connections made so far

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._listener = await asyncio.start_server(self._pass, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def drop(self) -> None:
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def shut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self.drop()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.passed += 1
        far = None
        try:
            far_reader, far = await asyncio.open_connection(*self._there)
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, far))
                both.create_task(_copy(far_reader, writer))
        except (asyncio.CancelledError, OSError, ExceptionGroup):
            pass  # cut by the test, or by either end
        finally:
            self._connections.discard(task)
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()
    raise ConnectionResetError("one end has closed")  # ends the other direction too


@contextlib.asynccontextmanager
async def a_proxy(server: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(server)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.shut()
