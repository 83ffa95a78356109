"""Moves bytes from one plain socket to another inside the kernel, through a pipe."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandpool.base.portions import Carried
from sandpool.base.turns import BYTES
from sandpool.router.line import Line

WORTH = 256 * 1024
"""From so many bytes on a pipe pays."""
_PIPE = 1 << 20
_FLAGS = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class ReadFailed(Exception):
    """The side that sends has gone, or does not send what it announced."""


class WriteFailed(Exception):
    """The side that receives has gone."""


@dataclass(slots=True)
class Meter:
    """Counts one way of one request."""

    bytes: int = 0


async def splice(source: Line, sink: Line, length: int, meter: Meter, turn: Callable[[int], Awaitable[None]]) -> int:
    """Returns how many bytes were moved: all of them, or none where the kernel cannot do it."""
    try:
        outlet, inlet = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0  # no descriptors are left; there is a way without
    try:
        return await _Pipe(source, sink, inlet, outlet, meter, turn).move(length)
    finally:
        os.close(outlet)
        os.close(inlet)


class _Pipe:
    def __init__(
        self,
        source: Line,
        sink: Line,
        inlet: int,
        outlet: int,
        meter: Meter,
        turn: Callable[[int], Awaitable[None]],
    ) -> None:
        self._source = source
        self._sink = sink
        self._inlet = inlet
        self._outlet = outlet
        self._meter = meter
        self._turn = turn
        self._able = False  # until it has worked once
        try:
            self._room = fcntl.fcntl(inlet, fcntl.F_SETPIPE_SZ, _PIPE)
        except OSError:  # the user's share of memory for pipes is used up
            self._room = fcntl.fcntl(inlet, fcntl.F_GETPIPE_SZ)

    async def move(self, length: int) -> int:
        left, inside, carried = length, 0, Carried()
        while left or inside:
            taken = self._fill(min(left, self._room - inside)) if left else None
            if taken is None and not inside:
                await self._source.readable()
                continue
            if taken == -1:
                return 0
            left -= taken or 0
            inside += taken or 0
            given = self._drain(inside)
            if given == 0:
                await self._sink.writable()
            inside -= given
            self._meter.bytes += given
            if carried.due(given):
                await self._turn(BYTES)
        return length

    def _fill(self, most: int) -> int | None:
        """Bytes that went into the pipe; None: not now; -1: never."""
        if most <= 0:
            return None
        try:
            taken = os.splice(self._source.sock.fileno(), self._inlet, most, flags=_FLAGS)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in _UNABLE and not self._able:
                return -1
            raise ReadFailed(str(error)) from error
        self._able = True
        if taken == 0:
            self._source.ended = True
            raise ReadFailed("the body ended too early")
        return taken

    def _drain(self, inside: int) -> int:
        try:
            return os.splice(self._outlet, self._sink.sock.fileno(), inside, flags=_FLAGS)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise WriteFailed(str(error)) from error
