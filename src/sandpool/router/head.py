"""Parses the heads of requests and of responses. Pure.

As strict as wire/http_head.py; headers that affect a decision must not be repeated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandpool.router.values import Headers
from sandpool.wire.headers import REQUEST_ID, ROUTING
from sandpool.wire.http_head import TOKEN, BadHead, fields, framing

_REQUEST = re.compile(rb"(" + TOKEN + rb'{1,32}) (/[!"$-~]{0,16383}) HTTP/1\.([01])')
_RESPONSE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t -~\x80-\xff]*))?")

ONCE = frozenset(
    {b"content-length", b"transfer-encoding", b"host", b"authorization", b"origin", b"expect", b"upgrade"}
    | {b"sec-websocket-key", b"sec-websocket-version", REQUEST_ID.lower().encode()}
    | {name.encode() for name in ROUTING}
)
"""Headers that affect a decision: repeated, they would be ambiguous."""
_ONCE_IN_RESPONSES = frozenset({b"content-length", b"transfer-encoding", b"location", b"upgrade"})


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: bytes
    path: bytes
    minor: int  # HTTP/1.0 or HTTP/1.1
    headers: Headers
    length: int | None  # as the client gives it; None: not given
    chunked: bool
    keep: bool  # whether another request may follow
    upgrade: bytes = b""  # the protocol to upgrade to, in lower case
    expects: bool = False  # waits for a 100 before it sends the body
    nominated: frozenset[bytes] = frozenset()  # hop-by-hop headers

    @property
    def bodyless(self) -> bool:
        return not self.chunked and not self.length


@dataclass(frozen=True, slots=True)
class ResponseHead:
    status: int
    reason: bytes
    headers: Headers
    length: int | None
    chunked: bool
    keep: bool
    upgrade: bytes = b""
    nominated: frozenset[bytes] = frozenset()


def parse_request(data: bytes, most_headers: int = 128) -> RequestHead:
    """`data` is everything before the empty line, with the line end of its last line."""
    line, block = _first_line(data)
    found = _REQUEST.fullmatch(line)
    if found is None:
        raise BadHead("this is not an HTTP/1.1 request for a path")
    method, path, minor = found[1], found[2], int(found[3])
    headers = _fields(block, most_headers, ONCE)
    known = dict(headers)
    if b"host" not in known and minor == 1:
        raise BadHead("the header Host is missing")
    length, chunked = framing(known.get(b"content-length"), known.get(b"transfer-encoding"), chunks=minor == 1)
    expect = known.get(b"expect")
    if expect is not None and expect.lower() != b"100-continue":
        raise BadHead("only 100-continue can be expected", 417)
    tokens = _connection(headers)
    upgrading = b"upgrade" in tokens and minor == 1 and not chunked and not length
    return RequestHead(
        method,
        path,
        minor,
        headers,
        length,
        chunked,
        keep=minor == 1 and b"close" not in tokens,
        upgrade=known.get(b"upgrade", b"").lower() if upgrading else b"",
        expects=expect is not None and minor == 1,
        nominated=tokens,
    )


def parse_response(data: bytes, most_headers: int = 128) -> ResponseHead:
    line, block = _first_line(data)
    found = _RESPONSE.fullmatch(line)
    if found is None:
        raise BadHead("this is not an HTTP/1.1 response")
    minor, status = int(found[1]), int(found[2])
    headers = _fields(block, most_headers, _ONCE_IN_RESPONSES)
    known = dict(headers)
    length, chunked = framing(known.get(b"content-length"), known.get(b"transfer-encoding"), chunks=minor == 1)
    tokens = _connection(headers)
    keep = b"close" not in tokens and (minor == 1 or b"keep-alive" in tokens)
    upgrade = known.get(b"upgrade", b"").lower() if b"upgrade" in tokens else b""
    return ResponseHead(status, found[3] or b"", headers, length, chunked, keep, upgrade, tokens)


def _first_line(data: bytes) -> tuple[bytes, bytes]:
    line, _, block = data.partition(b"\r\n")
    return line, block


def _fields(block: bytes, most: int, once: frozenset[bytes]) -> Headers:
    headers = fields(block)
    if len(headers) > most:
        raise BadHead(f"there are more than {most} headers", 431)
    seen = set()
    for name, _ in headers:
        if name in once:
            if name in seen:
                raise BadHead(f"the header {name.decode()} is there twice")
            seen.add(name)
    return tuple(headers)


def _connection(headers: Headers) -> frozenset[bytes]:
    """What the headers named Connection list, in lower case."""
    return frozenset(
        token.strip(b" \t").lower() for name, value in headers if name == b"connection" for token in value.split(b",")
    )
