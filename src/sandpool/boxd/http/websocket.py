"""A WebSocket on an upgraded connection: whole messages in and out, with back pressure."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from sandpool.boxd.http.body import PIECE
from sandpool.wire.websocket import (
    CloseCode,
    Closed,
    Decoder,
    Message,
    Opcode,
    Piece,
    Ping,
    Violation,
    close_frame,
    frame,
)

LONGEST = 16 << 20
"""Largest message in bytes."""
LINGER = 2.0
"""Seconds that a client may take to close its side."""


class WebSocket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder()
        self._message = Message(LONGEST)
        self._waiting: deque[bytes] = deque()
        self._over = False  # closed by the client

    async def send(self, data: bytes) -> None:
        self._writer.write(frame(Opcode.BINARY, data))
        await self._writer.drain()

    async def receive(self) -> bytes | None:
        """The next message; None at the end."""
        while not self._waiting and not self._over:
            data = await self._reader.read(PIECE)
            if not data:
                return None
            try:
                await self._take(data)
            except Violation as violation:
                self._over = True
                await self.close(violation.code, violation.why)
        return self._waiting.popleft() if self._waiting else None

    async def _take(self, data: bytes) -> None:
        """Takes received data. Messages before a close frame are still delivered, also if both arrived together."""
        for event in self._decoder.feed(data):
            if isinstance(event, Ping):
                self._writer.write(frame(Opcode.PONG, event.data))
                await self._writer.drain()
            elif isinstance(event, Closed):
                self._over = True
                await self.close()
            elif isinstance(event, Piece) and (message := self._message.add(event)) is not None:
                self._waiting.append(message)

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        if not self._writer.is_closing():
            self._writer.write(close_frame(code, reason))
            await self._writer.drain()
            self._writer.close()

    async def finish(self) -> None:
        """Closes it once all has been said. What the client still sends is read and dropped, until it closes, too: a connection that is
        closed with something unread is reset, and the client may not hear the end."""
        if self._writer.is_closing():
            return
        self._writer.write(close_frame(CloseCode.NORMAL))
        await self._writer.drain()
        with suppress(OSError, Violation):  # it is gone, or takes too long
            self._writer.write_eof()
            async with asyncio.timeout(LINGER):
                while not self._over and (data := await self._reader.read(PIECE)):
                    self._over = any(isinstance(event, Closed) for event in self._decoder.feed(data))
        self._writer.close()
