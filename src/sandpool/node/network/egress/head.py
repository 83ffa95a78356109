"""The lines before a body: split strictly, the same way for requests and for answers. Pure.

Lines end in CR LF and in nothing else; there is no folding, no space before a colon, no control character. What two parsers
could read in two ways is refused, so that nobody behind us reads something else than we did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sandpool.node.network.egress.refusal import malformed

Headers = tuple[tuple[str, bytes], ...]
"""Names in lower case, values as they were."""

END = b"\r\n\r\n"
MAX_HEAD = 32 * 1024
MAX_HEADERS = 100
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"),
        *("proxy-authentication-info", "te", "upgrade", "http2-settings"),
    }
)
_FRAMING = frozenset({"content-length", "transfer-encoding"})


def split(head: bytes) -> tuple[bytes, Headers]:
    """The first line and the headers of a head, which comes without the empty line at its end."""
    first, *lines = head.split(b"\r\n")
    if len(lines) > MAX_HEADERS:
        raise malformed(f"more than {MAX_HEADERS} headers; send fewer")
    return first, tuple(_header(line) for line in lines)


def values(headers: Headers, name: str) -> list[bytes]:
    return [value for each, value in headers if each == name]


def length(headers: Headers) -> int | None:
    """What Content-Length says; None if it says nothing."""
    found = values(headers, "content-length")
    if not found:
        return None
    if len(found) > 1 or not re.fullmatch(rb"[0-9]{1,18}", found[0]):
        raise malformed("Content-Length must be there once and be a number")
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
    """Without what is meant for the next hop only, and without `besides`. How long the body is stays."""
    named = {
        word.strip().decode("ascii", "replace").lower()
        for value in values(headers, "connection")
        for word in value.split(b",")
    }
    gone = (_HOP | {word for word in named if _TOKEN.fullmatch(word)} - _FRAMING) | set(besides)
    return tuple((name, value) for name, value in headers if name not in gone)


def joined(first: bytes, headers: Iterable[tuple[str, bytes]]) -> bytes:
    return b"".join((first, b"\r\n", *(b"%b: %b\r\n" % (name.encode(), value) for name, value in headers), b"\r\n"))


def _header(line: bytes) -> tuple[str, bytes]:
    found = _HEADER.fullmatch(line)
    if found is None:
        raise malformed("a header is not `name: value`, or has a character that no header may have")
    return found[1].decode().lower(), found[2]
