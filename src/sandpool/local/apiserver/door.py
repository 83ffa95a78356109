"""Where connections come in: each is accepted, shakes hands, and only then is a Connection that others count.

A handshake takes memory and a descriptor before anybody has said anything. Only so many are under way at once; when another client comes, the oldest gives
way, so that clients that connect and fall silent do not keep out those that go on.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from sandpool.local.apiserver.limits import Limits, Memory
from sandpool.telemetry.log import logger

log = logger(__name__)

_BACKLOG: Final = 2048
_BATCH: Final = 64  # connections that are accepted before others get their turn
_NO_DESCRIPTORS: Final = 0.1  # seconds until the next try
_GOODBYE: Final = 2.0  # seconds for the end of TLS


class Door:
    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext,
        limits: Limits,
        memory: Memory,
        enter: Callable[[], asyncio.Protocol],
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._limits = limits
        self._memory = memory
        self._enter = enter
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
            if len(self._shaking) >= max(1, self._limits.handshakes):
                oldest = next(iter(self._shaking))
                del self._shaking[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._shake_hands(client))
            self._shaking[task] = None
            task.add_done_callback(partial(self._shook, client))

    async def _shake_hands(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._enter,
                client,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.handshake,
                ssl_shutdown_timeout=_GOODBYE,
            )
        except OSError as error:  # it speaks no TLS, or not ours, or has gone
            log.debug("no handshake", error=error)

    def _shook(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._shaking.pop(task, None)
        if task.cancelled():
            client.close()  # which nobody else does if it had not begun
        elif (error := task.exception()) is not None and not self._memory.noticed(error):
            log.error("a connection failed", exc=error)

    def _pause(self, error: OSError) -> None:
        """No descriptor is left: without a pause the loop would spin on a listener that stays readable."""
        log.warning("cannot accept a connection", error=error)
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(_NO_DESCRIPTORS, self._resume)

    def _resume(self) -> None:
        if self._open:
            self._loop.add_reader(self._listener.fileno(), self._accept)
