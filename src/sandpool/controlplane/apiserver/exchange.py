"""One request and its answer on a connection.

A handler reads the body by `read`. Whoever answers does it at once by `whole`, which is one write and so one TLS record, or
piece by piece by `start`, `piece` and `end`, each of which waits while the client leaves too much unread. To a client that has
left nothing is sent, and nobody is told: `left` is for those who want to know.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol

from sandpool.base.shares import NOBODY
from sandpool.base.turns import BYTES
from sandpool.controlplane.apiserver.flow import Flow
from sandpool.controlplane.apiserver.streams.pipe import Pipe
from sandpool.kube.errors import ApiError, RequestTooLarge, TooManyRequests

Headers = list[tuple[bytes, bytes]]
Upgrade = Callable[[Headers, int], Pipe]
"""Answers 101 with these headers; what is sent from then on is the caller's. The number is Pipe's for answers."""

STATUS_LINE: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
UNREAD: Final = 64 * 1024  # bytes of a body that wait here before the client is not read on
LARGE: Final = 64 * 1024  # bytes that a connection does not take without asking
SMALL: Final = 2 * 1024  # bytes of a body that are worked through at once, whoever else waits
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"


class Unread(ApiError):
    """The client went away before its request was whole. Nobody reads this answer."""

    status, reason = 400, "BadRequest"


class Dated(Protocol):
    date: bytes  # the line of the Date header


class Line(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport
    flow: Flow

    @property
    def house(self) -> Dated: ...

    def answered(self) -> None:
        """Called when an answer is complete."""
        ...

    def be_patient(self) -> None:
        """From now on this answer may stay unread for as long as its client likes."""
        ...

    def own(self, tenant: str) -> None:
        """The connection is this tenant's. TooManyRequests if that has too many."""
        ...

    def hold(self, size: int) -> bool:
        """Whether so many bytes may wait for the client besides those that do; if so, they count. Given back with a negative size."""
        ...

    def turn(self, size: int) -> Awaitable[None]:
        """Waits until others had theirs, before so many bytes are worked through."""
        ...

    def cut(self) -> None:
        """Ends the connection at once."""
        ...


