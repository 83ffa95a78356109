"""An open WebSocket, and the Kubernetes channel protocol that carries several streams over it.

The first byte of a message is the number of its stream. In the base64 variant, the first character is its digit and the rest is base64. Since
version 5, a message on stream 255 closes the stream that it names.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from sandpool.controlplane.apiserver.streams.pipe import ClientGone, Pipe
from sandpool.controlplane.apiserver.streams.upgrade import Channels
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

CLOSE: Final = 255
MOST: Final = 32 * 1024
"""The most bytes in one message that the server sends."""


class WebSocket:
    """An open WebSocket: answers pings and close frames, and returns pieces of messages."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._decoder = Decoder()
        self._close_sent = False
        self._left = False  # the client has sent a close frame

    @property
    def writable(self) -> bool:
        return self._pipe.writable

    def found(self, frames: int) -> None:
        self._pipe.found(frames)

    def charge(self, size: int) -> None:
        self._pipe.charge(size)

    async def receive(self) -> list[Piece] | None:
        """The pieces of the next read; None when the client closed, disconnected or broke the protocol."""
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
            if isinstance(event, Ping) and self.writable:  # no pong for a client that does not read
                await self._quietly(frame(Opcode.PONG, event.data))
            elif isinstance(event, Closed):
                self._left = True
                await self.close(event.code)
        return [event for event in events if isinstance(event, Piece)]

    async def send(self, payload: bytes, *, text: bool = False) -> None:
        """Sends one message. Raises ClientGone if the client has disconnected."""
        if self._close_sent:
            raise ClientGone
        await self._pipe.write(frame(Opcode.TEXT if text else Opcode.BINARY, payload))

    async def answer(self, payload: bytes) -> None:
        if self._close_sent:
            raise ClientGone
        await self._pipe.answer(frame(Opcode.BINARY, payload))

    async def keep_alive(self) -> None:
        """Sends a ping and a pong: a client that waits for a pong may have sent its ping behind data that was not read yet."""
        if self.writable and not self._close_sent:
            await self._quietly(frame(Opcode.PING, b"") + frame(Opcode.PONG, b""))

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """Sends a close frame, once. The client's close frame may still be in flight."""
        if not self._close_sent:
            self._close_sent = True
            await self._quietly(close_frame(code if code != NO_STATUS else CloseCode.NORMAL, reason))

    async def _quietly(self, data: bytes) -> None:
        try:
            await self._pipe.answer(data)
        except ClientGone:
            pass  # the reading task notices it


class Tunnel:
    """A ByteStream over binary messages: how SPDY is tunnelled through a WebSocket."""

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

    async def keep_alive(self) -> None:
        await self._socket.keep_alive()

    async def close(self, why: str = "") -> None:
        await self._socket.close(CloseCode.PROTOCOL_ERROR if why else CloseCode.NORMAL, why)


@dataclass(frozen=True, slots=True)
class Part:
    """The next data of a stream."""

    channel: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """The client sends no more on this stream."""

    channel: int


class ChannelDecoder:
    """Turns pieces of messages into parts of streams."""

    def __init__(self, protocol: Channels) -> None:
        self._base64 = protocol.base64
        self._closes = protocol.version >= 5
        self._channel: int | None = None  # of the message that is arriving
        self._rest = b""  # the end of its base64 text that does not yet make up three bytes

    def feed(self, piece: Piece) -> Part | Finished | None:
        if piece.first:
            self._channel, self._rest = None, b""
        data = piece.data
        if self._channel is None:
            if not data:
                return None
            self._channel = data[0] - 48 if self._base64 else data[0]
            data = data[1:]
        if self._base64:
            data = self._plain(data, piece.final)
        if not data:
            return None
        if self._closes and self._channel == CLOSE:
            return Finished(data[0])
        return Part(self._channel, data)

    def _plain(self, text: bytes, final: bool) -> bytes:
        text = self._rest + text
        cut = len(text) if final else len(text) - len(text) % 4
        text, self._rest = text[:cut], text[cut:]
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise Violation(CloseCode.INVALID_DATA, "a message is not base64") from None


def message(protocol: Channels, channel: int, data: bytes) -> bytes:
    if protocol.base64:
        return bytes((48 + channel,)) + base64.b64encode(data)
    return bytes((channel,)) + data
