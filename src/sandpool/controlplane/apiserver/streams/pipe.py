"""A connection after its upgrade: bytes both ways, as fast as the slower side lets them pass.

`apiserver/connection.py` feeds it; the protocols above read and write it. What a client does not read stays with whoever writes;
what nobody here reads stays with the client. Tenants pass their bytes in turn, so that no number of streams, and no frames of one byte each, keep
others from being served; and what streams hold between client and sandbox counts for their tenant.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Awaitable
from typing import Final, Protocol

from sandpool.base.portions import EACH, Portions

UNREAD: Final = 256 * 1024
"""Bytes that wait here before the client is not read on."""


_CLOSED: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR  # the first is Linux's


class Gone(Exception):
    """The client is not there any more."""


class Wire(Protocol):
    """Bytes both ways: a Pipe, or something that speaks through one."""

    @property
    def writable(self) -> bool:
        """Whether the client keeps up with what is sent."""
        ...

    async def read(self) -> bytes:
        """What came next; empty when the client has left."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits until the client has room for it. Gone if it has left."""
        ...

    async def answer(self, data: bytes) -> None:
        """Waits only if very much is unread already: for what is owed for a frame of the client's."""
        ...

    def found(self, frames: int) -> None:
        """How many frames were in what was read last, so that the next portion is cut accordingly."""
        ...

    def charge(self, size: int) -> None:
        """Bytes that were read and are held on to; negative when they are not any more. Whose tenant holds too much is cut off."""
        ...

    async def sign_of_life(self) -> None:
        """Lets a client that waits for one know that we are there."""
        ...

    async def close(self, why: str = "") -> None:
        """Says goodbye as this wire does. The other side may still be sending."""
        ...


class Flow(Protocol):
    """The part of the connection's Flow that is used here."""

    @property
    def write_paused(self) -> bool: ...

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Ground(Protocol):
    """The part of the connection that is used here: what its tenant shares with others."""

    @property
    def flow(self) -> Flow: ...

    def turn(self, size: int) -> Awaitable[None]: ...

    def hold(self, size: int) -> bool:
        """Counts bytes that wait for somebody; False if they are too many, and were not counted."""
        ...


class Pipe:
    def __init__(
        self, transport: asyncio.Transport, ground: Ground, answers: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._transport = transport
        self._ground = ground
        self._flow = ground.flow
        self._answers = answers
        self._loop = loop
        self._portions = Portions()
        self._charged = 0
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._gone = asyncio.Event()
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()
        self.stirred = loop.time()  # when bytes last passed, either way

    # The connection's side.

    def feed(self, data: bytes) -> None:
        if self._gone.is_set() or not data:
            return
        self.stirred = self._loop.time()
        self._chunks.append(data)
        self._held += len(data)
        self._news.set()
        if self._held > UNREAD:
            self._flow.pause_reading()

    def end(self) -> None:
        """The client has left, or the server stops."""
        if not self._gone.is_set():
            self._ground.hold(-self._charged)
        self._gone.set()
        self._news.set()

    # The protocol's side.

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
        await self._ground.turn(self._portions.weight)
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
        if self._ground.hold(size):
            self._charged += size
        else:
            self.end()
            self._transport.abort()

    async def gone(self) -> None:
        """Waits until the client has left, as far as that is known; see `hung_up`."""
        await self._gone.wait()

    def hung_up(self) -> bool:
        """Whether the client's end is closed. Asks the kernel: a TLS transport that is not read on, because nobody takes what
        came, keeps the client's end to itself, and drops what is written to it."""
        sock = self._transport.get_extra_info("socket")
        if self._gone.is_set() or sock is None or sock.fileno() < 0:
            return True
        asked = select.poll()
        asked.register(sock.fileno(), _CLOSED)
        return bool(asked.poll(0))

    async def write(self, data: bytes) -> None:
        await self._ground.turn(EACH + len(data))
        async with self._writing:  # else all who wait would write at once when there is room for one
            if self._flow.write_paused:
                await self._flow.drain()
            self._send(data)
        self.stirred = self._loop.time()

    async def answer(self, data: bytes) -> None:
        if self._transport.get_write_buffer_size() > self._answers:
            await self._flow.drain()
        self._send(data)

    async def sign_of_life(self) -> None:
        """TCP's own keep-alive does this."""

    async def close(self, why: str = "") -> None:
        """The connection itself is closed by `hang_up`, when the client has had time to read."""

    def _send(self, data: bytes) -> None:
        if self._gone.is_set() or self._transport.is_closing():
            raise Gone
        self._transport.write(data)

    def hang_up(self) -> None:
        """Ends the connection. What was written is still sent, unless the client does not read."""
        self.end()
        if self._transport.is_closing():
            return  # asyncio's TLS transport forgets its connection when it is closed twice, and can be aborted no more
        if self._flow.write_paused:
            self._transport.abort()
        else:
            self._transport.close()
