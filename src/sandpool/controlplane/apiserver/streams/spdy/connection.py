"""One open SPDY connection: the session's events become streams that can be read and written.

One task runs `pump`. It reads no further while one stream holds more than it should: the client is slowed down, nothing grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from sandpool.controlplane.apiserver.streams.inbox import Inbox
from sandpool.controlplane.apiserver.streams.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.pipe import Gone, Wire
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
    """One stream that the client opened. Reading it tells the client that it may send more."""

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
        self.inbox = Inbox(held, charge)
        self.dropped = asyncio.Event()  # the client wants nothing more of it, or has left

    async def read(self) -> bytes:
        data = await self.inbox.read()
        if data:
            await self._connection.consumed(self.number, len(data))
        return data

    async def write(self, data: bytes) -> None:
        """Waits until the client has room. Gone if nobody reads this stream any more."""
        for start in range(0, len(data), MOST_DATA):
            await self._connection.send(self.number, data[start : start + MOST_DATA])

    async def finish(self) -> None:
        """Nothing more is written."""
        await self._connection.finish(self.number)

    async def reset(self, why: Reset = Reset.CANCEL) -> None:
        await self._connection.reset(self, why)


class Connection:
    """`opened` is called for each stream that the client opens, and accepts or refuses it."""

    def __init__(self, wire: Wire, limits: StreamLimits, opened: Callable[[Stream], None]) -> None:
        self._wire = wire
        self._limits = limits
        self._opened = opened
        self._session = Session(limits.streams)
        self._streams: dict[int, Stream] = {}
        self._widened = asyncio.Event()
        self._answering = asyncio.Lock()
        self.blocked: Callable[[Stream], float | None] = lambda stream: None

    async def pump(self) -> None:
        """Until the client leaves. What it left half done looks as if it had ended it."""
        try:
            while data := await self._wire.read():
                events = self._session.receive(data)
                self._wire.found(self._session.frames)
                touched = self._take_in(events)
                await self._flush()
                for stream in touched:
                    if stream.inbox.full:
                        await self._room(stream)
        except Broken as error:
            await self._leave(GoAway.PROTOCOL_ERROR, str(error))
        except Gone:
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
                if self._wire.writable:  # one that does not read does not wait for an answer
                    self._session.pong(event.id)
            elif isinstance(event, Widened):
                self._widened.set()
            elif isinstance(event, Arrived | Ended | Dropped) and (known := self._streams.get(event.stream)):
                if isinstance(event, Arrived):
                    known.inbox.put(event.data)
                    touched[event.stream] = known
                elif isinstance(event, Ended):
                    known.inbox.end()
                    self._forget(event.stream)
                else:
                    self._drop(known)
        return list(touched.values())

    async def _room(self, stream: Stream) -> None:
        """Waits until what has arrived is read. One that holds up others for too long is given up for them."""
        try:
            async with asyncio.timeout(self.blocked(stream)):
                await stream.inbox.room()
        except TimeoutError:
            await self.reset(stream, Reset.FLOW_CONTROL_ERROR)

    def _drop(self, stream: Stream) -> None:
        self._streams.pop(stream.number, None)
        stream.inbox.discard()
        stream.dropped.set()
        self._widened.set()  # whoever waits to write on it shall see that it is over

    def _forget(self, number: int) -> None:
        """One that both sides have ended; what it holds can still be read."""
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
                raise Gone
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
        except Gone:
            pass  # what was read is good all the same

    async def sign_of_life(self) -> None:
        if self._wire.writable:
            self._session.ping()
            await self._flush()
        await self._wire.sign_of_life()

    async def close(self) -> None:
        await self._leave(GoAway.OK, "")

    async def _leave(self, why: GoAway, words: str) -> None:
        self._session.go_away(why)
        try:
            await self._flush()
        except Gone:
            return
        await self._wire.close(words)

    async def _flush(self) -> None:
        async with self._answering:  # header blocks must leave in the order in which they were packed
            if out := self._session.take():
                await self._wire.answer(out)
