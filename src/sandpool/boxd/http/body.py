"""Reads the body of a request, no faster than it is consumed.

Long bodies go from the socket into a file past the event loop's buffers. The loop only waits for bytes to arrive; a thread then moves what
has arrived and never waits for the client. So slow clients hold no thread, and a slow disk does not delay other connections.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import socket
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar

from sandpool.boxd.ready import readable
from sandpool.wire.codes import Code, Refused

PIECE = 256 * 1024
WORTH = 1 << 20
"""Bodies of at least so many bytes bypass the event loop's buffers."""
_LONGEST_SIZE_LINE = 1024
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;|\Z)")


class Body:
    def __init__(self, reader: asyncio.StreamReader, length: int | None, straight: FileTransfer | None = None) -> None:
        self._reader = reader
        self._left = length  # None: chunked
        self._straight = straight
        self._chunk = 0  # bytes left of the current chunk
        self.ended = length == 0

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        while not self.ended:
            piece = await (self._plain() if self._left is not None else self._chunked())
            if piece:
                yield piece

    async def read(self, most: int) -> bytes:
        """The whole body. Refused if it is longer than `most` bytes."""
        parts: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            size += len(piece)
            if size > most:
                raise Refused(Code.TOO_LARGE, f"the body is longer than {most} bytes")
            parts.append(piece)
        return b"".join(parts)

    async def into(self, file: int) -> None:
        """Writes the whole body to an open file, at its current offset."""
        if self._straight is not None and self._left is not None and self._left >= WORTH:
            await self._straight.into(file, self._left)
            self._left, self.ended = 0, True
            return
        async for piece in self.pieces():
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(file, rest) :]

    async def value(self, most: int = 1 << 20) -> dict[str, Any]:
        """The body as a JSON object."""
        data = await self.read(most)
        try:
            # Arguments and file names may be any bytes: bytes that are not UTF-8 survive as surrogates.
            value = json.loads(data.decode("utf-8", "surrogateescape") or "{}")
        except (ValueError, RecursionError) as error:
            raise Refused(Code.INVALID, f"the body is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise Refused(Code.INVALID, "the body must be a JSON object")
        return value

    async def _plain(self) -> bytes:
        assert self._left is not None
        piece = await self._some(min(self._left, PIECE))
        self._left -= len(piece)
        self.ended = self._left == 0
        return piece

    async def _chunked(self) -> bytes:
        if self._chunk == 0:
            line = await self._line()
            size = _SIZE.match(line)
            if size is None:
                raise Refused(Code.INVALID, "a chunk has no size")
            self._chunk = int(size[1], 16)
            if self._chunk == 0:
                while await self._line():  # trailers are ignored
                    pass
                self.ended = True
                return b""
        piece = await self._some(min(self._chunk, PIECE))
        self._chunk -= len(piece)
        if self._chunk == 0 and await self._line():
            raise Refused(Code.INVALID, "a chunk is longer than its size line says")
        return piece

    async def _some(self, most: int) -> bytes:
        piece = await self._reader.read(most)
        if not piece:
            raise ConnectionResetError("the client closed the connection in the middle of a body")
        return piece

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readuntil(b"\r\n")
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the client closed the connection in the middle of a body") from None
        except asyncio.LimitOverrunError:
            raise Refused(Code.INVALID, "a line between chunks is too long") from None
        if len(line) > _LONGEST_SIZE_LINE:
            raise Refused(Code.INVALID, "a line between chunks is too long")
        return line[:-2]


T = TypeVar("T")
_PIECE = 256 * 1024
_TURN = 64 << 20
"""Bytes that one call in a thread moves, so that transfers share the threads."""
_PAUSE = 2
"""Milliseconds that the thread waits for more, so that a fast client does not cost a switch to the event loop per piece."""


class Reader(asyncio.StreamReader):
    """A stream reader whose buffered bytes can be taken out."""

    def take(self, most: int) -> bytes:
        buffer: bytearray = self._buffer  # type: ignore[attr-defined]
        data = bytes(buffer[:most])
        del buffer[:most]
        return data


class FileTransfer:
    """Moves a long body straight from the socket into a file."""

    def __init__(self, reader: Reader, transport: asyncio.Transport) -> None:
        self._reader = reader
        self._transport = transport

    async def into(self, file: int, length: int) -> None:
        self._transport.pause_reading()
        try:
            held = self._reader.take(length)
            if held:
                await _whole(asyncio.to_thread(_write, file, memoryview(held)))
            if left := length - len(held):
                await self._receive(file, left)
        finally:
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def _receive(self, file: int, left: int) -> None:
        number = os.dup(self._transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=number) as connection:
            buffer = memoryview(bytearray(_PIECE))
            while left:
                await readable(connection)
                left -= await _whole(asyncio.to_thread(_move, connection, file, buffer, left))


async def _whole(call: Awaitable[T]) -> T:
    """Awaits work in a thread. It cannot be cancelled: on cancellation, waits for its end before its files are closed."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _move(connection: socket.socket, file: int, buffer: memoryview, left: int) -> int:
    """Moves bytes from the socket to the file. Returns how many."""
    wanted = min(left, _TURN)
    moved = 0
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    while moved < wanted:
        try:
            size = connection.recv_into(buffer, min(len(buffer), wanted - moved))
        except BlockingIOError:
            if not waiting.poll(_PAUSE):
                break
            continue
        if not size:
            raise ConnectionResetError("the client closed the connection in the middle of a body")
        _write(file, buffer[:size])
        moved += size
    return moved


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
