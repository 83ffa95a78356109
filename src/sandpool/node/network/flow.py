"""Bytes between two sockets: both ways, each side as fast as the other takes them, ends passed on one by one.

Nothing is buffered beyond one piece for each direction. The sockets stay the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

from sandpool.base.clock import Clock, Timer
from sandpool.base.portions import Carried
from sandpool.base.turns import BYTES

PIECE = 64 * 1024

Pace = Callable[[int], Awaitable[None]]
"""Waits until that many bytes may pass."""


class InTurn:
    """A pace of one connection that leaves others their turn: pieces of one byte cost by their number."""

    def __init__(self, turn: Pace, pace: Pace) -> None:
        self._turn = turn
        self._pace = pace
        self._carried = Carried()

    async def __call__(self, size: int) -> None:
        if self._carried.due(size):
            await self._turn(BYTES)
        await self._pace(size)


class Idle:
    """Cancels the task that made it after so many seconds in which nobody called `touch`. Use it as a context."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None
        self._last = 0.0
        self.passed = False

    def touch(self) -> None:
        self._last = self._clock.monotonic()

    def __enter__(self) -> Idle:
        self._task = asyncio.current_task()
        self.touch()
        self._timer = self._clock.call_later(self._seconds, self._look)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if self.passed and kind is asyncio.CancelledError and self._task is not None:
            return self._task.uncancel() == 0  # nobody else cancelled it: the context just ends
        return False

    def _look(self) -> None:
        left = self._last + self._seconds - self._clock.monotonic()
        if left > 0:
            self._timer = self._clock.call_later(left, self._look)
        elif self._task is not None:
            self.passed = True
            self._task.cancel()


async def freely(_: int) -> None:
    """A pace that never waits."""


async def pump(source: socket.socket, target: socket.socket, touch: Callable[[], None], pace: Pace = freely) -> None:
    """Everything until the source ends, and then the end itself."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, PIECE):
        touch()
        await pace(len(data))
        await loop.sock_sendall(target, data)
        touch()
    finish(target)


async def relay(left: socket.socket, right: socket.socket, touch: Callable[[], None], pace: Pace = freely) -> None:
    """Until both directions have ended, or one of them broke: then it breaks for both sides, and OSError is raised."""
    try:
        await both(pump(left, right, touch, pace), pump(right, left, touch, pace))
    except OSError:
        reset(left)
        reset(right)
        raise


async def both(*works: Awaitable[None]) -> None:
    """Runs them side by side; when one fails, the others are given up."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def finish(target: socket.socket) -> None:
    """Nothing more will be written."""
    with contextlib.suppress(OSError):  # it may be gone already
        target.shutdown(socket.SHUT_WR)


def reset(connection: socket.socket) -> None:
    """The close that follows is no orderly end: the other side must not take what it has for everything."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def prompt(connection: socket.socket) -> None:
    """Sends at once, and notices a peer that is gone. Sockets that are no TCP do without."""
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
