"""The body of a request, read as fast as it is used and no faster."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator
from typing import Any

from sandpool.boxd.http.straight import Straight
from sandpool.wire.codes import Code, Refused

PIECE = 256 * 1024
WORTH = 1 << 20
"""Bytes from which on it pays to leave the event loop's buffers out."""
_LONGEST_SIZE_LINE = 1024
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;|\Z)")


class Body:
    def __init__(self, reader: asyncio.StreamReader, length: int | None, straight: Straight | None = None) -> None:
        self._reader = reader
        self._left = length  # None: chunked
        self._straight = straight
        self._chunk = 0  # bytes left of the current chunk
        self.ended = length == 0

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        while not self.ended:
            piece = await (self._plain() if self._left is not None else self._chunked())
            if piece:
                yield piece

    async def read(self, most: int) -> bytes:
        """All of it, if it is not more than that."""
        parts: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            size += len(piece)
            if size > most:
                raise Refused(Code.TOO_LARGE, f"the body is longer than {most} bytes")
            parts.append(piece)
        return b"".join(parts)

    async def into(self, file: int) -> None:
        """All of it, written to an open file where that stands."""
        if self._straight is not None and self._left is not None and self._left >= WORTH:
            await self._straight.into(file, self._left)
            self._left, self.ended = 0, True
            return
        async for piece in self.pieces():
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(file, rest) :]

    async def value(self, most: int = 1 << 20) -> dict[str, Any]:
        """The JSON object that it is."""
        data = await self.read(most)
        try:
            # Arguments and names of files may be any bytes: they travel as they are and survive as surrogates.
            value = json.loads(data.decode("utf-8", "surrogateescape") or "{}")
        except (ValueError, RecursionError) as error:
            raise Refused(Code.INVALID, f"the body is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise Refused(Code.INVALID, "the body must be a JSON object")
        return value

    async def _plain(self) -> bytes:
        assert self._left is not None
        piece = await self._some(min(self._left, PIECE))
        self._left -= len(piece)
        self.ended = self._left == 0
        return piece

    async def _chunked(self) -> bytes:
        if self._chunk == 0:
            line = await self._line()
            size = _SIZE.match(line)
            if size is None:
                raise Refused(Code.INVALID, "a chunk has no size")
            self._chunk = int(size[1], 16)
            if self._chunk == 0:
                while await self._line():  # trailers, which nobody needs
                    pass
                self.ended = True
                return b""
        piece = await self._some(min(self._chunk, PIECE))
        self._chunk -= len(piece)
        if self._chunk == 0 and await self._line():
            raise Refused(Code.INVALID, "a chunk is longer than it said")
        return piece

    async def _some(self, most: int) -> bytes:
        piece = await self._reader.read(most)
        if not piece:
            raise ConnectionResetError("the client went away in the middle of a body")
        return piece

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readuntil(b"\r\n")
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the client went away in the middle of a body") from None
        except asyncio.LimitOverrunError:
            raise Refused(Code.INVALID, "a line between chunks is too long") from None
        if len(line) > _LONGEST_SIZE_LINE:
            raise Refused(Code.INVALID, "a line between chunks is too long")
        return line[:-2]
