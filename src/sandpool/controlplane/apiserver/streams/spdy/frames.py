"""Frames of SPDY/3.1 on the wire, without their meaning. Pure.

The payload of a data frame is handed on as it arrives; a control frame is handed on whole and may not be long.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

VERSION: Final = 3
MOST_CONTROL: Final = 32 * 1024  # bytes of a control frame; header blocks are the only ones that grow
MOST_DATA: Final = 32 * 1024  # bytes of a data frame that we send: others get their turn in between
STREAM: Final = 0x7FFF_FFFF


class Kind(IntEnum):
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


class Flag(IntFlag):
    NONE = 0
    FIN = 1
    UNIDIRECTIONAL = 2  # of SYN_STREAM only


class Reset(IntEnum):
    """Why a stream ends at once."""

    PROTOCOL_ERROR = 1
    INVALID_STREAM = 2
    REFUSED_STREAM = 3
    CANCEL = 5
    INTERNAL_ERROR = 6
    FLOW_CONTROL_ERROR = 7


class GoAway(IntEnum):
    """Why a session ends."""

    OK = 0
    PROTOCOL_ERROR = 1


class Broken(Exception):
    """The client broke the protocol: the session ends."""


@dataclass(frozen=True, slots=True)
class Control:
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
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._stream: int | None = None  # of the data frame whose payload is arriving
        self._left = 0
        self._fin = False
        self._begun = False  # a part of it was handed on

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
    """The number at a place of a payload, without its highest bit."""
    return int.from_bytes(payload[place : place + 4], "big") & STREAM
