"""HTTP to one server: requests on connections that are kept and reused.

`request` is for answers that fit into memory, `stream` for bodies of any size in either direction, `upgrade` and `websocket` for
connections that switch protocols. A request is sent a second time only if it was surely not processed (the connection
failed), or if it is idempotent and a kept connection ended before the first byte of an answer.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11

from sandpool.kube.errors import Refused, Unreachable, Unreadable, Untrusted
from sandpool.sdk._async.exchange import READ, Body, ByteStream, Exchange, body_size
from sandpool.sdk._async.sync_primitives import Semaphore
from sandpool.sdk._async.transport import Transport, sleep
from sandpool.sdk._async.websocket import WebSocket, upgrade_headers, verify_upgrade
from sandpool.sdk.answers import check_values
from sandpool.sdk.deadline import Deadline, after, left, sooner
from sandpool.sdk.errors import Dropped, TooLarge
from sandpool.sdk.origin import Origin
from sandpool.version import __version__

Headers = Iterable[tuple[str, str]]
Dial = Callable[[Deadline], Awaitable[ByteStream]]

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
CONNECT = 10.0  # seconds for a new connection
IDLE = 20.0  # seconds that an idle connection is kept: less than any server that we know keeps one
KEPT = 16  # connections at most
PAUSES = (0.05, 0.2)  # after a refused connection
LARGEST = 64 << 20  # bytes of an answer that is read whole
REFUSAL = 1 << 16  # bytes of a refusal that are read


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())

    def json(self) -> Any:
        """The decoded body; Unreadable if it is not JSON, TooLarge if it has too many values."""
        check_values(self.body, f"an answer ({self.status})")
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise Unreadable(f"an answer ({self.status}) is not JSON") from None


class Answer:
    """An answer whose body is read as it comes."""

    def __init__(self, exchange: Exchange, left: Callable[[Exchange], None]) -> None:
        self._exchange = exchange
        self._left = left

    @property
    def status(self) -> int:
        return self._exchange.status

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def headers(self) -> dict[str, str]:
        return self._exchange.headers

    def header(self, name: str) -> str | None:
        return self._exchange.headers.get(name.lower())

    async def read(self, limit: int = READ, timeout: float | None = None) -> bytes:
        """Up to `limit` bytes, as soon as there are any; empty at the end. `timeout` is for this read alone."""
        return await self._exchange.read(limit, after(timeout))

    async def all(self, limit: int = LARGEST, timeout: float | None = None) -> bytes:
        """The whole rest; TooLarge if it is longer than `limit`."""
        return await read_whole(self._exchange, limit, after(timeout))

    async def beginning(self, limit: int = REFUSAL, timeout: float | None = None) -> bytes:
        """The rest, or as much of it as `limit` allows."""
        return await read_some(self._exchange, limit, after(timeout))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self._exchange.read():
            yield data

    def leave(self) -> None:
        """Ends the answer. If it was not read to its end, the connection is closed, and the other side sees a client that hung up."""
        self._left(self._exchange)


class Http:
    """One server. `headers` go with every request; `dial` opens connections in another way than to the origin's address. At most
    `at_once` requests are in flight, others wait; streams are not counted."""

    def __init__(
        self,
        origin: Origin,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        headers: Headers = (),
        dial: Dial | None = None,
        at_once: int | None = None,
    ) -> None:
        self.origin = origin
        self._semaphore = Semaphore(at_once) if at_once is not None else None
        self._tls = tls
        self._server_name = server_name
        self._headers = (("Host", origin.authority), ("User-Agent", f"sandpool/{__version__}"), *headers)
        self._dial = dial
        self.idle: list[tuple[ByteStream, float]] = []  # the newest last: it is used first
        self._lock = threading.Lock()  # never held while waiting
        self.closed = False

    async def request(
        self,
        method: str,
        path: str,
        headers: Headers = (),
        body: bytes = b"",
        timeout: float | None = None,
        limit: int = LARGEST,
    ) -> Response:
        """The whole answer, of at most `limit` bytes, within `timeout` seconds."""
        deadline = after(timeout)
        if self._semaphore is None:
            return await self._whole(method, path, headers, body, deadline, limit)
        await self._semaphore.acquire(deadline)
        try:
            return await self._whole(method, path, headers, body, deadline, limit)
        finally:
            self._semaphore.release()

    async def _whole(
        self, method: str, path: str, headers: Headers, body: bytes, deadline: Deadline, limit: int
    ) -> Response:
        exchange = await self._ask(method, path, headers, body, deadline)
        try:
            data = await read_whole(exchange, limit, deadline)
        except BaseException:
            exchange.transport.close()
            raise
        self._give_back(exchange)
        return Response(exchange.status, exchange.headers, data)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, headers: Headers = (), body: Body = b"", timeout: float | None = None
    ) -> AsyncIterator[Answer]:
        """An answer as it comes. `timeout` is until its head is there, the sending of the body included.

        A file is sent from its position to its end, by the kernel where it can; an iterator is sent in chunks.
        Leaving before the body has ended closes the connection, which the other side takes as hanging up."""
        answer = await self.open_stream(method, path, headers, body, timeout)
        try:
            yield answer
        finally:
            answer.leave()

    async def open_stream(
        self, method: str, path: str, headers: Headers = (), body: Body = b"", timeout: float | None = None
    ) -> Answer:
        """Like `stream`; the caller must `leave` the answer."""
        return Answer(await self._ask(method, path, headers, body, after(timeout)), self._give_back)

    @asynccontextmanager
    async def upgrade(
        self, path: str, protocol: str, headers: Headers = (), timeout: float | None = None
    ) -> AsyncIterator[tuple[ByteStream, bytes]]:
        """A connection that now speaks `protocol`, and the bytes right behind the answer. Raises RefusedUpgrade."""
        asked = (("Connection", "Upgrade"), ("Upgrade", protocol), *headers)
        exchange = await self._ask("GET", path, asked, b"", after(timeout))
        try:
            if exchange.status != 101:
                raise await refused(exchange, after(timeout))
            yield exchange.transport, exchange.rest()
        finally:
            exchange.transport.close()

    @asynccontextmanager
    async def websocket(
        self, path: str, headers: Headers = (), timeout: float | None = None, protocols: tuple[str, ...] = ()
    ) -> AsyncIterator[WebSocket]:
        """A WebSocket. Raises RefusedUpgrade, with the answer."""
        socket = await self.open_websocket(path, headers, after(timeout), protocols)
        try:
            yield socket
            await socket.close()
        finally:
            socket.abort()

    async def open_websocket(
        self, path: str, headers: Headers, deadline: Deadline, protocols: tuple[str, ...] = ()
    ) -> WebSocket:
        """A WebSocket that the caller ends, with `close` and `abort`."""
        key, asked = upgrade_headers(protocols)
        exchange = await self._ask("GET", path, (*asked, *headers), b"", deadline)
        try:
            if exchange.status != 101:
                raise await refused(exchange, deadline)
            verify_upgrade(key, exchange.headers, protocols)
            socket = WebSocket(exchange.transport, exchange.headers.get("sec-websocket-protocol", ""))
            socket.headers = exchange.headers
            socket.feed(exchange.rest())
            return socket
        except BaseException:
            exchange.transport.close()
            raise

    async def close(self) -> None:
        """Closes the connections that are kept; those in use are closed when they are done."""
        with self._lock:
            self.closed = True
            idle, self.idle = self.idle, []
        for transport, _ in idle:
            transport.close()

    async def _ask(self, method: str, path: str, headers: Headers, body: Body, deadline: Deadline) -> Exchange:
        request = self._request(method, path, headers, body)
        repeatable = method in IDEMPOTENT and isinstance(body, bytes)
        for pause in (*PAUSES, None):
            try:
                return await self._try(request, body, deadline, repeatable)
            except Untrusted:
                raise
            except Refused:  # and nothing of the body was taken
                if pause is None:
                    raise
            await sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _try(self, request: h11.Request, body: Body, deadline: Deadline, repeatable: bool) -> Exchange:
        while (kept := self._take()) is not None:
            try:
                return await _exchange(kept, request, body, deadline)
            except Dropped:
                if not repeatable:
                    raise
        return await _exchange(await self._connect(deadline), request, body, deadline)

    def _request(self, method: str, path: str, headers: Headers, body: Body) -> h11.Request:
        fields = [*self._headers, *headers]
        size = body_size(body)
        if size is None:
            fields.append(("Transfer-Encoding", "chunked"))
        elif size or method in ("POST", "PUT", "PATCH"):
            fields.append(("Content-Length", str(size)))
        try:
            return h11.Request(method=method, target=self.origin.prefix + path, headers=fields)
        except h11.LocalProtocolError:
            # The library's message may hold the value, and the value may be a token.
            what = f"{method} {path.partition('?')[0]!r}"
            raise ValueError(f"{what}: the path or a header has a character that HTTP does not allow") from None

    async def _connect(self, deadline: Deadline) -> ByteStream:
        soon = sooner(deadline, after(CONNECT))
        if self._dial is not None:
            return await self._dial(soon)
        return await Transport.connect(self.origin, self._tls, soon, self._server_name)

    def _take(self) -> ByteStream | None:
        """The connection that was used last, if it is still usable."""
        oldest = time.monotonic() - IDLE
        while True:
            with self._lock:
                if self.closed:
                    raise Unreachable(f"{self.origin.authority}: this client is closed; nothing was sent")
                if not self.idle:
                    return None
                transport, since = self.idle.pop()
            if since >= oldest and not transport.stale():
                return transport
            transport.close()

    def _give_back(self, exchange: Exchange) -> None:
        dropped = exchange.transport
        if exchange.reusable:
            with self._lock:
                if not self.closed:
                    self.idle.append((exchange.transport, time.monotonic()))
                    if len(self.idle) <= KEPT:
                        return
                    dropped, _ = self.idle.pop(0)
        dropped.close()


class RefusedUpgrade(Unreachable):
    """The server answered instead of switching protocols; `response` is what it said."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"the server did not switch protocols: it answered {response.status}")
        self.response = response


async def _exchange(transport: ByteStream, request: h11.Request, body: Body, deadline: Deadline) -> Exchange:
    exchange = Exchange(transport)
    try:
        await exchange.send(request, body, deadline)
        await exchange.begin(deadline)
    except BaseException:
        transport.close()
        raise
    return exchange


async def refused(exchange: Exchange, deadline: Deadline) -> RefusedUpgrade:
    return RefusedUpgrade(Response(exchange.status, exchange.headers, await read_some(exchange, REFUSAL, deadline)))


async def read_some(exchange: Exchange, limit: int, deadline: Deadline) -> bytes:
    found = bytearray()
    while len(found) < limit and (data := await exchange.read(limit - len(found), deadline)):
        found += data
        left(deadline)
    return bytes(found)


async def read_whole(exchange: Exchange, limit: int, deadline: Deadline) -> bytes:
    """Reads into one buffer: however small the pieces are, it takes no more memory than the body is long."""
    found = bytearray()
    while data := await exchange.read(READ, deadline):
        found += data
        if len(found) > limit:
            raise TooLarge(f"an answer is larger than {limit} bytes; ask for less of it, or read it as a stream", limit)
        left(deadline)
    return bytes(found)
