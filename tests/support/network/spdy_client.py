"""A SPDY/3.1 client for tests: the frames that a client sends, and a connection over anything that reads and writes bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from sandpool.controlplane.apiserver.streams.spdy.frames import (
    Control,
    DataPiece,
    Decoder,
    Flag,
    HeaderWriter,
    Kind,
    at,
    control,
    data_frame,
    number,
)


class Words:
    """Frames of a client; header blocks share one context."""

    def __init__(self) -> None:
        self._writer = HeaderWriter()

    def pack(self, headers: Mapping[str, str]) -> bytes:
        return self._writer.write(headers)

    def open(self, stream: int, headers: Mapping[str, str], *, fin: bool = False) -> bytes:
        payload = number(stream) + number(0) + b"\0\0" + self.pack(headers)
        return control(Kind.SYN_STREAM, payload, Flag.FIN if fin else 0)


@dataclass(slots=True)
class ClientStream:
    number: int
    data: bytearray = field(default_factory=bytearray)
    replied: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reset: int | None = None


class SpdyClient:
    """`run` reads until the server leaves."""

    def __init__(self, read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], Awaitable[None]]) -> None:
        self._read = read
        self._write = write
        self._words = Words()
        self._next = 1
        self.streams: dict[int, ClientStream] = {}
        self.controls: list[Control] = []
        self.left = asyncio.Event()

    async def run(self) -> None:
        decoder = Decoder()
        while data := await self._read():
            for frame in decoder.feed(data):
                if isinstance(frame, DataPiece):
                    stream = self.streams[frame.stream]
                    stream.data += frame.data
                    if frame.fin:
                        stream.ended.set()
                    continue
                self.controls.append(frame)
                if frame.kind == Kind.SYN_REPLY:
                    self.streams[at(frame.payload, 0)].replied.set()
                elif frame.kind == Kind.RST_STREAM:
                    stream = self.streams[at(frame.payload, 0)]
                    stream.reset = at(frame.payload, 4)
                    stream.ended.set()
        self.left.set()
        for stream in self.streams.values():
            stream.ended.set()

    async def open(self, *, fin: bool = False, **headers: str) -> ClientStream:
        stream = self.streams[self._next] = ClientStream(self._next)
        self._next += 2
        await self._write(self._words.open(stream.number, headers, fin=fin))
        return stream

    async def send(self, stream: ClientStream, data: bytes, *, fin: bool = False) -> None:
        await self._write(data_frame(stream.number, data, fin=fin))

    async def raw(self, data: bytes) -> None:
        await self._write(data)
