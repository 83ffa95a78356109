"""Carries one body from one line to another, at the speed of the slower, holding one piece of it at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sandpool.router.body import BadBody, Exact, Reader
from sandpool.router.line import Line
from sandpool.router.splice import WORTH, Meter, ReadFailed, WriteFailed, splice

TURN = 1 << 20
"""Bytes after which others have a turn, however much there still is."""
_WORK = TURN // 2
"""What a piece counts that has to be taken apart, however small."""


async def carry(
    source: Line,
    body: Reader,
    sink: Line,
    framed: Callable[[bytes, bool], Sequence[bytes]],
    meter: Meter,
    head: bytes = b"",
) -> None:
    """`head` goes first: with the first piece if that is already here, else alone and at once."""
    if head and (body.ended or not source.held):
        await _write(sink, (head,))
        head = b""
    spent = 0
    exact = isinstance(body, Exact)
    raw = not source.secure and not sink.secure
    while not body.ended:
        if raw and isinstance(body, Exact) and body.left >= WORTH and not source.held:
            raw = False  # it moves all or nothing
            body.left -= await splice(source, sink, body.left, meter)
            body.ended = body.left == 0
            continue
        piece = await _read(source, body)
        parts = framed(piece, body.ended)
        if head:
            parts, head = (head, *parts), b""
        if parts:
            await _write(sink, parts)
        meter.bytes += len(piece)
        spent += len(piece) if exact else _WORK
        if spent >= TURN:
            spent = 0
            await asyncio.sleep(0)


async def _read(source: Line, body: Reader) -> bytes:
    try:
        data = await source.read()
    except OSError as error:
        raise ReadFailed(str(error)) from error
    try:
        if not data:
            body.cut()
            return b""
        piece, rest = body.take(data)
    except BadBody as error:
        raise ReadFailed(str(error)) from error
    source.held = rest + source.held if rest else source.held
    return piece


async def _write(sink: Line, parts: Sequence[bytes]) -> None:
    try:
        await sink.write(*parts)
    except OSError as error:
        raise WriteFailed(str(error)) from error
