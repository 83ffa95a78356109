"""Carries one body from one line to another, at the speed of the slower, holding one piece of it at most.

Tenants carry theirs in turn: neither a thousand bodies of one, nor one in chunks of a byte each, keep others waiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from sandpool.base.portions import Carried, Portions
from sandpool.base.turns import BYTES
from sandpool.router.body import BadBody, Chunked, Exact, Reader
from sandpool.router.line import Line
from sandpool.router.splice import WORTH, Meter, ReadFailed, WriteFailed, splice

_SHORT = 256
"""Bytes that are taken apart without asking."""

Turn = Callable[[int], Awaitable[None]]
"""Waits for the tenant's turn to have so many bytes taken apart."""


async def carry(
    source: Line,
    body: Reader,
    sink: Line,
    framed: Callable[[bytes, bool], Sequence[bytes]],
    meter: Meter,
    turn: Turn,
    head: bytes = b"",
) -> None:
    """`head` goes first: with the first piece if that is already here, else alone and at once."""
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


async def _read(source: Line, body: Reader) -> bytes:
    try:
        data = await source.read()
    except OSError as error:
        raise ReadFailed(str(error)) from error
    return _taken(source, body, data)


def _taken(source: Line, body: Reader, data: bytes) -> bytes:
    try:
        if not data:
            body.cut()
            return b""
        piece, rest = body.take(data)
    except BadBody as error:
        raise ReadFailed(str(error)) from error
    source.held = rest + source.held if rest else source.held
    return piece


async def _portion(source: Line, body: Reader, portions: Portions, turn: Turn) -> bytes:
    """As much as may be taken apart at once; the rest waits."""
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


async def _write(sink: Line, parts: Sequence[bytes]) -> None:
    try:
        await sink.write(*parts)
    except OSError as error:
        raise WriteFailed(str(error)) from error
