"""Connections to sandboxes that have nothing to do at the moment. One that its other end closes is dropped at once; one on which it
speaks unasked is never used again."""

from __future__ import annotations

import socket
from collections.abc import Callable

from sandpool.base.clock import Clock, Timer
from sandpool.router.line import Line
from sandpool.router.options import RouterOptions


class Upstreams:
    def __init__(self, options: RouterOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._spare: dict[str, list[tuple[Line, Timer]]] = {}
        self._count = 0

    def take(self, pool: str) -> Line | None:
        """The one that was used last, if it still is as it was left."""
        while spares := self._spare.get(pool):
            line, timer = spares.pop()
            self._count -= 1
            timer.cancel()
            if not spares:
                del self._spare[pool]
            line.watch(None)
            if quiet(line):
                return line
            line.close()
        return None

    def give(self, pool: str, line: Line) -> None:
        spares = self._spare.get(pool, ())
        if self._count >= self._options.all_spares or len(spares) >= self._options.spares or line.held:
            line.close()
            return
        drop = self._dropper(pool, line)
        timer = self._clock.call_later(self._options.spare, drop)
        self._spare.setdefault(pool, []).append((line, timer))
        self._count += 1
        line.watch(drop)

    def _dropper(self, pool: str, line: Line) -> Callable[[], None]:
        def drop() -> None:
            spares = self._spare.get(pool, [])
            for at, (spare, timer) in enumerate(spares):
                if spare is line:
                    timer.cancel()
                    del spares[at]
                    self._count -= 1
                    break
            if not spares:
                self._spare.pop(pool, None)
            line.close()

        return drop

    def close(self) -> None:
        for spares in self._spare.values():
            for line, timer in spares:
                timer.cancel()
                line.close()
        self._spare.clear()
        self._count = 0


def quiet(line: Line) -> bool:
    """Open, and nothing came on it."""
    if line.held or line.ended:
        return False
    try:
        line.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
