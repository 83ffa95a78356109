"""The strict parser of HTTP/1.1 headers that the router, boxd and the egress proxy share. Pure.

Lines must end in CR LF. There is no folding, no space before a colon, no control character. Anything that two parsers could read in two
ways is refused, never repaired, so that no server behind us sees a different message than we did (request smuggling). Each caller
decides which headers may be repeated and how many there may be.
"""

from __future__ import annotations

import re
from typing import Final

END: Final = b"\r\n\r\n"
TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
"""One character of a method or a header's name, as a regular expression."""
_FIELDS: Final = re.compile(rb"(?:" + TOKEN + rb"++:[\t -~\x80-\xff]*+\r\n)*+")
_NUMBER: Final = re.compile(rb"[0-9]{1,18}")


class BadHead(Exception):
    """A malformed head. `status` is the HTTP status to respond with if it was a request."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def fields(block: bytes) -> list[tuple[bytes, bytes]]:
    """Parses header lines to names, in lower case, and values without surrounding white space. `block` is all lines, each with its line end."""
    if _FIELDS.fullmatch(block) is None:
        raise BadHead("a header is malformed")
    found = []
    for line in block.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        found.append((name.lower(), value.strip(b" \t")))
    return found


def framing(length: bytes | None, encoding: bytes | None, *, chunks: bool = True) -> tuple[int | None, bool]:
    """Returns the Content-Length (None if there is none) and whether the body is chunked. `encoding` is Transfer-Encoding, which is
    refused unless `chunks`."""
    if encoding is not None:
        if length is not None or not chunks or encoding.lower() != b"chunked":
            raise BadHead("the length of the body is ambiguous; send Content-Length or chunks")
        return None, True
    if length is None:
        return None, False
    if _NUMBER.fullmatch(length) is None:
        raise BadHead("Content-Length is not a number")
    return int(length), False
