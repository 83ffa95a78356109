"""Header blocks of SPDY/3: names and values, compressed with one zlib context for each direction of a connection. Pure.

A block that is damaged or grows beyond its limits raises Damaged: after that the context is lost, and the connection with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

MOST_BYTES: Final = 16 * 1024  # of one block, unpacked; what clients send has some hundred
MOST_HEADERS: Final = 64

_WORDS: Final = """
    options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow
    authorization cache-control connection content-base content-encoding content-language content-length content-location
    content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match
    if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range
    referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method
    get status
"""
_PHRASES: Final = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_REST: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept "
    "Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _counted(word: bytes) -> bytes:
    return len(word).to_bytes(4, "big") + word


DICTIONARY: Final = b"".join(_counted(word.encode()) for word in (*_WORDS.split(), *_PHRASES)) + _REST.encode()
"""What both sides know before the first byte, as the SPDY/3 draft lists it."""


class Damaged(Exception):
    """A header block that cannot be read."""


class HeaderReader:
    """The client's direction."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zdict=DICTIONARY)

    def read(self, block: bytes) -> dict[str, str]:
        """Names in lower case; of a value that was sent several times, the first."""
        try:
            plain = self._zlib.decompress(block, MOST_BYTES + 1)
        except zlib.error as error:
            raise Damaged(f"a header block cannot be unpacked: {error}") from None
        if len(plain) > MOST_BYTES or self._zlib.unconsumed_tail or self._zlib.unused_data:
            raise Damaged("a header block is too long")
        return _parse(plain)


def _parse(plain: bytes) -> dict[str, str]:
    place = 4
    count = int.from_bytes(plain[:4], "big")
    if len(plain) < 4 or count > MOST_HEADERS:
        raise Damaged("a header block has no count or too many headers")
    headers: dict[str, str] = {}
    for _ in range(count):
        name, place = _word(plain, place)
        value, place = _word(plain, place)
        headers.setdefault(name.lower(), value.partition("\0")[0])
    if place != len(plain):
        raise Damaged("a header block goes on after its last header")
    return headers


def _word(plain: bytes, place: int) -> tuple[str, int]:
    start = place + 4
    end = start + int.from_bytes(plain[place:start], "big")
    if start > len(plain) or end > len(plain):
        raise Damaged("a header block ends in the middle of a header")
    return plain[start:end].decode("latin-1"), end


class HeaderWriter:
    """The server's direction."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(zdict=DICTIONARY)

    def write(self, headers: Mapping[str, str]) -> bytes:
        words = [_counted(word.encode("latin-1", "replace")) for pair in headers.items() for word in pair]
        plain = len(headers).to_bytes(4, "big") + b"".join(words)
        return self._zlib.compress(plain) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
