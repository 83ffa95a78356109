"""A proxy that opens every tunnel to one place, whatever was asked for: names that exist nowhere lead to a test's own server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class ConnectProxy:
    address: str = ""
    asked: list[str] = field(default_factory=list)  # the first line of each request


@asynccontextmanager
async def connect_proxy(host: str, port: int) -> AsyncIterator[ConnectProxy]:
    proxy = ConnectProxy()
    tunnels: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        proxy.asked.append(head.split(b"\r\n", 1)[0].decode())
        inside_reader, inside_writer = await asyncio.open_connection(host, port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for source, target in ((reader, inside_writer), (inside_reader, writer)):
            tunnels.add(asyncio.create_task(_copy(source, target)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for tunnel in tunnels:
            tunnel.cancel()
        await asyncio.gather(*tunnels, return_exceptions=True)
        await server.wait_closed()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(65536):
            target.write(piece)
            await target.drain()
    except OSError:
        pass
    finally:
        target.close()
