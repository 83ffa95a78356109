"""A connection that has become a WebSocket: whole messages in and out, at the speed of the slower side."""

from __future__ import annotations

import asyncio
from collections import deque

from sandpool.boxd.http.body import PIECE
from sandpool.wire.websocket import Decoder, Opcode, Violation, closing, frame


class Conversation:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder()
        self._waiting: deque[bytes] = deque()

    async def send(self, data: bytes) -> None:
        self._writer.write(frame(Opcode.BINARY, data))
        await self._writer.drain()

    async def receive(self) -> bytes | None:
        """The next message; None when there will be none."""
        while not self._waiting:
            data = await self._reader.read(PIECE)
            if not data:
                return None
            try:
                if not await self._take(data):
                    return None
            except Violation as error:
                await self.close(error.code, str(error))
                return None
        return self._waiting.popleft()

    async def _take(self, data: bytes) -> bool:
        for message in self._decoder.feed(data):
            match message.opcode:
                case Opcode.PING:
                    self._writer.write(frame(Opcode.PONG, message.data))
                    await self._writer.drain()
                case Opcode.CLOSE:
                    await self.close()
                    return False
                case Opcode.TEXT | Opcode.BINARY:
                    self._waiting.append(message.data)
        return True

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if not self._writer.is_closing():
            self._writer.write(closing(code, reason))
            await self._writer.drain()
            self._writer.close()
