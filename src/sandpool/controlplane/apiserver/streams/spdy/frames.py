"""Encodes and decodes frames and header blocks of SPDY/3.1, without interpreting them. Pure.

The payload of a data frame is passed on as it arrives; a control frame is passed on whole, and its length is bounded. Header blocks are
compressed with one zlib context per direction of a connection. A block that is damaged or exceeds its limits raises Damaged: the context is lost
then, so the connection must end.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

VERSION: Final = 3
MOST_CONTROL: Final = 32 * 1024  # bytes of a control frame; only header blocks have a variable length
MOST_DATA: Final = 32 * 1024  # bytes of a data frame that we send: other streams get a turn in between
STREAM: Final = 0x7FFF_FFFF
MOST_BYTES: Final = 16 * 1024  # of one block, decompressed; real clients send a few hundred
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


class Kind(IntEnum):
    """The type of a control frame."""

    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


class Flag(IntFlag):
    """Flags of a frame."""

    NONE = 0
    FIN = 1
    UNIDIRECTIONAL = 2  # of SYN_STREAM only


class Reset(IntEnum):
    """The reason of a RST_STREAM."""

    PROTOCOL_ERROR = 1
    INVALID_STREAM = 2
    REFUSED_STREAM = 3
    CANCEL = 5
    INTERNAL_ERROR = 6
    FLOW_CONTROL_ERROR = 7


class GoAway(IntEnum):
    """The reason of a GOAWAY."""

    OK = 0
    PROTOCOL_ERROR = 1


class Broken(Exception):
    """The client broke the protocol: the session ends."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control frame."""

    kind: int
    flags: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class DataPiece:
    """A part of a data frame; `fin` only on its last part."""

    stream: int
    data: bytes
    fin: bool
    first: bool = True


Frame = Control | DataPiece


class Decoder:
    """Splits the bytes of a connection into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._stream: int | None = None  # of the data frame whose payload is arriving
        self._left = 0
        self._fin = False
        self._begun = False  # whether a part of it was passed on

    def feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        self._buffer += data
        while self._head(frames) if self._stream is None else self._payload(self._stream, frames):
            pass
        return frames

    def _head(self, frames: list[Frame]) -> bool:
        buffer = self._buffer
        if len(buffer) < 8:
            return False
        flags, length = buffer[4], int.from_bytes(buffer[5:8], "big")
        if not buffer[0] & 128:
            self._stream, self._left, self._fin = int.from_bytes(buffer[:4], "big"), length, bool(flags & Flag.FIN)
            del buffer[:8]
            return True
        if int.from_bytes(buffer[:2], "big") & 0x7FFF != VERSION:
            raise Broken("a frame is of another version of SPDY")
        if length > MOST_CONTROL:
            raise Broken("a control frame is too long")
        if len(buffer) < 8 + length:
            return False
        kind = int.from_bytes(buffer[2:4], "big")
        frames.append(Control(kind, flags, bytes(buffer[8 : 8 + length])))
        del buffer[: 8 + length]
        return True

    def _payload(self, stream: int, frames: list[Frame]) -> bool:
        taken = min(self._left, len(self._buffer))
        if self._left and not taken:
            return False
        data = bytes(self._buffer[:taken])
        del self._buffer[:taken]
        self._left -= taken
        if not self._left:
            self._stream = None
        frames.append(DataPiece(stream, data, self._fin and not self._left, not self._begun))
        self._begun = self._left > 0
        return True


def control(kind: Kind, payload: bytes, flags: int = 0) -> bytes:
    head = (0x8000 | VERSION).to_bytes(2, "big") + kind.to_bytes(2, "big")
    return head + bytes((flags,)) + len(payload).to_bytes(3, "big") + payload


def data_frame(stream: int, data: bytes, *, fin: bool = False) -> bytes:
    return stream.to_bytes(4, "big") + bytes((Flag.FIN if fin else 0,)) + len(data).to_bytes(3, "big") + data


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def at(payload: bytes, place: int) -> int:
    """The 31-bit number at an offset of a payload."""
    return int.from_bytes(payload[place : place + 4], "big") & STREAM


def _counted(word: bytes) -> bytes:
    return len(word).to_bytes(4, "big") + word


DICTIONARY: Final = b"".join(_counted(word.encode()) for word in (*_WORDS.split(), *_PHRASES)) + _REST.encode()
"""The compression dictionary of the SPDY/3 draft."""


class Damaged(Exception):
    """A header block that cannot be read."""


class HeaderReader:
    """Reads header blocks of the client."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zdict=DICTIONARY)

    def read(self, block: bytes) -> dict[str, str]:
        """Decodes a block. Names are in lower case; a header with several values has its first."""
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
    """Writes header blocks of the server."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(zdict=DICTIONARY)

    def write(self, headers: Mapping[str, str]) -> bytes:
        words = [_counted(word.encode("latin-1", "replace")) for pair in headers.items() for word in pair]
        plain = len(headers).to_bytes(4, "big") + b"".join(words)
        return self._zlib.compress(plain) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
