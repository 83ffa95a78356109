"""The head of a request, from bytes. Strict where leniency lets two readers see two different requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote_to_bytes

from sandpool.wire.codes import Code, Refused

LONGEST = 64 * 1024
MOST_HEADERS = 200

_LINE = re.compile(rb"([A-Z]{1,16}) ([!-~]{1,16384}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")


@dataclass(frozen=True, slots=True)
class Head:
    method: str
    path: str  # decoded, as text in which undecodable bytes survive
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    length: int | None = None  # of the body; None: chunked
    close: bool = False  # nothing follows on this connection

    @property
    def upgrade(self) -> str:
        """The protocol that the client would like to go on with."""
        wished = self.headers.get("upgrade", "").strip().lower()
        return wished if "upgrade" in _tokens(self.headers.get("connection", "")) else ""

    def flag(self, name: str) -> bool:
        """A query parameter as yes or no; there without a value, it says yes."""
        text = self.query.get(name)
        if text is None or text.lower() in ("0", "f", "false"):
            return False
        if text.lower() in ("", "1", "t", "true"):
            return True
        raise Refused(Code.INVALID, f"the parameter {name} is {text!r}; use true or false")

    def number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise Refused(Code.INVALID, f"the parameter {name} is {text!r}; use a whole number")
        return int(text)


def parse(data: bytes) -> Head:
    """`data` ends with the empty line."""
    first, *rest = data[:-4].split(b"\r\n")
    found = _LINE.fullmatch(first)
    if found is None:
        raise Refused(Code.INVALID, "this is not an HTTP/1.1 request")
    method, target, minor = found.groups()
    headers = _headers(rest)
    path, _, query = target.partition(b"?")
    if not path.startswith(b"/"):
        raise Refused(Code.INVALID, "the request's target must be a path")
    tokens = _tokens(headers.get("connection", ""))
    return Head(
        method.decode(),
        unquote_to_bytes(path).decode("utf-8", "surrogateescape"),
        dict(parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="surrogateescape", max_num_fields=100)),
        headers,
        _length(headers),
        "close" in tokens or (minor == b"0" and "keep-alive" not in tokens),
    )


def _headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > MOST_HEADERS:
        raise Refused(Code.INVALID, f"more than {MOST_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise Refused(Code.INVALID, "a header is malformed")
        name, value = found[1].decode().lower(), found[2].decode("utf-8", "surrogateescape")
        if name in ("content-length", "transfer-encoding", "authorization", "host") and name in headers:
            raise Refused(Code.INVALID, f"the header {name} is there twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _length(headers: Mapping[str, str]) -> int | None:
    encoding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if encoding is not None:
        if length is not None or encoding.lower() != "chunked":
            raise Refused(Code.INVALID, "the length of the body is ambiguous; send Content-Length or chunks")
        return None
    if length is None:
        return 0
    if not length.isascii() or not length.isdigit() or len(length) > 18:
        raise Refused(Code.INVALID, "Content-Length is not a number")
    return int(length)


def _tokens(text: str) -> set[str]:
    return {token.strip().lower() for token in text.split(",")}
