"""Relays bytes between two sockets in both directions, with back pressure, rate limits and idle timeouts.

It buffers at most one chunk per direction, and passes on the end of each direction. The caller still owns the sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

from sandpool.base.clock import Clock, Timer
from sandpool.base.rate_limit import TokenBucket
from sandpool.base.turns import BYTES, Carried

PIECE = 64 * 1024

Pace = Callable[[int], Awaitable[None]]
"""Waits until that many bytes may pass."""


class Throttle:
    """A rate limit with a burst. Callers above the rate wait, in the order of arrival. A request larger than the burst waits until it is paid off."""

    def __init__(self, clock: Clock, rate: float, burst: float) -> None:
        self._clock = clock
        self._bucket = TokenBucket(rate, burst)
        self._turn = asyncio.Lock()

    async def take(self, amount: float) -> None:
        async with self._turn:
            wait = self._bucket.spend(self._clock.monotonic(), amount)
            if wait > 0:
                await self._clock.sleep(wait)


class InTurn:
    """The pace of one connection that takes turns with others. Each chunk has a minimum cost, so that one-byte chunks are not free."""

    def __init__(self, turn: Pace, pace: Pace) -> None:
        self._turn = turn
        self._pace = pace
        self._carried = Carried()

    async def __call__(self, size: int) -> None:
        if self._carried.due(size):
            await self._turn(BYTES)
        await self._pace(size)


class Idle:
    """A context manager that cancels the current task after `seconds` without a call of `touch`. `passed` says whether that happened."""

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
            return self._task.uncancel() == 0  # if nobody else cancelled the task, the block just ends
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
    """Copies until the source ends, then shuts down the target for writing."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, PIECE):
        touch()
        await pace(len(data))
        await loop.sock_sendall(target, data)
        touch()
    finish(target)


async def relay(left: socket.socket, right: socket.socket, touch: Callable[[], None], pace: Pace = freely) -> None:
    """Copies both ways until both directions have ended. If one breaks, resets both connections and raises OSError."""
    try:
        await both(pump(left, right, touch, pace), pump(right, left, touch, pace))
    except OSError:
        reset(left)
        reset(right)
        raise


async def both(*works: Awaitable[None]) -> None:
    """Runs awaitables concurrently. If one fails, cancels the others."""
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
    """Shuts down the socket for writing."""
    with contextlib.suppress(OSError):  # it may be gone already
        target.shutdown(socket.SHUT_WR)


def reset(connection: socket.socket) -> None:
    """Makes the following close send a reset: the peer must not take partial data for complete."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def prompt(connection: socket.socket) -> None:
    """Makes a socket non-blocking, with keepalive and, for TCP, without delays (TCP_NODELAY)."""
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
