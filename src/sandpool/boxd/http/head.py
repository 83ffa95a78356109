"""Parses the head of a request, as strictly as wire/http_head.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote_to_bytes

from sandpool.wire.codes import Code, Refused
from sandpool.wire.http_head import BadHead, fields, framing

LONGEST = 64 * 1024
MOST_HEADERS = 200

_LINE = re.compile(rb"([A-Z]{1,16}) ([!-~]{1,16384}) HTTP/1\.([01])")
_ONCE = frozenset({"content-length", "transfer-encoding", "authorization", "host"})


@dataclass(frozen=True, slots=True)
class Head:
    method: str
    path: str  # percent-decoded; bytes that are not UTF-8 survive as surrogates
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    length: int | None = None  # of the body; None: chunked
    close: bool = False  # no request follows on this connection

    @property
    def upgrade(self) -> str:
        """The protocol that the client asks to upgrade to."""
        wished = self.headers.get("upgrade", "").strip().lower()
        return wished if "upgrade" in _tokens(self.headers.get("connection", "")) else ""

    def flag(self, name: str) -> bool:
        """A boolean query parameter; present without a value, it is true."""
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
    """`data` ends with the empty line. Raises Refused."""
    try:
        return _parse(data)
    except BadHead as error:
        raise Refused(Code.INVALID, error.message) from None


def _parse(data: bytes) -> Head:
    first, _, block = data[:-2].partition(b"\r\n")
    found = _LINE.fullmatch(first)
    if found is None:
        raise Refused(Code.INVALID, "this is not an HTTP/1.1 request")
    method, target, minor = found.groups()
    headers = _headers(block)
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


def _headers(block: bytes) -> dict[str, str]:
    if block.count(b"\r\n") > MOST_HEADERS:
        raise Refused(Code.INVALID, f"more than {MOST_HEADERS} headers")
    headers: dict[str, str] = {}
    for raw_name, raw_value in fields(block):
        name, value = raw_name.decode(), raw_value.decode("utf-8", "surrogateescape")
        if name in headers:
            if name in _ONCE:
                raise Refused(Code.INVALID, f"the header {name} occurs twice")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def _length(headers: Mapping[str, str]) -> int | None:
    """Length of the body; None: chunked."""
    length, chunked = framing(_raw(headers, "content-length"), _raw(headers, "transfer-encoding"))
    return None if chunked else length or 0


def _raw(headers: Mapping[str, str], name: str) -> bytes | None:
    value = headers.get(name)
    return None if value is None else value.encode("utf-8", "surrogateescape")


def _tokens(text: str) -> set[str]:
    return {token.strip().lower() for token in text.split(",")}
