"""Long bodies from the socket into a file, past the event loop's buffers.

The loop only waits for bytes to arrive; a thread then moves what is there and never waits for the client, so that slow clients
hold no thread, and a slow disk does not hold up the other connections.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Awaitable
from typing import TypeVar

from sandpool.boxd.ready import readable

T = TypeVar("T")
_PIECE = 256 * 1024
_TURN = 64 << 20
"""Bytes that a thread moves before others get it."""
_PAUSE = 2
"""Milliseconds that it waits for more: a client at full speed is not handed over and back for each piece."""


class Reader(asyncio.StreamReader):
    """A stream whose unread bytes can be taken away."""

    def take(self, most: int) -> bytes:
        buffer: bytearray = self._buffer  # type: ignore[attr-defined]
        data = bytes(buffer[:most])
        del buffer[:most]
        return data


class Straight:
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
    """A thread cannot be stopped: when we are, it has to end before its files are closed."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _move(connection: socket.socket, file: int, buffer: memoryview, left: int) -> int:
    """How many bytes it moved."""
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
            raise ConnectionResetError("the client went away in the middle of a body")
        _write(file, buffer[:size])
        moved += size
    return moved


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