class Exchange:
    __slots__ = (
        "_chunked",
        "_line",
        "_parts",
        "_plain",
        "_size",
        "_waiter",
        "arrived",
        "begun",
        "chunks",
        "complete",
        "gone",
        "header",
        "headers",
        "keep",
        "method",
        "owner",
        "path",
        "query",
        "seated",
        "upgrade",
    )

    def __init__(
        self,
        line: Line,
        method: str,
        path: str,
        query: bytes,
        headers: Headers,
        *,
        keep: bool,
        chunks: bool = True,
        owner: str = NOBODY,
    ) -> None:
        self._line = line
        self.owner = owner  # the tenant whose connection this is
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.header = dict(headers)  # by name; of one that is repeated the last
        self.keep = keep  # whether the connection is good for another request
        self.chunks = chunks  # whether the client knows of them: HTTP/1.0 does not
        self.upgrade: Upgrade | None = None  # set if the client asks for one
        self.arrived = False  # the request, to its last byte
        self.begun = False  # the answer
        self.complete = False  # the answer
        self.gone = False  # the client
        self.seated = False  # it counts as a request in flight
        self._parts: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._chunked = False
        self._plain = False  # an answer without a length: the end of the connection is its end

    # The connection's side.

    def feed(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > UNREAD:
            self._line.flow.pause_reading()
        if self._waiter is not None:
            self._stir()

    def finish(self) -> None:
        """The request is whole."""
        self.arrived = True
        if self._waiter is not None:
            self._stir()

    def lose(self) -> None:
        """The client has left."""
        self.gone = True
        self._stir()

    def _stir(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # What the client says.

    @property
    def has_body(self) -> bool:
        """Whether its headers say so."""
        return b"transfer-encoding" in self.header or self.header.get(b"content-length", b"").strip(b"0") != b""

    async def read(self, limit: int) -> bytes:
        """The whole body; RequestTooLarge as soon as it exceeds the limit, or at once if its declared length does."""
        length = self.header.get(b"content-length")
        if length is not None and length.isdigit() and int(length.lstrip(b"0") or b"0") > limit:
            raise too_large(limit)
        if b"expect" in self.header:
            self._welcome()
        size, taken = 0, list[bytes]()
        while True:
            parts, self._parts = self._parts, []
            size += self._size
            self._size = 0
            if size > limit:
                raise too_large(limit)
            taken += parts
            if self.gone:
                raise Unread("the request ended before its body did")
            if self.arrived:
                if b"yaml" in self.header.get(b"content-type", b"").lower():
                    await self._line.turn(BYTES)  # whose reader takes a hundred times as long
                elif size > SMALL:
                    await self._line.turn(size)
                return taken[0] if len(taken) == 1 else b"".join(taken)
            self._line.flow.resume_reading()
            await self._news()

    def in_turn(self, size: int) -> Awaitable[None]:
        """Waits until it is the tenant's turn to have so many bytes, or as much work, done."""
        return self._line.turn(size)

    def _welcome(self) -> None:
        """To a client that waits for it before it sends the body."""
        if self.header[b"expect"].lower() == b"100-continue" and self.chunks and not (self.arrived or self.begun):
            self._line.transport.write(_CONTINUE)

    async def left(self) -> None:
        """Waits until the client has left."""
        while not (self.gone or self.complete):
            self._line.flow.resume_reading()
            await self._news()

    def be_patient(self) -> None:
        self._line.be_patient()

    def own(self, tenant: str) -> None:
        """Counts the connection as this tenant's. TooManyRequests, and the connection's end, if that has too many."""
        try:
            self._line.own(tenant)
        except TooManyRequests:
            self.keep = False
            raise

    # What it is told.

    async def _room(self, size: int) -> None:
        """Waits until the client has read most of what it was sent. To one of a tenant whose clients leave too much unread nothing more
        is sent."""
        line = self._line
        if not line.hold(size):
            line.cut()
            self.lose()
            return
        try:
            if line.flow.write_paused:
                await self.drain()
        finally:
            line.hold(-size)

    async def drain(self) -> None:
        """Waits until the client has read most of what it was sent."""
        while self._line.flow.write_paused and not self.gone:
            await self._line.flow.drain()

    async def whole(self, status: int, lines: bytes, body: bytes) -> None:
        """All of the answer. `lines` are headers beyond those of every answer, made by `lines_of`."""
        line = self._line
        self.begun = True
        if len(body) > LARGE:
            await line.turn(len(body))
        if line.flow.write_paused or len(body) > LARGE:
            await self._room(len(body))
        if self.gone:
            return
        if not self.arrived and b"expect" in self.header:
            self.keep = False  # nobody knows whether the body will come
        close = b"" if self.keep else _CLOSE
        length = b"content-length: %d\r\n" % len(body) if status != HTTPStatus.NOT_MODIFIED else b""
        head = (STATUS_LINE[status], line.house.date, lines, length, close, b"" if self.method == "HEAD" else body)
        try:
            whole = b"%b%b%b%b%b\r\n%b" % head
        except MemoryError:
            self.begun = False  # a shorter one may be possible
            raise
        line.transport.write(whole)
        if line.flow.write_paused and not self.keep:
            await self.drain()
        self._end()

    async def start(self, status: int, lines: bytes) -> None:
        """The head of an answer whose length is not known."""
        line = self._line
        self.begun = True
        if line.flow.write_paused:
            await self.drain()
        if self.gone:
            return
        if not self.arrived and b"expect" in self.header:
            self.keep = False
        if self.method != "HEAD":
            self._chunked = self.chunks
            self._plain = not self.chunks
            self.keep = self.keep and self.chunks
        how = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        line.transport.write(
            b"%b%b%b%b%b\r\n" % (STATUS_LINE[status], line.house.date, lines, b"" if self.keep else _CLOSE, how)
        )

    async def piece(self, data: bytes) -> None:
        """Some more of it."""
        line = self._line
        if line.flow.write_paused or len(data) > LARGE:
            await self._room(len(data))
        if not data or self.gone:
            return
        if self._chunked:
            line.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        elif self._plain:
            line.transport.write(data)

    async def end(self, data: bytes = b"") -> None:
        """The last of it."""
        await self.piece(data)
        if self.gone:
            return
        if self._chunked:
            self._line.transport.write(b"0\r\n\r\n")
        if self._line.flow.write_paused and not self.keep:
            await self.drain()
        self._end()

    def _end(self) -> None:
        """To be called when most of the last answer on a connection was read: TLS does not wait long when it is closed."""
        self.complete = True
        if self._waiter is not None:
            self._stir()
        if not self.keep and not self._line.transport.is_closing():
            self._line.transport.close()
        self._line.answered()

    def abandon(self) -> None:
        """Gives up on an answer that cannot be completed: the client shall not take it for a whole one."""
        if self._plain:
            self._line.transport.abort()
        elif not self._line.transport.is_closing():
            self._line.transport.close()


def too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"Request entity too large: limit is {limit}")


def lines_of(headers: Headers) -> bytes:
    """Headers as they are sent. What could end a line has no place in one."""
    for _, value in headers:
        if _CONTROL.search(value):
            raise ValueError("a header with control characters")
    return b"".join([b"%b: %b\r\n" % header for header in headers])
