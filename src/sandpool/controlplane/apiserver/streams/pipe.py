"""A connection after its upgrade: bytes in both directions, with backpressure.

`apiserver/connection.py` feeds it; the protocols above read and write it. A client that does not read blocks its writer, and a reader that does
not read blocks the client. Tenants take turns, so that neither many streams nor one-byte frames of one tenant delay others. Bytes that streams
buffer between client and sandbox are charged to their tenant.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from sandpool.base.turns import EACH, Portions

UNREAD: Final = 256 * 1024
"""Bytes that are buffered here before reading from the client pauses."""


_CLOSED: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR  # POLLRDHUP is Linux only


class ClientGone(Exception):
    """The client has disconnected."""


class ByteStream(Protocol):
    """Bytes in both directions: a Pipe, or a protocol on top of one."""

    @property
    def writable(self) -> bool:
        """Whether the client keeps up with what is sent."""
        ...

    async def read(self) -> bytes:
        """The next bytes; empty when the client has disconnected."""
        ...

    async def write(self, data: bytes) -> None:
        """Sends; waits while the client leaves too much unread. Raises ClientGone if it has disconnected."""
        ...

    async def answer(self, data: bytes) -> None:
        """Sends a reply to a frame of the client: waits only if very much is unread already."""
        ...

    def found(self, frames: int) -> None:
        """Reports how many frames the last read contained: the size of the next portion depends on it."""
        ...

    def charge(self, size: int) -> None:
        """Counts buffered bytes; negative when they are passed on. If the tenant buffers too much, this client is disconnected."""
        ...

    async def keep_alive(self) -> None:
        """Sends a keep-alive, for clients that expect one."""
        ...

    async def close(self, why: str = "") -> None:
        """Closes according to the protocol. The client may still be sending."""
        ...


class Flow(Protocol):
    """The part of the connection's Flow that is used here."""

    @property
    def write_paused(self) -> bool: ...

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class ConnectionAccount(Protocol):
    """The part of the connection that is used here: what its tenant shares with others."""

    @property
    def flow(self) -> Flow: ...

    def turn(self, size: int) -> Awaitable[None]: ...

    def hold(self, size: int) -> bool:
        """Counts buffered bytes; False if they are too many, and were not counted."""
        ...


class Pipe:
    """A ByteStream on an upgraded connection; see the module."""

    def __init__(
        self, transport: asyncio.Transport, account: ConnectionAccount, answers: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._transport = transport
        self._account = account
        self._flow = account.flow
        self._answers = answers
        self._loop = loop
        self._portions = Portions()
        self._charged = 0
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._gone = asyncio.Event()
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()
        self.last_activity = loop.time()  # when bytes last passed, either way

    # Called by the connection.

    def feed(self, data: bytes) -> None:
        if self._gone.is_set() or not data:
            return
        self.last_activity = self._loop.time()
        self._chunks.append(data)
        self._held += len(data)
        self._news.set()
        if self._held > UNREAD:
            self._flow.pause_reading()

    def end(self) -> None:
        """The client has disconnected, or the server stops."""
        if not self._gone.is_set():
            self._account.hold(-self._charged)
        self._gone.set()
        self._news.set()

    # Called by the protocol above.

    @property
    def writable(self) -> bool:
        return not self._flow.write_paused

    async def read(self) -> bytes:
        while not self._chunks:
            if self._gone.is_set():
                return b""
            self._news.clear()
            await self._news.wait()
        size = self._portions.cut(len(self._chunks[0]))
        await self._account.turn(self._portions.weight)
        data = self._chunks.popleft()
        if size < len(data):
            self._chunks.appendleft(data[size:])
            data = data[:size]
        self._held -= size
        if self._held <= UNREAD // 2 and not self._gone.is_set():
            self._flow.resume_reading()
        return data

    def found(self, frames: int) -> None:
        self._portions.found(frames)

    def charge(self, size: int) -> None:
        if self._gone.is_set():
            return
        if self._account.hold(size):
            self._charged += size
        else:
            self.end()
            self._transport.abort()

    async def gone(self) -> None:
        """Waits until the client is known to have disconnected; see `hung_up`."""
        await self._gone.wait()

    def hung_up(self) -> bool:
        """Whether the client has closed the connection. Asks the kernel: a TLS transport whose reading is
        paused does not report that, and drops what is written to it."""
        sock = self._transport.get_extra_info("socket")
        if self._gone.is_set() or sock is None or sock.fileno() < 0:
            return True
        asked = select.poll()
        asked.register(sock.fileno(), _CLOSED)
        return bool(asked.poll(0))

    async def write(self, data: bytes) -> None:
        await self._account.turn(EACH + len(data))
        async with self._writing:  # otherwise all waiting tasks would write when there is room for one
            if self._flow.write_paused:
                await self._flow.drain()
            self._send(data)
        self.last_activity = self._loop.time()

    async def answer(self, data: bytes) -> None:
        if self._transport.get_write_buffer_size() > self._answers:
            await self._flow.drain()
        self._send(data)

    async def keep_alive(self) -> None:
        """Does nothing: TCP keep-alive is enough."""

    async def close(self, why: str = "") -> None:
        """Does nothing: `hang_up` closes the connection, after the client had time to read."""

    def _send(self, data: bytes) -> None:
        if self._gone.is_set() or self._transport.is_closing():
            raise ClientGone
        self._transport.write(data)

    def hang_up(self) -> None:
        """Closes the connection. What was written is still sent, unless the client does not read."""
        self.end()
        if self._transport.is_closing():
            return  # an asyncio TLS transport that is closed twice can no longer be aborted
        if self._flow.write_paused:
            self._transport.abort()
        else:
            self._transport.close()


class ReceiveBuffer:
    """The bytes of one stream that arrived and were not read yet. One task feeds it, one reads it.

    `charge` is called with the number of bytes that are added, and with a negative number when they are passed on: bytes that were read count
    until the reader reads again.
    """

    def __init__(self, limit: int, charge: Callable[[int], object]) -> None:
        self._limit = limit
        self._charge = charge
        self._held = bytearray()  # a single buffer, however small the pieces are
        self._lent = 0  # bytes that the reader has and has not passed on yet
        self._ended = False
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def put(self, data: bytes) -> None:
        """Adds data. After `end` it is dropped."""
        if self._ended or not data:
            return
        self._held += data
        self._charge(len(data))
        self._filled.set()
        if len(self._held) > self._limit:
            self._emptied.clear()

    def end(self) -> None:
        """Marks the end of the stream; what has arrived can still be read."""
        self._ended = True
        self._filled.set()

    def discard(self) -> None:
        """The reader is gone: discards what is buffered."""
        self._take()
        self._give_back()
        self._ended = True
        self._filled.set()

    @property
    def full(self) -> bool:
        return not self._emptied.is_set()

    async def room(self) -> None:
        """Waits until the buffer is below its limit, before the feeding task reads on."""
        await self._emptied.wait()

    async def read(self) -> bytes:
        """Everything that has arrived, at least one byte; empty at the end."""
        self._give_back()
        while not self._held:
            if self._ended:
                return b""
            self._filled.clear()
            await self._filled.wait()
        return self._take()

    def _take(self) -> bytes:
        data = bytes(self._held)
        self._held.clear()
        self._lent += len(data)
        self._emptied.set()
        return data

    def _give_back(self) -> None:
        lent, self._lent = self._lent, 0
        self._charge(-lent)
