"""One connection: HTTP/1.1 with bounds on what a client may take its time for, and with upgrades.

Requests are parsed by httptools and become Exchanges, served one after the other, each by a task. Bounds are checked by one sweep
over all connections rather than by a timer per request, which would cost every request.
A request that asks for an upgrade may turn the connection into a Pipe; until it has decided, nothing more is read. A request
that does not is answered as the plain one that it also is.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools

from sandpool.base.rotation import Rotation
from sandpool.base.shares import NOBODY
from sandpool.controlplane.apiserver.exchange import STATUS_LINE, Exchange, Headers
from sandpool.controlplane.apiserver.flow import Flow
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.owners import Owners
from sandpool.controlplane.apiserver.sending import Sending
from sandpool.controlplane.apiserver.streams.pipe import Pipe

NEVER: Final = float("inf")
MOST_WAITING: Final = 256
"""Requests that wait behind the one in hand: one read can bring thousands, and what is read cannot be left with the client."""
TOO_LONG: Final = b"the request's line and headers are too long"

AT_ONCE: Final = 16
"""Requests that are begun in one turn of the loop, at most. What they wrote is on its way to the disk, and what the disk has is told, while
the others still wait."""
SLOW: Final = 0.05
"""Seconds of a turn after which fewer are begun: what one of them costs is known only afterwards."""

Serve = Callable[[Exchange], Coroutine[Any, Any, None]]


class House:
    """What all connections of one server share. `last_gone` is called whenever no connection is left."""

    def __init__(
        self,
        serve: Serve,
        limits: Limits,
        owners: Owners,
        sending: Sending,
        last_gone: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.serve = serve
        self.limits = limits
        self.owners = owners
        self.sending = sending
        self.last_gone = last_gone
        self.loop = loop
        self.date = b""  # the line of the Date header
        self.closing = False  # no more connections: one may still have been shaking hands when the server stopped
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._most = self._room = AT_ONCE
        self._asked = 0.0  # when the next turn was called for
        self._waiting: Rotation[Exchange] = (
            Rotation()
        )  # by tenant: the requests of one do not wait behind all of another's

    def start(self, exchange: Exchange) -> None:
        """At once or, behind many others that came in the same moment, in the next turns of the loop."""
        if self._room == self._most:
            self._asked = time.monotonic()
            self.loop.call_soon(self._turn)
        if not self._room:
            self._waiting.push(exchange.owner, exchange)
            return
        self._room -= 1
        task = self.loop.create_task(self.serve(exchange))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def begin_all(self) -> None:
        """Nobody waits any longer: what was asked is in `tasks`."""
        self._turn(max(AT_ONCE, len(self._waiting)))

    def _turn(self, most: int = 0) -> None:
        seconds = time.monotonic() - self._asked
        if most or self._most != AT_ONCE or seconds > SLOW:
            self._most = most or begun_next(self._most, seconds)
        self._room = self._most
        while self._waiting and self._room:
            _, exchange = self._waiting.pop()
            if not exchange.gone:
                self.start(exchange)


def begun_next(most: int, seconds: float) -> int:
    """How many requests to begin after a turn that took so long, in which at most so many were."""
    if seconds > SLOW:
        return max(1, most // 4)
    return min(AT_ONCE, 2 * most) if seconds < SLOW / 2 else most


class Connection(asyncio.Protocol):
    transport: asyncio.Transport
    flow: Flow

    def __init__(self, house: House) -> None:
        self.house = house
        self.owner = NOBODY  # the tenant whose it is
        self._loop = house.loop
        self._limits = house.limits
        self._parser = httptools.HttpRequestParser(self)
        # Else a request behind one that ends the connection would take the answer to the first with it.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._url = b""
        self._headers: Headers = []
        self._arrives: Exchange | None = None  # whose body is being read
        self._serving: Exchange | None = None
        self._next: deque[Exchange] = deque()  # asked before the one in hand was answered
        self._head = 0  # bytes of a request whose headers are not complete
        self._fed = 0  # bytes in hand: all of them may be of one head
        self._heading = False  # headers are read; what comes after a body looks the same
        self._deaf = False  # nothing more is read: only what was asked before is answered
        self._arriving = NEVER  # since when a request has been arriving
        self._stalled = NEVER  # since when the client has not read
        self._resting = NEVER  # since when nothing was asked
        self._patient = False  # it need not read
        self._unsent = (NOBODY, 0)  # what waits in the transport, and on whose account
        self._asked: Exchange | None = None  # wants an upgrade and is not answered yet
        self._held = b""  # what came after that request
        self._pipe: Pipe | None = None

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.flow = Flow(self.transport)
        self.house.connections.add(self)
        self._arriving = self._loop.time()
        if self.house.closing:
            self.transport.abort()
        else:
            self.house.owners.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.house.connections.discard(self)
        self.house.owners.left(self)
        if self._serving is not None:
            self._serving.lose()
        self._next.clear()
        # They refer back to this: a circle would keep the transport, with its buffers and its TLS, until the collector comes by.
        self._serving = self._arrives = self._asked = None
        self._sent()
        if exc is None:
            self.transport.close()
        if self._pipe is not None:
            self._pipe.end()
        del self._parser  # it refers back to this
        if not self.house.connections:
            self.house.last_gone()

    def data_received(self, data: bytes) -> None:
        if self._pipe is not None:
            self._pipe.feed(data)
            return
        if self._asked is not None:
            self._hold(data)
            return
        if self._deaf or self.transport.is_closing():  # TLS hands on what comes while it says goodbye
            return
        self._fed = len(data)
        self._head += self._fed
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            asked = self._asked = self._arrives
            if asked is not None and asked.has_body:
                asked.keep = False  # it is not parsed, and may come after the answer
            self.flow.pause_reading()
            self._hold(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse(400, b"Invalid HTTP request received.")
            return
        if self._head > self._limits.head:
            self._refuse(431, TOO_LONG)

    def _hold(self, data: bytes) -> None:
        """Hardly anything comes before the answer: what is already on its way."""
        self._held += data
        if len(self._held) > self._limits.body:
            self.transport.abort()

    def pause_writing(self) -> None:
        self._stalled = self._loop.time()
        self.flow.pause_writing()
        size = self.transport.get_write_buffer_size()
        if self.hold(size):
            self._unsent = (self.owner, size)
        else:
            self.cut()

    def resume_writing(self) -> None:
        self._stalled = NEVER
        self._sent()

    def _sent(self) -> None:
        owner, size = self._unsent
        self._unsent = (NOBODY, 0)
        self.house.sending.unsent.take(owner, -size)
        self.flow.resume_writing()

    # The parser's side.

    def on_message_begin(self) -> None:
        self._arriving = self._loop.time()
        self._resting = NEVER
        self._url = b""
        self._headers = []
        self._heading = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._heading:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._heading = False
        if max(self._head, self._fed) > self._limits.head:
            self._measure()
        if len(self._next) >= MOST_WAITING:
            raise ValueError("too many requests behind each other")
        parser = self._parser
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii") if url.path else "/"
        version = parser.get_http_version()
        exchange = Exchange(
            self,
            parser.get_method().decode("ascii"),
            unquote(path) if "%" in path else path,
            url.query or b"",
            self._headers,
            keep=parser.should_keep_alive() and version != "1.0",
            chunks=version == "1.1",
            owner=self.owner,
        )
        if parser.should_upgrade():
            exchange.upgrade = self._upgrade
        self._arrives = exchange
        self._head = -self._limits.body * 2  # what follows is body, which has its own limit
        if self._serving is None:
            self._serve(exchange)
        else:
            self.flow.pause_reading()
            self._next.append(exchange)

    def _measure(self) -> None:
        """A head that came with much else may be within the limit all the same."""
        if len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers) > self._limits.head:
            self._refuse(431, TOO_LONG)
            raise ValueError("too long")

    def on_body(self, body: bytes) -> None:
        exchange = self._arrives
        if exchange is not None and not exchange.complete:
            exchange.feed(body)

    def on_message_complete(self) -> None:
        if self._arrives is not None:
            self._arrives.finish()
        self._arriving = NEVER
        self._head = 0

    # The exchange's side.

    def _serve(self, exchange: Exchange) -> None:
        self._serving = exchange
        self._patient = False
        self.house.start(exchange)

    def answered(self) -> None:
        served, self._serving = self._serving, None
        if served is None or self.transport.is_closing():  # the client has left, or is about to
            return
        if self._asked is not None and self._asked is served:
            self._asked = None
            if self._held:  # a body, or a protocol that is not spoken here: never to be taken for a request
                self.transport.close()
                return
        if self._next:
            following = self._next.popleft()
            if not following.arrived:
                self._arriving = self._loop.time()  # while it waited, it was not read on
            self._serve(following)
        else:
            self._resting = self._loop.time()
        if self.flow.read_paused and not self._next and self._asked is None:
            self.flow.resume_reading()

    def be_patient(self) -> None:
        self._patient = True

    def own(self, tenant: str) -> None:
        self.house.owners.own(self, tenant)

    def hold(self, size: int) -> bool:
        sending = self.house.sending
        if size > 0 and not sending.may_wait(self.owner, size):
            return False
        sending.unsent.take(self.owner, size)
        return True

    def turn(self, size: int) -> Awaitable[None]:
        return self.house.sending.turns.take(self.owner, size)

    def _upgrade(self, headers: Headers, answers: int) -> Pipe:
        exchange = self._asked
        self._pipe = Pipe(self.transport, self, answers, self._loop)
        if exchange is not None:
            assert not exchange.begun
            exchange.begun = exchange.complete = True
        if exchange is None or self.transport.is_closing():  # the client has left
            self._pipe.end()
            return self._pipe
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join((STATUS_LINE[101], b"connection: Upgrade\r\n", self.house.date, *lines, b"\r\n")))
        self._pipe.feed(self._held)
        self._held = b""
        self.flow.resume_reading()
        return self._pipe

    # The server's side.

    @property
    def idle(self) -> bool:
        return self._serving is None and self._pipe is None

    @property
    def held_up(self) -> bool:
        serving = self._serving
        return serving is not None and serving.seated and (not serving.arrived or self.flow.write_paused)

    def cut(self) -> None:
        if self.idle and not self.transport.is_closing():
            self.transport.close()
        else:
            self.transport.abort()

    def shutdown(self) -> None:
        """Ends the connection when what it is doing is done."""
        if self._pipe is not None:
            self._pipe.hang_up()
        elif self._serving is None:
            if not self.transport.is_closing():
                self.transport.close()
        else:
            self._serving.keep = False
            self._next.clear()

    def sweep(self, now: float) -> None:
        """Ends a connection that takes too long. An upgraded one has bounds of its own."""
        if self._pipe is not None:
            return
        limits = self._limits
        unread = now - self._stalled > limits.stalled and not self._patient
        if unread or (now - self._arriving > limits.arrival and not self._next):
            self.transport.abort()
        elif now - self._resting > limits.idle and not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: int, words: bytes) -> None:
        """Reads nothing more. What was asked properly before is answered first; then the connection ends."""
        if self.transport.is_closing():
            return
        arrives = self._arrives
        broken = arrives if arrives is not None and not arrives.arrived else None  # by its body
        if self._next and self._next[-1] is broken:
            self._next.pop()
            broken = None
        before = self._next[-1] if self._next else self._serving
        if before is not None and before is not broken:
            before.keep = False  # words now would be taken for its answer, or for a part of it
            self._deaf, self._arriving = True, NEVER
            return
        if broken is None or not broken.begun:
            head = (STATUS_LINE[status], self.house.date, len(words), words)
            self.transport.write(
                b"%b%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % head
            )
        if broken is not None:
            broken.lose()
        self.transport.close()
