"""Strict HTTP/1.1 syntax for the egress proxy: heads, chunked bodies, and the proxy's own error responses.

It is as strict as wire/http_head.py: anything that two parsers could read in two ways is refused, so that the origin never reads a
request differently than the proxy did. Parsing is pure; only `Reader` touches a socket.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable
from http import HTTPStatus

from sandpool.node.network.relay import PIECE
from sandpool.wire.http_head import END, BadHead, fields


class Refusal(Exception):
    """A request that the proxy refuses. `reason` is one word for metrics, the message is for the client."""

    def __init__(self, status: HTTPStatus, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


def malformed(message: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "Malformed", message)


def answer(refusal: Refusal) -> bytes:
    body = f"sandpool: {refusal.message}\n".encode()
    return (
        f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body


Headers = tuple[tuple[str, bytes], ...]
"""Names in lower case, values unchanged."""

MAX_HEAD = 32 * 1024
MAX_HEADERS = 100
MAX_NAME = 256
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"),
        *("proxy-authentication-info", "te", "upgrade", "http2-settings"),
    }
)
_FRAMING = frozenset({"content-length", "transfer-encoding"})


def split(head: bytes) -> tuple[bytes, Headers]:
    """Splits a head, given without its final empty line, into the first line and the headers."""
    first, ended, block = head.partition(b"\r\n")
    block += ended
    if block.count(b"\r\n") > MAX_HEADERS:
        raise malformed(f"more than {MAX_HEADERS} headers; send fewer")
    try:
        found = fields(block)
        if any(len(name) > MAX_NAME for name, _ in found):
            raise BadHead("a name is too long")
    except BadHead:
        raise malformed("a header is not `name: value`, or has a character that no header may have") from None
    return first, tuple((name.decode(), value) for name, value in found)


def values(headers: Headers, name: str) -> list[bytes]:
    return [value for each, value in headers if each == name]


def length(headers: Headers) -> int | None:
    """The Content-Length; None if there is none."""
    found = values(headers, "content-length")
    if not found:
        return None
    if len(found) > 1 or not re.fullmatch(rb"[0-9]{1,18}", found[0]):
        raise malformed("Content-Length must occur once and be a number")
    return int(found[0])


def chunked(headers: Headers) -> bool:
    found = values(headers, "transfer-encoding")
    if not found:
        return False
    if len(found) > 1 or found[0].lower() != b"chunked":
        raise malformed("Transfer-Encoding may only be chunked, and only once")
    if values(headers, "content-length"):
        raise malformed("Content-Length and Transfer-Encoding exclude each other; send one of them")
    return True


def end_to_end(headers: Headers, besides: Iterable[str] = ()) -> Headers:
    """The headers without hop-by-hop ones and without `besides`. Headers about the length of the body stay."""
    named = {
        word.strip().decode("ascii", "replace").lower()
        for value in values(headers, "connection")
        for word in value.split(b",")
    }
    gone = (_HOP | {word for word in named if _TOKEN.fullmatch(word)} - _FRAMING) | set(besides)
    return tuple((name, value) for name, value in headers if name not in gone)


def joined(first: bytes, headers: Iterable[tuple[str, bytes]]) -> bytes:
    return b"".join((first, b"\r\n", *(b"%b: %b\r\n" % (name.encode(), value) for name, value in headers), b"\r\n"))


_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_LINE = 4096
_MAX_TRAILERS = 32 * 1024


class Chunks:
    """Parses a chunked body. `feed` returns how many bytes of the data belong to it; after `ended`, none do."""

    def __init__(self) -> None:
        self.ended = False
        self.found = 0  # chunks so far
        self._left = 0  # bytes left of a chunk, with its line end
        self._line = b""  # an incomplete line
        self._trailing = False  # whether the last chunk has been read
        self._trailers = 0

    def feed(self, data: bytes) -> int:
        at = 0
        while at < len(data) and not self.ended:
            if self._left > 0:
                at += self._content(data, at)
            else:
                at += self._piece(data, at)
        return at

    def _content(self, data: bytes, at: int) -> int:
        taken = min(self._left, len(data) - at)
        ending = data[at + max(0, self._left - 2) : at + taken]  # the part of it that is the line end
        expected = b"\r\n"[2 - min(self._left, 2) :][: len(ending)]
        if ending != expected:
            raise malformed("a chunk of the body does not end where it says")
        self._left -= taken
        return taken

    def _piece(self, data: bytes, at: int) -> int:
        """Consumes up to the end of a line, or everything."""
        stop = data.find(b"\n", at)
        taken = (len(data) if stop < 0 else stop + 1) - at
        self._line += data[at : at + taken]
        if len(self._line) > _MAX_LINE:
            raise malformed("a line between the chunks of the body is too long")
        if stop >= 0:
            line, self._line = self._line, b""
            if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
                raise malformed("a line between the chunks of the body does not end in CR LF")
            self._complete(line[:-2])
        return taken

    def _complete(self, line: bytes) -> None:
        if self._trailing:
            self._trailers += len(line)
            if self._trailers > _MAX_TRAILERS:
                raise malformed("the trailers of the body are too long")
            self.ended = not line
            return
        found = _SIZE.fullmatch(line)
        if found is None:
            raise malformed("a chunk of the body has no valid size")
        self.found += 1
        size = int(found[1], 16)
        self._trailing = size == 0
        self._left = size + 2 if size else 0


_AT_ONCE = 8 * 1024  # bytes per read until the head is complete


class Reader:
    """Reads heads of bounded size from a socket; bytes after the head are kept for the body."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._kept = b""

    async def head(self) -> bytes:
        """Reads a head; returns it without its final empty line. Empty if the peer closed without sending anything.
        Refusal if it is too long, EOFError if it is incomplete."""
        loop = asyncio.get_running_loop()
        data = bytearray(self._kept)
        searched = 0
        while (at := data.find(END, searched)) < 0:
            if len(data) > MAX_HEAD:
                break
            searched = max(0, len(data) - len(END) + 1)
            more = await loop.sock_recv(self._connection, _AT_ONCE)
            if not more:
                if data:
                    raise EOFError
                return b""
            data += more
        if at < 0 or at > MAX_HEAD:
            raise Refusal(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                "Malformed",
                f"the head is longer than {MAX_HEAD // 1024} KiB; send fewer or shorter headers",
            )
        self._kept = bytes(data[at + len(END) :])
        return bytes(data[:at])

    def kept(self) -> bytes:
        """Bytes received after the head that were not consumed yet."""
        kept, self._kept = self._kept, b""
        return kept

    def put_back(self, data: bytes) -> None:
        """Returns bytes to the buffer; they are read again first."""
        self._kept = data + self._kept

    async def some(self) -> bytes:
        """The next bytes; empty at the end."""
        return self.kept() or await asyncio.get_running_loop().sock_recv(self._connection, PIECE)
