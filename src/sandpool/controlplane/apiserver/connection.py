"""One client connection: HTTP/1.1 with time and size limits, and upgrades.

Requests are parsed by httptools and become Exchanges, which are served one after the other, each by a task. One sweep over all connections
checks time limits, because a timer per request would be too expensive. A request with an upgrade header may turn the connection into a Pipe;
until that is decided, nothing more is read. If it is not upgraded, it is served as a normal request.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools

from sandpool.base.fairness import RoundRobin
from sandpool.base.shares import NOBODY
from sandpool.controlplane.apiserver.exchange import STATUS_LINE, Exchange, Flow, Headers
from sandpool.controlplane.apiserver.fairness import ConnectionOwners, ResponseBudget
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.streams.pipe import Pipe
from sandpool.kube.priority import REQUESTS_PER_TURN

NEVER: Final = float("inf")
MOST_WAITING: Final = 256
"""How many pipelined requests may wait: one read can bring thousands, and bytes that were read cannot be pushed back to the client."""
TOO_LONG: Final = b"the request's line and headers are too long"

SLOW: Final = 0.05
"""Seconds. After a turn that takes longer, fewer requests are started in the next: their cost is known only afterwards."""

Serve = Callable[[Exchange], Coroutine[Any, Any, None]]


class ServerState:
    """What all connections of one server share. `last_gone` is called whenever no connection is left."""

    def __init__(
        self,
        serve: Serve,
        limits: Limits,
        owners: ConnectionOwners,
        sending: ResponseBudget,
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
        self.closing = False  # refuses connections: a TLS handshake may have been in progress when the server stopped
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._most = self._room = REQUESTS_PER_TURN
        self._asked = 0.0  # when the next turn was scheduled
        self._waiting: RoundRobin[Exchange] = RoundRobin()  # tenants alternate

    def start(self, exchange: Exchange) -> None:
        """Starts a request at once or, if many arrived together, in one of the next turns of the loop."""
        if self._room == self._most:
            self._asked = time.monotonic()
            self.loop.call_soon(self.turn)
        if not self._room:
            self._waiting.push(exchange.owner, exchange)
            return
        self._room -= 1
        task = self.loop.create_task(self.serve(exchange))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def begin_all(self) -> None:
        """Starts all waiting requests, so that they are in `tasks`."""
        self.turn(max(REQUESTS_PER_TURN, len(self._waiting)))

    def turn(self, most: int = 0) -> None:
        seconds = time.monotonic() - self._asked
        if most or self._most != REQUESTS_PER_TURN or seconds > SLOW:
            self._most = most or next_batch_size(self._most, seconds)
        self._room = self._most
        while self._waiting and self._room:
            _, exchange = self._waiting.pop()
            if not exchange.gone:
                self.start(exchange)


def next_batch_size(most: int, seconds: float) -> int:
    """How many requests to start in a turn, after one with at most `most` that took `seconds`."""
    if seconds > SLOW:
        return max(1, most // 4)
    return min(REQUESTS_PER_TURN, 2 * most) if seconds < SLOW / 2 else most


class Connection(asyncio.Protocol):
    """One client connection. Methods are grouped by their caller."""

    transport: asyncio.Transport
    flow: Flow

    def __init__(self, state: ServerState) -> None:
        self.state = state
        self.owner = NOBODY  # the tenant that it belongs to
        self._loop = state.loop
        self._limits = state.limits
        self._parser = httptools.HttpRequestParser(self)
        # Otherwise data after a request that ends the connection would discard the response to that request.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._url = b""
        self.headers: Headers = []
        self._arrives: Exchange | None = None  # the request whose body is being read
        self.serving: Exchange | None = None
        self._next: deque[Exchange] = deque()  # pipelined: arrived before the current one was answered
        self._head = 0  # bytes of a request head that is not complete
        self._fed = 0  # bytes of the current read: all of them may belong to one head
        self._heading = False  # whether headers are being read: trailers after a body look the same
        self._refused = False  # nothing more is read; requests that arrived before are still answered
        self._arriving_since = NEVER  # since when a request has been arriving
        self._stalled_since = NEVER  # since when the client has not read
        self._idle_since = NEVER  # since when it is idle
        self._slow_reader_allowed = False  # a slow reader is allowed
        self._unsent = (NOBODY, 0)  # bytes that wait in the transport, and the tenant they are charged to
        self._asked: Exchange | None = None  # the request that wants an upgrade and is not answered yet
        self._held = b""  # bytes that came after that request
        self._pipe: Pipe | None = None

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.flow = Flow(self.transport)
        self.state.connections.add(self)
        self._arriving_since = self._loop.time()
        if self.state.closing:
            self.transport.abort()
        else:
            self.state.owners.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.state.connections.discard(self)
        self.state.owners.left(self)
        if self.serving is not None:
            self.serving.lose()
        self._next.clear()
        # Exchanges refer back to the connection: the cycle would keep the transport and its TLS buffers until the garbage collector runs.
        self.serving = self._arrives = self._asked = None
        self._sent()
        if exc is None:
            self.transport.close()
        if self._pipe is not None:
            self._pipe.end()
        del self._parser  # it refers back to this object, too
        if not self.state.connections:
            self.state.last_gone()

    def data_received(self, data: bytes) -> None:
        if self._pipe is not None:
            self._pipe.feed(data)
            return
        if self._asked is not None:
            self._hold(data)
            return
        if self._refused or self.transport.is_closing():  # TLS passes on what arrives while it closes
            return
        self._fed = len(data)
        self._head += self._fed
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            asked = self._asked = self._arrives
            if asked is not None and asked.has_body:
                asked.keep = False  # its body is not parsed, and may arrive after the response
            self.flow.pause_reading()
            self._hold(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse(400, b"Invalid HTTP request received.")
            return
        if self._head > self._limits.head:
            self._refuse(431, TOO_LONG)

    def _hold(self, data: bytes) -> None:
        """Keeps the few bytes that arrive before the upgrade is answered."""
        self._held += data
        if len(self._held) > self._limits.body:
            self.transport.abort()

    def pause_writing(self) -> None:
        self._stalled_since = self._loop.time()
        self.flow.pause_writing()
        size = self.transport.get_write_buffer_size()
        if self.hold(size):
            self._unsent = (self.owner, size)
        else:
            self.cut()

    def resume_writing(self) -> None:
        self._stalled_since = NEVER
        self._sent()

    def _sent(self) -> None:
        owner, size = self._unsent
        self._unsent = (NOBODY, 0)
        self.state.sending.unsent.take(owner, -size)
        self.flow.resume_writing()

    # The parser's side.

    def on_message_begin(self) -> None:
        self._arriving_since = self._loop.time()
        self._idle_since = NEVER
        self._url = b""
        self.headers = []
        self._heading = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._heading:
            self.headers.append((name.lower(), value))

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
            self.headers,
            keep=parser.should_keep_alive() and version != "1.0",
            chunks=version == "1.1",
            owner=self.owner,
        )
        if parser.should_upgrade():
            exchange.upgrade = self._upgrade
        self._arrives = exchange
        self._head = -self._limits.body * 2  # what follows is the body, which has its own limit
        if self.serving is None:
            self._serve(exchange)
        else:
            self.flow.pause_reading()
            self._next.append(exchange)

    def _measure(self) -> None:
        """Checks the size of the head. One that arrived together with other data may still be within the limit."""
        if len(self._url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self._limits.head:
            self._refuse(431, TOO_LONG)
            raise ValueError("too long")

    def on_body(self, body: bytes) -> None:
        exchange = self._arrives
        if exchange is not None and not exchange.complete:
            exchange.feed(body)

    def on_message_complete(self) -> None:
        if self._arrives is not None:
            self._arrives.finish()
        self._arriving_since = NEVER
        self._head = 0

    # The exchange's side.

    def _serve(self, exchange: Exchange) -> None:
        self.serving = exchange
        self._slow_reader_allowed = False
        self.state.start(exchange)

    def answered(self) -> None:
        served, self.serving = self.serving, None
        if served is None or self.transport.is_closing():  # the client has disconnected, or is about to
            return
        if self._asked is not None and self._asked is served:
            self._asked = None
            if self._held:  # a body, or an unsupported protocol: must not be parsed as a request
                self.transport.close()
                return
        if self._next:
            following = self._next.popleft()
            if not following.arrived:
                self._arriving_since = self._loop.time()  # it was not read while it waited
            self._serve(following)
        else:
            self._idle_since = self._loop.time()
        if self.flow.read_paused and not self._next and self._asked is None:
            self.flow.resume_reading()

    def allow_slow_reader(self) -> None:
        self._slow_reader_allowed = True

    def own(self, tenant: str) -> None:
        self.state.owners.own(self, tenant)

    def hold(self, size: int) -> bool:
        sending = self.state.sending
        if size > 0 and not sending.may_wait(self.owner, size):
            return False
        sending.unsent.take(self.owner, size)
        return True

    def turn(self, size: int) -> Awaitable[None]:
        return self.state.sending.turns.take(self.owner, size)

    def _upgrade(self, headers: Headers, answers: int) -> Pipe:
        exchange = self._asked
        self._pipe = Pipe(self.transport, self, answers, self._loop)
        if exchange is not None:
            assert not exchange.begun
            exchange.begun = exchange.complete = True
        if exchange is None or self.transport.is_closing():  # the client has disconnected
            self._pipe.end()
            return self._pipe
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join((STATUS_LINE[101], b"connection: Upgrade\r\n", self.state.date, *lines, b"\r\n")))
        self._pipe.feed(self._held)
        self._held = b""
        self.flow.resume_reading()
        return self._pipe

    # The server's side.

    @property
    def idle(self) -> bool:
        return self.serving is None and self._pipe is None

    @property
    def waits_for_client(self) -> bool:
        serving = self.serving
        return serving is not None and serving.in_flight and (not serving.arrived or self.flow.write_paused)

    def cut(self) -> None:
        if self.idle and not self.transport.is_closing():
            self.transport.close()
        else:
            self.transport.abort()

    def shutdown(self) -> None:
        """Closes the connection after the requests in progress."""
        if self._pipe is not None:
            self._pipe.hang_up()
        elif self.serving is None:
            if not self.transport.is_closing():
                self.transport.close()
        else:
            self.serving.keep = False
            self._next.clear()

    def sweep(self, now: float) -> None:
        """Ends a connection that exceeds a time limit. An upgraded one has its own limits."""
        if self._pipe is not None:
            return
        limits = self._limits
        unread = now - self._stalled_since > limits.stalled and not self._slow_reader_allowed
        if unread or (now - self._arriving_since > limits.arrival and not self._next):
            self.transport.abort()
        elif now - self._idle_since > limits.idle and not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: int, message: bytes) -> None:
        """Reads nothing more. Valid requests before this one are answered first; then the connection is closed."""
        if self.transport.is_closing():
            return
        arrives = self._arrives
        broken = arrives if arrives is not None and not arrives.arrived else None  # its body is invalid
        if self._next and self._next[-1] is broken:
            self._next.pop()
            broken = None
        before = self._next[-1] if self._next else self.serving
        if before is not None and before is not broken:
            before.keep = False  # its client would take an error sent now for its response
            self._refused, self._arriving_since = True, NEVER
            return
        if broken is None or not broken.begun:
            head = (STATUS_LINE[status], self.state.date, len(message), message)
            self.transport.write(
                b"%b%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % head
            )
        if broken is not None:
            broken.lose()
        self.transport.close()
