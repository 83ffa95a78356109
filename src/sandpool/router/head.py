"""The heads of requests and of responses, from bytes. Pure.

Strict where leniency lets two readers see two different messages: one length or none, no folded lines, no bare line feeds, nothing
twice that somebody decides by. What is not understood is refused, never repaired.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandpool.router.values import Headers
from sandpool.wire.headers import REQUEST_ID, ROUTING

END = b"\r\n\r\n"

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST = re.compile(rb"(" + _TOKEN + rb'{1,32}) (/[!"$-~]{0,16383}) HTTP/1\.([01])')
_RESPONSE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t -~\x80-\xff]*))?")
_FIELDS = re.compile(rb"(?:" + _TOKEN + rb"++:[\t -~\x80-\xff]*+\r\n)*+")
_NUMBER = re.compile(rb"[0-9]{1,18}")

ONCE = frozenset(
    {b"content-length", b"transfer-encoding", b"host", b"authorization", b"origin", b"expect", b"upgrade"}
    | {b"sec-websocket-key", b"sec-websocket-version", REQUEST_ID.lower().encode()}
    | {name.encode() for name in ROUTING}
)
"""Headers that decide something: repeated, they could be read in two ways."""
_ONCE_IN_RESPONSES = frozenset({b"content-length", b"transfer-encoding", b"location", b"upgrade"})


class BadHead(Exception):
    """A message that is not carried on. For a request, the status that its sender gets."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: bytes
    path: bytes
    minor: int  # HTTP/1.0 or HTTP/1.1
    headers: Headers
    length: int | None  # as the client says; None: it does not
    chunked: bool
    keep: bool  # whether another request may follow
    upgrade: bytes = b""  # the protocol to go on with, in lower case
    expects: bool = False  # waits for a 100 before it sends the body
    nominated: frozenset[bytes] = frozenset()  # headers that are only for us

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
    length, chunked = _framing(known, minor)
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
    length, chunked = _framing(known, minor)
    tokens = _connection(headers)
    keep = b"close" not in tokens and (minor == 1 or b"keep-alive" in tokens)
    upgrade = known.get(b"upgrade", b"").lower() if b"upgrade" in tokens else b""
    return ResponseHead(status, found[3] or b"", headers, length, chunked, keep, upgrade, tokens)


def _first_line(data: bytes) -> tuple[bytes, bytes]:
    line, _, block = data.partition(b"\r\n")
    return line, block


def _fields(block: bytes, most: int, once: frozenset[bytes]) -> Headers:
    if _FIELDS.fullmatch(block) is None:
        raise BadHead("a header is malformed")
    lines = block.split(b"\r\n")
    if len(lines) - 1 > most:
        raise BadHead(f"there are more than {most} headers", 431)
    headers = []
    seen = set()
    for line in lines[:-1]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in once:
            if name in seen:
                raise BadHead(f"the header {name.decode()} is there twice")
            seen.add(name)
        headers.append((name, value.strip(b" \t")))
    return tuple(headers)


def _framing(known: dict[bytes, bytes], minor: int) -> tuple[int | None, bool]:
    length, encoding = known.get(b"content-length"), known.get(b"transfer-encoding")
    if encoding is not None:
        if length is not None or minor == 0 or encoding.lower() != b"chunked":
            raise BadHead("the length of the body is ambiguous; send Content-Length or chunks")
        return None, True
    if length is None:
        return None, False
    if _NUMBER.fullmatch(length) is None:
        raise BadHead("Content-Length is not a number")
    return int(length), False


def _connection(headers: Headers) -> frozenset[bytes]:
    """What the headers named Connection list, in lower case."""
    return frozenset(
        token.strip(b" \t").lower() for name, value in headers if name == b"connection" for token in value.split(b",")
    )
