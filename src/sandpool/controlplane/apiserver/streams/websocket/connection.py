"""One open WebSocket: pings are answered, control frames and the goodbye are seen to; what is left are pieces of messages."""

from __future__ import annotations

from sandpool.controlplane.apiserver.streams.pipe import Gone, Pipe
from sandpool.wire.websocket import (
    NO_STATUS,
    CloseCode,
    Closed,
    Decoder,
    Opcode,
    Piece,
    Ping,
    Violation,
    close_frame,
    frame,
)


class WebSocket:
    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._decoder = Decoder()
        self._said_goodbye = False
        self._left = False  # the client has said goodbye

    @property
    def writable(self) -> bool:
        return self._pipe.writable

    def found(self, frames: int) -> None:
        self._pipe.found(frames)

    def charge(self, size: int) -> None:
        self._pipe.charge(size)

    async def receive(self) -> list[Piece] | None:
        """What came together; None when the client has left, by a close frame or without, or broke the protocol."""
        data = b"" if self._left else await self._pipe.read()
        if not data:
            return None
        try:
            events = self._decoder.feed(data)
        except Violation as violation:
            await self.close(violation.code, violation.why)
            return None
        self._pipe.found(len(events))
        for event in events:
            if isinstance(event, Ping) and self.writable:  # one that does not read does not wait for an answer
                await self._quietly(frame(Opcode.PONG, event.data))
            elif isinstance(event, Closed):
                self._left = True
                await self.close(event.code)
        return [event for event in events if isinstance(event, Piece)]

    async def send(self, payload: bytes, *, text: bool = False) -> None:
        """One message. Gone if the client has left."""
        if self._said_goodbye:
            raise Gone
        await self._pipe.write(frame(Opcode.TEXT if text else Opcode.BINARY, payload))

    async def answer(self, payload: bytes) -> None:
        if self._said_goodbye:
            raise Gone
        await self._pipe.answer(frame(Opcode.BINARY, payload))

    async def sign_of_life(self) -> None:
        """A pong, too: clients that wait for one may have asked where we cannot read, behind data that nobody takes."""
        if self.writable and not self._said_goodbye:
            await self._quietly(frame(Opcode.PING, b"") + frame(Opcode.PONG, b""))

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """Says goodbye, once. The client's own goodbye may still be on its way."""
        if not self._said_goodbye:
            self._said_goodbye = True
            await self._quietly(close_frame(code if code != NO_STATUS else CloseCode.NORMAL, reason))

    async def _quietly(self, data: bytes) -> None:
        try:
            await self._pipe.answer(data)
        except Gone:
            pass  # whoever reads will notice


class Tunnel:
    """Bytes in binary messages: how SPDY travels through a WebSocket. A Wire."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    @property
    def writable(self) -> bool:
        return self._socket.writable

    async def read(self) -> bytes:
        while (pieces := await self._socket.receive()) is not None:
            if data := b"".join(piece.data for piece in pieces):
                return data
        return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)

    def found(self, frames: int) -> None:
        self._socket.found(frames)

    def charge(self, size: int) -> None:
        self._socket.charge(size)

    async def answer(self, data: bytes) -> None:
        await self._socket.answer(data)

    async def sign_of_life(self) -> None:
        await self._socket.sign_of_life()

    async def close(self, why: str = "") -> None:
        await self._socket.close(CloseCode.PROTOCOL_ERROR if why else CloseCode.NORMAL, why)
