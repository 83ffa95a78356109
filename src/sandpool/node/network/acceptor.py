"""Accepts connections on one listening socket and serves each in a task of its own, leaving nothing behind when closed.

When no slot is free it stops accepting: further clients wait in the kernel and cost nothing here.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from sandpool.base import open_files as descriptors
from sandpool.base.clock import Clock, Timer
from sandpool.node.network.relay import prompt
from sandpool.node.network.slots import Slots
from sandpool.telemetry.log import logger

log = logger(__name__)
_REST = 0.2  # seconds to wait after a failed accept, for example without free descriptors
_AT_ONCE = 64  # accepted in one go before other callbacks run

Serve = Callable[[socket.socket], Coroutine[Any, Any, None]]
"""Serves one connection, which the acceptor closes afterwards. Must not raise for anything that the peer does."""


class Acceptor:
    """Owns the listener. Accepts in a callback instead of a task: a task cancelled between the accept and its next step would leak the
    connection."""

    def __init__(self, listener: socket.socket, slots: Slots, serve: Serve, clock: Clock) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._slots = slots
        self._serve = serve
        self._clock = clock
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self._loop = asyncio.get_running_loop()
        self._resting: Timer | None = None
        self._closed = False
        self._listen()

    def __len__(self) -> int:
        """How many connections are being served."""
        return len(self._connections)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener)
            self._listener.close()
        if self._resting is not None:
            self._resting.cancel()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _listen(self) -> bool:
        if not self._closed:
            self._loop.add_reader(self._listener, self._accept)
        return not self._closed

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._slots.take():
                self._loop.remove_reader(self._listener)
                self._slots.wait(self._listen)
                return
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                self._slots.give_back()
                if not isinstance(error, (BlockingIOError, InterruptedError, ConnectionAbortedError)):
                    self._rest(error)
                return
            if descriptors.scarce(connection.fileno()):
                connection.close()
                self._slots.give_back()
                self._rest()
                return
            self._start(connection)

    def _rest(self, error: OSError | None = None) -> None:
        few = error is None or error.errno in (errno.EMFILE, errno.ENFILE)
        log.warning("cannot accept a connection", cause=descriptors.limit_message() if few else str(error))
        self._loop.remove_reader(self._listener)
        self._resting = self._clock.call_later(_REST, self._listen)

    def _start(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._run(connection))
        self._connections[task] = connection
        task.add_done_callback(self._ended)

    async def _run(self, connection: socket.socket) -> None:
        try:
            prompt(connection)
            await self._serve(connection)
        except OSError as error:
            log.debug("a connection broke", cause=str(error))
        except Exception as error:
            log.error("a connection failed", exc=error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Cleans up after a task, also one that was cancelled before its first step."""
        self._connections.pop(task).close()
        self._slots.give_back()
