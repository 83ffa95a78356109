"""Where a body ends. Pure: readers find it in bytes that have come, writers say it in bytes that go.

A reader takes bytes and gives back those of the body and those behind it. What a chunk says beside its size, and trailers, are read
strictly and dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t -~\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*")
_LONGEST_LINE = 4096
_MOST_TRAILERS = 32


class BadBody(Exception):
    """It is not framed as it says, or it ends before its end."""


class Reader(Protocol):
    ended: bool

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Body, and what comes after the body once it has ended."""
        ...

    def cut(self) -> None:
        """No more bytes will come. Raises BadBody if some are missing."""
        ...


class Exact:
    """So many bytes."""

    def __init__(self, length: int) -> None:
        self.left = length
        self.ended = length == 0

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        if len(data) < self.left:
            self.left -= len(data)
            return data, b""
        body, rest = data[: self.left], data[self.left :]
        self.left = 0
        self.ended = True
        return body, rest

    def cut(self) -> None:
        if not self.ended:
            raise BadBody(f"the body ended {self.left} bytes too early")


class UntilClose:
    """Everything that comes."""

    ended = False

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        return data, b""

    def cut(self) -> None:
        self.ended = True


class Chunked:
    """Chunks, each behind its size."""

    def __init__(self) -> None:
        self.ended = False
        self.chunks = 0  # whose size was read
        self._line = b""  # of a size or a trailer, begun
        self._left = 0  # bytes of the chunk, then of the line end behind it
        self._trailers = -1  # -1: not there yet

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        if self._line:
            data, self._line = self._line + data, b""
        pieces = []
        at = 0
        while at < len(data) and not self.ended:
            if self._left > 2:
                piece = data[at : at + self._left - 2]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
            elif self._left:
                at = self._behind(data, at)
            else:
                at = self._next(data, at)
        return b"".join(pieces), data[at:]

    def cut(self) -> None:
        if not self.ended:
            raise BadBody("the body ended before its last chunk")

    def _behind(self, data: bytes, at: int) -> int:
        """The line end behind a chunk: one byte of it at a time, so that it may come in two pieces."""
        if data[at : at + 1] != (b"\r" if self._left == 2 else b"\n"):
            raise BadBody("a chunk is longer than it said")
        self._left -= 1
        return at + 1

    def _next(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        if (end if end >= 0 else len(data)) - at > _LONGEST_LINE:
            raise BadBody("a line between chunks is too long")
        if end < 0:
            self._line = data[at:]
            return len(data)
        if data[end - 1 : end] != b"\r" or end == at:
            raise BadBody("a line between chunks does not end as it must")
        self._understand(data[at : end - 1])
        return end + 1

    def _understand(self, line: bytes) -> None:
        if self._trailers >= 0:
            self._trailers += 1
            if not line:
                self.ended = True
            elif self._trailers > _MOST_TRAILERS or _TRAILER.fullmatch(line) is None:
                raise BadBody("a trailer is malformed")
            return
        found = _SIZE.fullmatch(line)
        if found is None:
            raise BadBody("a chunk has no size")
        self.chunks += 1
        size = int(found[1], 16)
        if size == 0:
            self._trailers = 0
        else:
            self._left = size + 2


def plain(piece: bytes, ended: bool) -> Sequence[bytes]:
    return (piece,) if piece else ()


def in_chunks(piece: bytes, ended: bool) -> Sequence[bytes]:
    if not piece:
        return (b"0\r\n\r\n",) if ended else ()
    return (b"%x\r\n" % len(piece), piece, b"\r\n0\r\n\r\n" if ended else b"\r\n")
