"""A listening socket that completes TLS handshakes before it hands a connection over.

A handshake takes memory and a descriptor before the client has sent anything, so their number is bounded. At the limit, a new client
displaces the oldest handshake, so clients that connect and send nothing cannot keep others out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

log = logging.getLogger(__name__)

_BACKLOG: Final = 2048
_BATCH: Final = 64  # connections accepted before other callbacks run
_NO_DESCRIPTORS: Final = 0.1  # seconds until the next try
_SHUTDOWN_TIMEOUT: Final = 2.0  # seconds for the TLS shutdown


class TlsListener:
    """Accepts TLS connections. `connected` creates the protocol for a client that has completed its handshake. Errors that no client can cause
    are logged, unless `expected` says that they are already dealt with elsewhere."""

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext,
        connected: Callable[[], asyncio.Protocol],
        *,
        handshakes: int,
        handshake_timeout: float,
        expected: Callable[[BaseException], bool],
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._connected = connected
        self._handshakes = max(1, handshakes)
        self._handshake_timeout = handshake_timeout
        self._expected = expected
        self._loop = asyncio.get_running_loop()
        self._in_handshake: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._open = False

    def open(self) -> None:
        self._listener.listen(_BACKLOG)
        self._open = True
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Stops accepting connections and drops those in a handshake."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for task in self._in_handshake:
            task.cancel()

    async def closed(self) -> None:
        if self._in_handshake:
            await asyncio.wait(list(self._in_handshake))

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            client.setblocking(False)
            if len(self._in_handshake) >= self._handshakes:
                oldest = next(iter(self._in_handshake))
                del self._in_handshake[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._handshake(client))
            self._in_handshake[task] = None
            task.add_done_callback(partial(self._handshake_done, client))

    async def _handshake(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._connected,
                client,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_timeout,
                ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT,
            )
        except OSError as error:  # the client does not speak TLS, or no version that we accept, or has gone
            log.debug("no handshake", extra={"keys": {"error": error}})

    def _handshake_done(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._in_handshake.pop(task, None)
        if task.cancelled():
            client.close()  # nothing else closes it if the handshake had not begun
        elif (error := task.exception()) is not None and not self._expected(error):
            log.error("a connection failed", exc_info=error)

    def _pause(self, error: OSError) -> None:
        """Pauses accepting when no descriptor is left: otherwise the loop would spin on a listener that stays readable."""
        log.warning("cannot accept a connection", extra={"keys": {"error": error}})
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(_NO_DESCRIPTORS, self._resume)

    def _resume(self) -> None:
        if self._open:
            self._loop.add_reader(self._listener.fileno(), self._accept)
