"""HTTP/1.1 body framing. Pure: readers find the end of a body in received bytes, writers frame bytes to send.

A reader takes bytes and returns those of the body and those after it. Chunk extensions and trailers are parsed strictly and dropped.
Two other parsers of chunks exist: boxd reads them from its stream and is more lenient (boxd/http/body.py), and the egress proxy passes
them on unchanged, trailers included (node/network/egress/http1.py).
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
    """The body is not framed as declared, or ends too early."""


class Reader(Protocol):
    ended: bool

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns the bytes of the body and, once it has ended, the bytes after it."""
        ...

    def cut(self) -> None:
        """Call when the connection has ended. Raises BadBody if the body is incomplete."""
        ...


class Exact:
    """A body with a Content-Length."""

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
    """A body that ends when the connection closes."""

    ended = False

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        return data, b""

    def cut(self) -> None:
        self.ended = True


class Chunked:
    """A body with Transfer-Encoding: chunked."""

    def __init__(self) -> None:
        self.ended = False
        self.chunks = 0  # how many chunk sizes were read
        self._line = b""  # an incomplete line: a chunk size or a trailer
        self._left = 0  # bytes left of the chunk and the line end after it
        self._trailers = -1  # trailer lines read; -1: the last chunk has not come yet

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
        """Consumes one byte of the line end after a chunk; the two bytes may arrive separately."""
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
