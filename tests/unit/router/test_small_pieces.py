"""What is carried in pieces of one byte takes turns by their number, not by their bytes."""

from __future__ import annotations

from typing import cast

from sandpool.base.turns import CARRIED, SMALLEST
from sandpool.router.connection import Connection
from sandpool.router.relay import Meter, copy_body, pour
from sandpool.wire.http_body import Exact, plain

PIECES = 1000


class Dripping:
    """A line on which so many pieces of one byte come, and that takes everything."""

    secure = True
    held = b""

    def __init__(self, pieces: int) -> None:
        self._left = pieces
        self.taken = 0

    async def read(self) -> bytes:
        self._left -= 1
        return b"x" if self._left >= 0 else b""

    async def write(self, *parts: bytes) -> None:
        self.taken += sum(map(len, parts))


async def turns_of(pieces: int, *, tunnel: bool) -> int:
    source, sink, meter, turns = Dripping(pieces), Dripping(0), Meter(), list[int]()

    async def turn(size: int) -> None:
        turns.append(size)

    lines = cast(Connection, source), cast(Connection, sink)
    if tunnel:
        await pour(*lines, meter, turn)
    else:
        await copy_body(lines[0], Exact(pieces), lines[1], plain, meter, turn)
    assert (sink.taken, meter.bytes) == (pieces, pieces)
    return len(turns)


async def test_a_tunnel() -> None:
    assert await turns_of(PIECES, tunnel=True) >= PIECES * SMALLEST // CARRIED


async def test_a_body() -> None:
    assert await turns_of(PIECES, tunnel=False) >= PIECES * SMALLEST // CARRIED


async def test_one_piece_asks_nobody() -> None:
    assert await turns_of(1, tunnel=True) == await turns_of(1, tunnel=False) == 0
