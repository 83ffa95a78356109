"""Bodies in chunks: sizes that could be read in two ways are refused."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.boxd.http.body import Body
from sandpool.wire.codes import Refused


async def read(data: bytes) -> bytes:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return await Body(reader, None).read(1 << 20)


@pytest.mark.parametrize("size", [b"3", b"03", b"3;x=y", b"3 ; x"])
async def test_sizes(size: bytes) -> None:
    assert await read(size + b"\r\nabc\r\n0\r\n\r\n") == b"abc"


@pytest.mark.parametrize("size", [b"-1", b"+3", b"0x3", b"0_3", b"", b" 3", b"\xb3", b"g", b"-0", b"3" * 20])
async def test_sizes_that_are_none(size: bytes) -> None:
    with pytest.raises(Refused, match="size"):
        await read(size + b"\r\nabc\r\n0\r\n\r\n")
