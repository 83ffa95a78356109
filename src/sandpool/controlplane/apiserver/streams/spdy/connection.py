"""One open SPDY connection: turns the session's events into streams that can be read and written.

One task runs `pump`. It stops reading while the buffer of a stream is full, so the client is slowed down and memory is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from sandpool.controlplane.apiserver.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.pipe import ByteStream, ClientGone, ReceiveBuffer
from sandpool.controlplane.apiserver.streams.spdy.frames import MOST_DATA, Broken, GoAway, Reset
from sandpool.controlplane.apiserver.streams.spdy.session import (
    Arrived,
    Dropped,
    Ended,
    Event,
    Opened,
    Pinged,
    Session,
    Widened,
)


class Stream:
    """One stream that the client opened. Reading it widens the client's window."""

    def __init__(
        self,
        connection: Connection,
        number: int,
        headers: Mapping[str, str],
        held: int,
        charge: Callable[[int], object],
    ) -> None:
        self._connection = connection
        self.number = number
        self.headers = headers
        self.buffer = ReceiveBuffer(held, charge)
        self.dropped = asyncio.Event()  # the client has reset it, or disconnected

    async def read(self) -> bytes:
        data = await self.buffer.read()
        if data:
            await self._connection.consumed(self.number, len(data))
        return data

    async def write(self, data: bytes) -> None:
        """Sends data as the client's window allows. Raises ClientGone if the client has reset this stream or disconnected."""
        for start in range(0, len(data), MOST_DATA):
            await self._connection.send(self.number, data[start : start + MOST_DATA])

    async def finish(self) -> None:
        """Ends our side: nothing more is written."""
        await self._connection.finish(self.number)

    async def reset(self, why: Reset = Reset.CANCEL) -> None:
        await self._connection.reset(self, why)


class Connection:
    """`opened` is called for each stream that the client opens, and accepts or refuses it."""

    def __init__(self, connection: ByteStream, limits: StreamLimits, opened: Callable[[Stream], None]) -> None:
        self._wire = connection
        self._limits = limits
        self._opened = opened
        self._session = Session(limits.streams)
        self._streams: dict[int, Stream] = {}
        self._widened = asyncio.Event()
        self._answering = asyncio.Lock()
        self.blocked: Callable[[Stream], float | None] = lambda stream: None

    async def pump(self) -> None:
        """Reads until the client disconnects. Streams that are still open then end."""
        try:
            while data := await self._wire.read():
                events = self._session.receive(data)
                self._wire.found(self._session.frames)
                touched = self._take_in(events)
                await self._flush()
                for stream in touched:
                    if stream.buffer.full:
                        await self._room(stream)
        except Broken as error:
            await self._leave(GoAway.PROTOCOL_ERROR, str(error))
        except ClientGone:
            pass
        finally:
            for stream in list(self._streams.values()):
                self._drop(stream)

    def _take_in(self, events: list[Event]) -> list[Stream]:
        touched: dict[int, Stream] = {}
        for event in events:
            if isinstance(event, Opened):
                stream = Stream(self, event.stream, event.headers, self._limits.held, self._wire.charge)
                self._streams[event.stream] = stream
                self._opened(stream)
            elif isinstance(event, Pinged):
                if self._wire.writable:  # no pong for a client that does not read
                    self._session.pong(event.id)
            elif isinstance(event, Widened):
                self._widened.set()
            elif isinstance(event, Arrived | Ended | Dropped) and (known := self._streams.get(event.stream)):
                if isinstance(event, Arrived):
                    known.buffer.put(event.data)
                    touched[event.stream] = known
                elif isinstance(event, Ended):
                    known.buffer.end()
                    self._forget(event.stream)
                else:
                    self._drop(known)
        return list(touched.values())

    async def _room(self, stream: Stream) -> None:
        """Waits until the stream's buffer has room. A stream that blocks the others for too long is reset."""
        try:
            async with asyncio.timeout(self.blocked(stream)):
                await stream.buffer.room()
        except TimeoutError:
            await self.reset(stream, Reset.FLOW_CONTROL_ERROR)

    def _drop(self, stream: Stream) -> None:
        self._streams.pop(stream.number, None)
        stream.buffer.discard()
        stream.dropped.set()
        self._widened.set()  # wakes writers that wait for it

    def _forget(self, number: int) -> None:
        """Forgets a stream that both sides have ended; its buffer can still be read."""
        if self._session.over(number):
            self._streams.pop(number, None)

    def accept(self, stream: Stream) -> None:
        """To be called from `opened`."""
        self._session.accept(stream.number)

    def refuse(self, stream: Stream) -> None:
        """To be called from `opened`."""
        self._drop(stream)
        self._session.reset(stream.number, Reset.REFUSED_STREAM)

    async def send(self, number: int, data: bytes) -> None:
        while data:
            if not self._session.open(number):
                raise ClientGone
            room = self._session.room(number)
            if not room:
                self._widened.clear()
                await self._widened.wait()
                continue
            part, data = data[:room], data[room:]
            await self._wire.write(self._session.data(number, part))

    async def finish(self, number: int) -> None:
        self._session.finish(number)
        self._forget(number)
        await self._flush()

    async def reset(self, stream: Stream, why: Reset) -> None:
        if stream.number in self._streams:
            self._drop(stream)
            self._session.reset(stream.number, why)
            await self._flush()

    async def consumed(self, number: int, size: int) -> None:
        self._session.consumed(number, size)
        try:
            await self._flush()
        except ClientGone:
            pass  # the data that was read is still valid

    async def keep_alive(self) -> None:
        if self._wire.writable:
            self._session.ping()
            await self._flush()
        await self._wire.keep_alive()

    async def close(self) -> None:
        await self._leave(GoAway.OK, "")

    async def _leave(self, why: GoAway, message: str) -> None:
        self._session.go_away(why)
        try:
            await self._flush()
        except ClientGone:
            return
        await self._wire.close(message)

    async def _flush(self) -> None:
        async with self._answering:  # header blocks must be sent in the order in which they were compressed
            if out := self._session.take():
                await self._wire.answer(out)
