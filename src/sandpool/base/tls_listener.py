"""A listening socket whose clients complete a TLS handshake before anybody else sees them.

A handshake takes memory and a descriptor before the client has said anything, so only so many are in progress at once. When another client
connects, the oldest handshake is dropped: clients that connect and fall silent do not keep out those that go on.
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
_BATCH: Final = 64  # connections that are accepted before others get their turn
_NO_DESCRIPTORS: Final = 0.1  # seconds until the next try
_GOODBYE: Final = 2.0  # seconds for the end of TLS


class TlsListener:
    """`connected` makes the protocol of a client that has completed its handshake. `expected` is asked about errors that no
    client can cause: whether somebody else already deals with this one."""

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
        self._shaking: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._open = False

    def open(self) -> None:
        self._listener.listen(_BACKLOG)
        self._open = True
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Lets nobody else in. Who is shaking hands is let go."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for task in self._shaking:
            task.cancel()

    async def closed(self) -> None:
        if self._shaking:
            await asyncio.wait(list(self._shaking))

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
            if len(self._shaking) >= self._handshakes:
                oldest = next(iter(self._shaking))
                del self._shaking[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._shake_hands(client))
            self._shaking[task] = None
            task.add_done_callback(partial(self._shook, client))

    async def _shake_hands(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._connected,
                client,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_timeout,
                ssl_shutdown_timeout=_GOODBYE,
            )
        except OSError as error:  # it speaks no TLS, or not ours, or has gone
            log.debug("no handshake", extra={"keys": {"error": error}})

    def _shook(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._shaking.pop(task, None)
        if task.cancelled():
            client.close()  # which nobody else does if it had not begun
        elif (error := task.exception()) is not None and not self._expected(error):
            log.error("a connection failed", exc_info=error)

    def _pause(self, error: OSError) -> None:
        """No descriptor is left: without a pause the loop would spin on a listener that stays readable."""
        log.warning("cannot accept a connection", extra={"keys": {"error": error}})
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(_NO_DESCRIPTORS, self._resume)

    def _resume(self) -> None:
        if self._open:
            self._loop.add_reader(self._listener.fileno(), self._accept)
