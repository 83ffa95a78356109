"""One connection: uvicorn's HTTP/1.1 protocol with bounds on what a client may take its time for.

Bounds are checked by one sweep over all connections rather than by a timer per request, which would cost every request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from sandpool.local.apiserver.limits import Limits

NEVER = float("inf")


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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arriving = self.loop.time()
        if len(self.connections) > self.limits.connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.connections:
            self.last_gone()

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._head > self.limits.head:
            self._refuse(431, b"the request's line and headers are too long")

    def on_message_begin(self) -> None:
        self._arriving = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
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

    def _unsupported_upgrade_warning(self) -> None:
        """Upgrades are answered as the plain requests that they also are; nothing to warn about."""

    def _refuse(self, status: int, words: bytes) -> None:
        if not self.transport.is_closing():
            head = b"content-type: text/plain\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(words)
            self.transport.write(STATUS_LINE[status] + head + words)
            self.transport.close()

    def overdue(self, now: float) -> bool:
        return now - self._arriving > self.limits.arrival or now - self._stalled > self.limits.stalled


def limited(limits: Limits, last_gone: Callable[[], None]) -> type[Connection]:
    """The protocol of a server with these limits. `last_gone` is called whenever no connection is left."""
    return type("LimitedConnection", (Connection,), {"limits": limits, "last_gone": staticmethod(last_gone)})
