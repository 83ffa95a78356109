"""Copies bytes from one connection to another: one body, or both ways after an upgrade, at the speed of the slower side.

At most one piece is in memory. Long plain bodies are spliced through a pipe inside the kernel. Tenants take turns: neither a thousand
bodies of one tenant, nor a body in one-byte chunks, delays others.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sandpool.base.clock import Clock
from sandpool.base.turns import BYTES, Carried, Portions
from sandpool.router.cancel_scope import CancelScope
from sandpool.router.connection import Connection
from sandpool.wire.http_body import BadBody, Chunked, Exact, Reader

_SHORT = 256
"""Bytes that are parsed without waiting for a turn."""

Turn = Callable[[int], Awaitable[None]]
"""Waits for the tenant's turn to have so many bytes parsed."""


async def copy_body(
    source: Connection,
    body: Reader,
    sink: Connection,
    framed: Callable[[bytes, bool], Sequence[bytes]],
    meter: Meter,
    turn: Turn,
    head: bytes = b"",
) -> None:
    """Copies one body. `head` goes first: with the first piece if that has arrived already, else alone and at once."""
    if head and (body.ended or not source.held):
        await _write(sink, (head,))
        head = b""
    carried = Carried()
    portions = None if isinstance(body, Exact) else Portions()
    raw = not source.secure and not sink.secure
    while not body.ended:
        if raw and isinstance(body, Exact) and body.left >= WORTH and not source.held:
            raw = False  # it moves all or nothing
            body.left -= await splice(source, sink, body.left, meter, turn)
            body.ended = body.left == 0
            continue
        piece = await _read(source, body) if portions is None else await _portion(source, body, portions, turn)
        parts = framed(piece, body.ended)
        if head:
            parts, head = (head, *parts), b""
        if parts:
            await _write(sink, parts)
        meter.bytes += len(piece)
        if portions is None and carried.due(len(piece)):
            await turn(BYTES)


async def _read(source: Connection, body: Reader) -> bytes:
    try:
        data = await source.read()
    except OSError as error:
        raise ReadFailed(str(error)) from error
    return _taken(source, body, data)


def _taken(source: Connection, body: Reader, data: bytes) -> bytes:
    try:
        if not data:
            body.cut()
            return b""
        piece, rest = body.take(data)
    except BadBody as error:
        raise ReadFailed(str(error)) from error
    source.held = rest + source.held if rest else source.held
    return piece


async def _portion(source: Connection, body: Reader, portions: Portions, turn: Turn) -> bytes:
    """As much as may be parsed at once; the rest waits."""
    try:
        data = await source.read()
    except OSError as error:
        raise ReadFailed(str(error)) from error
    size = portions.cut(len(data))
    if size > _SHORT:
        await turn(portions.weight)
    source.held = data[size:] + source.held
    before = body.chunks if isinstance(body, Chunked) else 0
    piece = _taken(source, body, data[:size])
    portions.found(body.chunks - before if isinstance(body, Chunked) else 0)
    return piece


async def _write(sink: Connection, parts: Sequence[bytes]) -> None:
    try:
        await sink.write(*parts)
    except OSError as error:
        raise WriteFailed(str(error)) from error


WORTH = 256 * 1024
"""Bytes from which on splicing is worth a pipe."""
_PIPE = 1 << 20
_FLAGS = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class ReadFailed(Exception):
    """The sender hung up, or did not send the announced body."""


class WriteFailed(Exception):
    """The receiver hung up."""


@dataclass(slots=True)
class Meter:
    """Counts the bytes of one direction of one request."""

    bytes: int = 0


async def splice(source: Connection, sink: Connection, length: int, meter: Meter, turn: Turn) -> int:
    """Moves bytes between plain sockets inside the kernel. Returns how many: all of them, or none where the kernel cannot do it."""
    try:
        outlet, inlet = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0  # no descriptors are left: copy without a pipe
    try:
        return await _Pipe(source, sink, inlet, outlet, meter, turn).move(length)
    finally:
        os.close(outlet)
        os.close(inlet)


class _Pipe:
    def __init__(
        self,
        source: Connection,
        sink: Connection,
        inlet: int,
        outlet: int,
        meter: Meter,
        turn: Turn,
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


class Ended(Exception):
    """One side has closed, and the other one did not follow in time."""


async def tunnel(
    client: Connection, upstream: Connection, received: Meter, sent: Meter, clock: Clock, patience: float, turn: Turn
) -> None:
    """Copies both ways until both sides have closed or one fails. `patience`: seconds for the second side once the first has closed.
    The caller closes the connections."""
    scope = CancelScope(clock)

    async def forth(source: Connection, sink: Connection, meter: Meter) -> None:
        await pour(source, sink, meter, turn)
        if not sink.end():
            raise Ended  # TLS has no half-close
        scope.limit(patience, Ended())

    with suppress(Ended), scope:
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(forth(client, upstream, received))
                both.create_task(forth(upstream, client, sent))
        except* (OSError, Ended):
            pass


async def pour(source: Connection, sink: Connection, meter: Meter, turn: Turn) -> None:
    carried = Carried()
    while data := await source.read():
        await sink.write(data)
        meter.bytes += len(data)
        if carried.due(len(data)):
            await turn(BYTES)
