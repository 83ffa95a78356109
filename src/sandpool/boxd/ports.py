"""Connects a client to a TCP port inside the sandbox: the connection of the request becomes that byte stream."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sandpool.boxd.http.connection import Request
from sandpool.boxd.http.reply import Answer, Switched
from sandpool.wire.codes import Code, Refused
from sandpool.wire.paths import TCP_UPGRADE

_PIECE = 64 * 1024
_PATIENCE = 10.0


async def connect(request: Request, port: str) -> Answer:
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise Refused(Code.INVALID, f"{port!r} is not a port")
    if request.head.upgrade != TCP_UPGRADE:
        raise Refused(Code.INVALID, f"send Connection: Upgrade and Upgrade: {TCP_UPGRADE}")
    try:
        async with asyncio.timeout(_PATIENCE):
            inside = await asyncio.open_connection("127.0.0.1", int(port))
    except OSError as error:
        raise Refused(Code.UNAVAILABLE, f"nothing answers on port {port}: {error.strerror or error}") from None
    except TimeoutError:
        raise Refused(Code.UNAVAILABLE, f"nothing answers on port {port} within {_PATIENCE:g} s") from None

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relay((reader, writer), inside)

    return Switched(run, {"connection": "Upgrade", "upgrade": TCP_UPGRADE})


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def relay(one: Stream, other: Stream) -> None:
    """Copies both ways until both sides have ended, or one is gone."""
    tasks = [asyncio.ensure_future(_copy(one[0], other[1])), asyncio.ensure_future(_copy(other[0], one[1]))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await task
        for _, writer in (one, other):
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
