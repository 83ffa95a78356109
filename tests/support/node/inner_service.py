"""Something on this machine's loopback that trusts whoever can reach it: it counts who comes, and answers with what must not be told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class InnerService:
    def __init__(self, words: str, status: int) -> None:
        self.came = 0
        self.port = 0
        self.status = status
        self._words = words.encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            head = b"HTTP/1.1 %d %b\r\nContent-Length: %d\r\n\r\n" % (self.status, self._words, len(self._words))
            writer.write(head + self._words)
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def inner_service(words: str, status: int = 418) -> AsyncIterator[InnerService]:
    made = InnerService(words, status)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
