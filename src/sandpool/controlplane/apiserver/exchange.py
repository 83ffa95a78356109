"""One HTTP request and its response on a connection.

A handler reads the body with `read`. It sends the response with `whole` (one write, so one TLS record), or in pieces with `start`, `piece` and
`end`, each of which waits while the client leaves too much unread. If the client has disconnected, nothing is sent and no error is raised:
callers that need to know use `left`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol

from sandpool.base.shares import NOBODY
from sandpool.base.turns import BYTES
from sandpool.controlplane.apiserver.streams.pipe import Pipe
from sandpool.kube.errors import ApiError, RequestTooLarge, TooManyRequests

Headers = list[tuple[bytes, bytes]]
Upgrade = Callable[[Headers, int], Pipe]
"""Responds 101 with these headers and returns the Pipe for everything that follows. The number is the Pipe's limit for unread answers."""

STATUS_LINE: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
UNREAD: Final = 64 * 1024  # bytes of a body that wait here before reading from the client pauses
LARGE: Final = 64 * 1024  # bytes of a body above which sending it waits for the tenant's turn, and for the client
SMALL: Final = 2 * 1024  # bytes of a body that are processed without waiting for a turn
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"


class Unread(ApiError):
    """The client disconnected before its request was complete, so it will not read this error."""

    status, reason = 400, "BadRequest"


class Dated(Protocol):
    """Provides the current Date header."""

    date: bytes  # the line of the Date header


class ExchangeConnection(Protocol):
    """The part of a connection that an exchange uses."""

    transport: asyncio.Transport
    flow: Flow

    @property
    def state(self) -> Dated: ...

    def answered(self) -> None:
        """Called when a response is complete."""
        ...

    def allow_slow_reader(self) -> None:
        """The client may leave this response unread for as long as it likes."""
        ...

    def own(self, tenant: str) -> None:
        """Charges the connection to this tenant. TooManyRequests if the tenant has too many."""
        ...

    def hold(self, size: int) -> bool:
        """Counts `size` more bytes that wait for the client; False if they are too many, and were not counted. A negative size releases bytes."""
        ...

    def turn(self, size: int) -> Awaitable[None]:
        """Waits for a turn of the tenant, for `size` bytes of work."""
        ...

    def cut(self) -> None:
        """Ends the connection at once."""
        ...


