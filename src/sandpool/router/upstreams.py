"""Keeps idle connections to sandboxes for the next request.

A connection that the sandbox closes is dropped at once; one on which it sends something unasked is not reused.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from sandpool.base.clock import Clock, Timer
from sandpool.router.connection import Connection
from sandpool.router.options import RouterOptions


class Upstreams:
    def __init__(self, options: RouterOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._spare: dict[str, list[tuple[Connection, Timer]]] = {}
        self._count = 0

    def take(self, pool: str) -> Connection | None:
        """The connection that was used last, if it is still idle and open."""
        while spares := self._spare.get(pool):
            connection, timer = spares.pop()
            self._count -= 1
            timer.cancel()
            if not spares:
                del self._spare[pool]
            connection.watch(None)
            if not (connection.held or connection.ended) and quiet(connection.sock):
                return connection
            connection.close()
        return None

    def give(self, pool: str, connection: Connection) -> None:
        spares = self._spare.get(pool, ())
        if self._count >= self._options.all_spares or len(spares) >= self._options.spares or connection.held:
            connection.close()
            return
        drop = self._dropper(pool, connection)
        timer = self._clock.call_later(self._options.spare, drop)
        self._spare.setdefault(pool, []).append((connection, timer))
        self._count += 1
        connection.watch(drop)

    def _dropper(self, pool: str, connection: Connection) -> Callable[[], None]:
        def drop() -> None:
            spares = self._spare.get(pool, [])
            for at, (spare, timer) in enumerate(spares):
                if spare is connection:
                    timer.cancel()
                    del spares[at]
                    self._count -= 1
                    break
            if not spares:
                self._spare.pop(pool, None)
            connection.close()

        return drop

    def close(self) -> None:
        for spares in self._spare.values():
            for connection, timer in spares:
                timer.cancel()
                connection.close()
        self._spare.clear()
        self._count = 0


def quiet(sock: socket.socket) -> bool:
    """Whether it is open and has nothing to read."""
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
