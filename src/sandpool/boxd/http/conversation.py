"""A connection that has become a WebSocket: whole messages in and out, at the speed of the slower side."""

from __future__ import annotations

import asyncio
from collections import deque

from sandpool.boxd.http.body import PIECE
from sandpool.wire.websocket import CloseCode, Closed, Decoder, Opcode, Piece, Ping, Violation, close_frame, frame

LONGEST = 16 << 20
"""Bytes of one message at most."""


class Conversation:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder()
        self._begun = bytearray()
        self._waiting: deque[bytes] = deque()
        self._over = False  # nothing more will come

    async def send(self, data: bytes) -> None:
        self._writer.write(frame(Opcode.BINARY, data))
        await self._writer.drain()

    async def receive(self) -> bytes | None:
        """The next message; None when there will be none."""
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
        """What was said before a goodbye still counts, also where both came together."""
        for event in self._decoder.feed(data):
            if isinstance(event, Ping):
                self._writer.write(frame(Opcode.PONG, event.data))
                await self._writer.drain()
            elif isinstance(event, Closed):
                self._over = True
                await self.close()
            elif isinstance(event, Piece):
                self._join(event)

    def _join(self, piece: Piece) -> None:
        if len(self._begun) + len(piece.data) > LONGEST:
            raise Violation(CloseCode.TOO_LONG, f"a message is longer than {LONGEST} bytes")
        self._begun += piece.data
        if piece.final:
            self._waiting.append(bytes(self._begun))
            self._begun.clear()

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        if not self._writer.is_closing():
            self._writer.write(close_frame(code, reason))
            await self._writer.drain()
            self._writer.close()