class Exchange:
    """One request and its response; see the module."""

    __slots__ = (
        "_chunked",
        "_connection",
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
        "in_flight",
        "keep",
        "method",
        "owner",
        "path",
        "query",
        "upgrade",
    )

    def __init__(
        self,
        connection: ExchangeConnection,
        method: str,
        path: str,
        query: bytes,
        headers: Headers,
        *,
        keep: bool,
        chunks: bool = True,
        owner: str = NOBODY,
    ) -> None:
        self._connection = connection
        self.owner = owner  # the tenant whose connection this is
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.header = dict(headers)  # by name; the last value of a repeated header
        self.keep = keep  # whether the connection can be reused
        self.chunks = chunks  # whether the client supports chunks: HTTP/1.0 does not
        self.upgrade: Upgrade | None = None  # set if the client asks for one
        self.arrived = False  # whether the request has arrived completely
        self.begun = False  # whether the response has begun
        self.complete = False  # whether the response is complete
        self.gone = False  # whether the client has disconnected
        self.in_flight = False  # it counts as a request in flight
        self._parts: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._chunked = False
        self._plain = False  # a response without length or chunks: it ends with the connection

    # The connection's side.

    def feed(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > UNREAD:
            self._connection.flow.pause_reading()
        if self._waiter is not None:
            self._stir()

    def finish(self) -> None:
        """The request has arrived completely."""
        self.arrived = True
        if self._waiter is not None:
            self._stir()

    def lose(self) -> None:
        """The client has disconnected."""
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

    # The request.

    @property
    def has_body(self) -> bool:
        """Whether its headers announce a body."""
        return b"transfer-encoding" in self.header or self.header.get(b"content-length", b"").strip(b"0") != b""

    async def read(self, limit: int) -> bytes:
        """Reads the whole body. Raises RequestTooLarge as soon as it exceeds the limit, or at once if its declared length does."""
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
                    await self._connection.turn(BYTES)  # parsing YAML takes a hundred times as long
                elif size > SMALL:
                    await self._connection.turn(size)
                return taken[0] if len(taken) == 1 else b"".join(taken)
            self._connection.flow.resume_reading()
            await self._news()

    def in_turn(self, size: int) -> Awaitable[None]:
        """Waits for a turn of the tenant, for `size` bytes of work."""
        return self._connection.turn(size)

    def _welcome(self) -> None:
        """Sends 100 Continue to a client that waits for it before it sends the body."""
        if self.header[b"expect"].lower() == b"100-continue" and self.chunks and not (self.arrived or self.begun):
            self._connection.transport.write(_CONTINUE)

    async def left(self) -> None:
        """Waits until the client has disconnected."""
        while not (self.gone or self.complete):
            self._connection.flow.resume_reading()
            await self._news()

    def allow_slow_reader(self) -> None:
        self._connection.allow_slow_reader()

    def own(self, tenant: str) -> None:
        """Charges the connection to this tenant. Raises TooManyRequests, and ends the connection, if the tenant has too many."""
        try:
            self._connection.own(tenant)
        except TooManyRequests:
            self.keep = False
            raise

    # The response.

    async def _room(self, size: int) -> None:
        """Waits until the client has read most of the response. Ends the connection if the tenant's clients leave too much unread."""
        connection = self._connection
        if not connection.hold(size):
            connection.cut()
            self.lose()
            return
        try:
            if connection.flow.write_paused:
                await self.drain()
        finally:
            connection.hold(-size)

    async def drain(self) -> None:
        """Waits until the client has read most of the response."""
        while self._connection.flow.write_paused and not self.gone:
            await self._connection.flow.drain()

    async def whole(self, status: int, lines: bytes, body: bytes) -> None:
        """Sends the whole response. `lines` are more headers, encoded by `lines_of`."""
        connection = self._connection
        self.begun = True
        if len(body) > LARGE:
            await connection.turn(len(body))
        if connection.flow.write_paused or len(body) > LARGE:
            await self._room(len(body))
        if self.gone:
            return
        if not self.arrived and b"expect" in self.header:
            self.keep = False  # the client may never send the body
        close = b"" if self.keep else _CLOSE
        length = b"content-length: %d\r\n" % len(body) if status != HTTPStatus.NOT_MODIFIED else b""
        head = (
            STATUS_LINE[status],
            connection.state.date,
            lines,
            length,
            close,
            b"" if self.method == "HEAD" else body,
        )
        try:
            whole = b"%b%b%b%b%b\r\n%b" % head
        except MemoryError:
            self.begun = False  # a shorter one may be possible
            raise
        connection.transport.write(whole)
        if connection.flow.write_paused and not self.keep:
            await self.drain()
        self._end()

    async def start(self, status: int, lines: bytes) -> None:
        """Sends the head of a response of unknown length."""
        connection = self._connection
        self.begun = True
        if connection.flow.write_paused:
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
        connection.transport.write(
            b"%b%b%b%b%b\r\n" % (STATUS_LINE[status], connection.state.date, lines, b"" if self.keep else _CLOSE, how)
        )

    async def piece(self, data: bytes) -> None:
        """Sends the next piece of the body."""
        connection = self._connection
        if connection.flow.write_paused or len(data) > LARGE:
            await self._room(len(data))
        if not data or self.gone:
            return
        if self._chunked:
            connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        elif self._plain:
            connection.transport.write(data)

    async def end(self, data: bytes = b"") -> None:
        """Sends the last piece and ends the response."""
        await self.piece(data)
        if self.gone:
            return
        if self._chunked:
            self._connection.transport.write(b"0\r\n\r\n")
        if self._connection.flow.write_paused and not self.keep:
            await self.drain()
        self._end()

    def _end(self) -> None:
        """Marks the response complete, and closes a connection that is not reused. Callers drain that first: TLS does not wait long on close."""
        self.complete = True
        if self._waiter is not None:
            self._stir()
        if not self.keep and not self._connection.transport.is_closing():
            self._connection.transport.close()
        self._connection.answered()

    def abandon(self) -> None:
        """Aborts a response that cannot be completed, so that the client does not take it for a complete one."""
        if self._plain:
            self._connection.transport.abort()
        elif not self._connection.transport.is_closing():
            self._connection.transport.close()


def too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"Request entity too large: limit is {limit}")


def lines_of(headers: Headers) -> bytes:
    """Encodes headers. Raises ValueError for control characters, which could inject a header."""
    for _, value in headers:
        if _CONTROL.search(value):
            raise ValueError("a header with control characters")
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class Flow:
    """Flow control of a connection: `write_paused` while the client leaves too much unread; `drain` waits until that ends."""

    __slots__ = ("_room", "_transport", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._room = asyncio.Event()
        self._room.set()
        self.read_paused = False
        self.write_paused = False

    async def drain(self) -> None:
        await self._room.wait()

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._room.clear()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._room.set()
