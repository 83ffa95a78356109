"""Bytes both ways after an upgrade, until both sides have ended or one of them breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sandpool.base.clock import Clock
from sandpool.base.portions import Carried
from sandpool.base.turns import BYTES
from sandpool.router.line import Line
from sandpool.router.scope import Scope
from sandpool.router.splice import Meter


class Ended(Exception):
    """One side has ended, and the other one did not follow."""


Turn = Callable[[int], Awaitable[None]]


async def tunnel(
    client: Line, upstream: Line, received: Meter, sent: Meter, clock: Clock, patience: float, turn: Turn
) -> None:
    """`patience`: seconds for the second side once the first has ended. Closing the lines is the caller's."""
    scope = Scope(clock)

    async def forth(source: Line, sink: Line, meter: Meter) -> None:
        await _pour(source, sink, meter, turn)
        if not sink.end():
            raise Ended  # it cannot be told that only one half has ended
        scope.limit(patience, Ended())

    with suppress(Ended), scope:
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(forth(client, upstream, received))
                both.create_task(forth(upstream, client, sent))
        except* (OSError, Ended):
            pass


async def _pour(source: Line, sink: Line, meter: Meter, turn: Turn) -> None:
    carried = Carried()
    while data := await source.read():
        await sink.write(data)
        meter.bytes += len(data)
        if carried.due(len(data)):
            await turn(BYTES)
