"""One connection: uvicorn's HTTP/1.1 protocol with bounds on what a client may take its time for, and with upgrades.

Bounds are checked by one sweep over all connections rather than by a timer per request, which would cost every request.
A request that asks for an upgrade finds itself under UPGRADE in its scope and may turn the connection into a Pipe; until it has
decided, nothing more is read. A request that does not is answered as the plain one that it also is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from sandpool.local.apiserver.limits import Limits
from sandpool.local.apiserver.streams.pipe import Pipe

NEVER = float("inf")
UPGRADE: Final = "sandpool.upgrade"  # in a scope: an Upgrade
PATIENCE: Final = "sandpool.patience"  # in a scope: call it, and this answer may stay unread for as long as it likes

Headers = list[tuple[bytes, bytes]]
Upgrade = Callable[[Headers, int], Pipe]
"""Answers 101 with these headers; what is sent from then on is the caller's. The number is Pipe's for answers."""


class Connection(HttpToolsProtocol):
    limits: Limits  # these two are set by `limited`
    last_gone: Callable[[], None]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head = 0  # bytes of a request whose headers are not complete
        self._arriving = NEVER  # since when a request has been arriving
        self._stalled = NEVER  # since when the client has not read
        self._patient = False  # it need not read
        self._asked: RequestResponseCycle | None = None  # wants an upgrade and is not answered yet
        self._held = b""  # what came after that request
        self._pipe: Pipe | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arriving = self.loop.time()
        if len(self.connections) > self.limits.connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._pipe is not None:
            self._pipe.end()
        if not self.connections:
            self.last_gone()

    def data_received(self, data: bytes) -> None:
        if self._pipe is not None:
            self._pipe.feed(data)
            return
        if self._asked is not None:
            self._hold(data)
            return
        self._head += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._asked = self.cycle
            self.flow.pause_reading()
            self._hold(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._head > self.limits.head:
            self._refuse(431, b"the request's line and headers are too long")

    def _hold(self, data: bytes) -> None:
        """Hardly anything comes before the answer: what is already on its way."""
        self._held += data
        if len(self._held) > self.limits.body:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._arriving = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        self._patient = False
        scope[PATIENCE] = self._be_patient
        if self.parser.should_upgrade():
            scope[UPGRADE] = self._upgrade
        super().on_headers_complete()
        self._head = -self.limits.body * 2  # what follows is body, which has its own limit

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._arriving = NEVER
        self._head = 0

    def pause_writing(self) -> None:
        self._stalled = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled = NEVER
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._asked is not None and self._asked.response_complete:
            self._asked = None
            if self._held:  # a body, or a protocol that is not spoken here: never to be taken for a request
                self.transport.close()

    def _upgrade(self, headers: Headers, answers: int) -> Pipe:
        cycle = self._asked
        assert cycle is not None
        assert not cycle.response_started
        cycle.response_started = cycle.response_complete = True
        self._pipe = Pipe(self.transport, self.flow, answers, self.loop)
        if self.transport.is_closing():
            self._pipe.end()
            return self._pipe
        lines = [b"%b: %b\r\n" % header for header in (*self.server_state.default_headers, *headers)]
        self.transport.write(b"".join((STATUS_LINE[101], b"connection: Upgrade\r\n", *lines, b"\r\n")))
        self._pipe.feed(self._held)
        self._held = b""
        self.flow.resume_reading()
        return self._pipe

    def _be_patient(self) -> None:
        self._patient = True

    def shutdown(self) -> None:
        if self._pipe is not None:
            self._pipe.hang_up()
        else:
            super().shutdown()

    def _refuse(self, status: int, words: bytes) -> None:
        if not self.transport.is_closing():
            head = b"content-type: text/plain\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(words)
            self.transport.write(STATUS_LINE[status] + head + words)
            self.transport.close()

    def overdue(self, now: float) -> bool:
        if self._pipe is not None:
            return False
        unread = now - self._stalled > self.limits.stalled and not self._patient
        return unread or now - self._arriving > self.limits.arrival


def limited(limits: Limits, last_gone: Callable[[], None]) -> type[Connection]:
    """The protocol of a server with these limits. `last_gone` is called whenever no connection is left."""
    return type("LimitedConnection", (Connection,), {"limits": limits, "last_gone": staticmethod(last_gone)})
