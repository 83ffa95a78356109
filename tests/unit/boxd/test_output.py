"""Output: nobody who follows loses a byte; without readers only the newest part is kept."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from hypothesis import given
from hypothesis import strategies as st

from sandpool.boxd.processes.output import Lost, Output, Piece
from sandpool.wire.frames import Kind


async def collect(output: Output, position: int = 0, *, wait: bool = False) -> tuple[bytes, int]:
    said, lost = b"", 0
    async with aclosing(output.follow(position, wait=wait)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Lost):
                lost += piece.size
            else:
                said += piece.data
    return said, lost


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=30), st.integers(1, 50), st.integers(0, 400))
async def test_a_late_reader_gets_the_newest_and_is_told_what_is_gone(parts: list[bytes], keep: int, at: int) -> None:
    output = Output(keep)
    for part in parts:
        output.add(Kind.STDOUT, part)
    everything = b"".join(parts)
    at = min(at, len(everything))
    said, lost = await collect(output, at)
    assert everything[at:].endswith(said)
    assert lost + len(said) == len(everything) - at
    assert len(everything) - output.start >= min(keep, len(everything))


async def test_a_reader_that_is_behind_holds_the_process_back_and_loses_nothing() -> None:
    resumed: list[bool] = []
    output = Output(10, lambda: resumed.append(True))
    output.add(Kind.STDOUT, b"0")
    async with aclosing(output.follow(0)) as pieces:
        assert await anext(pieces) == Piece(0, Kind.STDOUT, b"0")
        output.add(Kind.STDOUT, b"12345678")
        assert not output.full
        output.add(Kind.STDOUT, b"abc")
        assert output.full
        assert await anext(pieces) == Piece(1, Kind.STDOUT, b"12345678")
        assert await anext(pieces) == Piece(9, Kind.STDOUT, b"abc")
        assert resumed
        assert not output.full


async def test_nothing_more_is_lost_while_a_late_reader_is_told_what_is_gone() -> None:
    output = Output(4)
    for part in (b"abcd", b"efgh", b"ij"):
        output.add(Kind.STDOUT, part)
    pieces = output.follow(0)
    lost = await anext(pieces)
    assert isinstance(lost, Lost)
    output.add(Kind.STDOUT, b"klmnopqrst")
    output.finish()
    rest = [piece.data async for piece in pieces if isinstance(piece, Piece)]
    assert lost.size + len(b"".join(rest)) == 20


async def test_a_reader_that_leaves_holds_nobody_back() -> None:
    output = Output(4)
    output.add(Kind.STDOUT, b"a")
    pieces = output.follow(0)
    await anext(pieces)
    output.add(Kind.STDOUT, b"bcdefgh")
    assert output.full
    await pieces.aclose()
    assert not output.full


async def test_followers_wait_for_more_and_end_with_it() -> None:
    output = Output(100)
    following = asyncio.ensure_future(collect(output, wait=True))
    for part in (b"one ", b"two"):
        await asyncio.sleep(0)
        output.add(Kind.STDERR, part)
    output.finish()
    assert await following == (b"one two", 0)


async def test_a_reader_may_come_back_in_the_middle_of_a_piece() -> None:
    output = Output(100)
    output.add(Kind.STDOUT, b"abcdef")
    assert await collect(output, 4) == (b"ef", 0)
