"""The WebSocket protocol (RFC 6455) for servers and clients. Pure.

The payload of a data frame is returned as it arrives. No frame or message is ever buffered as a whole, so the memory used here does not
depend on what the peer sends. Anything that breaks the protocol raises Violation with a close code.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MOST_CONTROL: Final = 125  # bytes of a control frame's payload
NO_STATUS: Final = 1005  # stands for a close frame without a code; never sent


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED = 1003
    INVALID_DATA = 1007
    POLICY = 1008
    TOO_LONG = 1009
    INTERNAL = 1011


class Role(IntEnum):
    """Our side of the connection. Clients mask what they send, servers do not."""

    SERVER = 0
    CLIENT = 1


class Violation(Exception):
    """The peer broke the protocol; close the connection with this code."""

    def __init__(self, code: CloseCode, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a message. `first` and `final` mark its beginning and its end."""

    data: bytes
    binary: bool
    first: bool
    final: bool


@dataclass(frozen=True, slots=True)
class Ping:
    data: bytes


@dataclass(frozen=True, slots=True)
class Pong:
    data: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer's close frame. Nothing is read after it."""

    code: int
    reason: str


Event = Piece | Ping | Pong | Closed


class Message:
    """Joins the pieces of a message, however small they are. Raises Violation if it grows longer than `longest` bytes."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._begun = bytearray()

    def add(self, piece: Piece) -> bytes | None:
        """Returns the whole message if this piece completes it, else None."""
        if len(self._begun) + len(piece.data) > self._longest:
            raise Violation(CloseCode.TOO_LONG, f"a message is longer than {self._longest} bytes")
        if piece.final and not self._begun:
            return piece.data
        self._begun += piece.data
        if not piece.final:
            return None
        begun, self._begun = self._begun, bytearray()
        return bytes(begun)


class Decoder:
    """Parses what the peer sends, in slices of any size. After Closed or a Violation, do not feed it any more."""

    def __init__(self, role: Role = Role.SERVER) -> None:
        self._masked = role is Role.SERVER
        self.buffer = bytearray()
        self._mask = b""
        self._left = 0  # bytes of the current data frame's payload that have not arrived
        self._place = 0  # index of the next payload byte modulo 4, which selects the mask byte
        self._inside = False  # whether we are inside the payload of a data frame
        self._fin = False
        self._binary = True
        self._fragmented = False  # a message has begun and not ended
        self._fresh = False  # no piece of the current message was returned yet
        self._closed = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")()

    def feed(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        self.buffer += data
        while not self._closed and (self._payload(events) if self._inside else self._head(events)):
            pass
        return events

    def _payload(self, events: list[Event]) -> bool:
        """Consumes what has arrived of a data frame's payload. Returns whether there was any."""
        taken = min(self._left, len(self.buffer))
        if self._left and not taken:
            return False
        data = bytes(self.buffer[:taken])
        if self._masked:
            data = unmask(data, self._mask, self._place)
        del self.buffer[:taken]
        self._place = (self._place + taken) % 4
        self._left -= taken
        self._inside = self._left > 0
        final = self._fin and not self._inside
        if not self._binary:
            self._check_text(data, final)
        events.append(Piece(data, self._binary, self._fresh, final))
        self._fresh = False
        return True

    def _check_text(self, data: bytes, final: bool) -> None:
        try:
            self._utf8.decode(data, final)
        except UnicodeDecodeError:
            raise Violation(CloseCode.INVALID_DATA, "a text message is not UTF-8") from None

    def _head(self, events: list[Event]) -> bool:
        """Consumes a frame's header or a whole control frame. Returns whether it was complete."""
        buffer = self.buffer
        if len(buffer) < 2:
            return False
        opcode, fin, short = buffer[0] & 15, bool(buffer[0] & 128), buffer[1] & 127
        self._check_head(buffer[0], buffer[1])
        wide = {126: 2, 127: 8}.get(short, 0)
        size = 2 + wide + (4 if self._masked else 0)
        if len(buffer) < size or (opcode >= Opcode.CLOSE and len(buffer) < size + short):
            return False
        length = int.from_bytes(buffer[2 : 2 + wide], "big") if wide else short
        if length >> 63:
            raise _broken("a frame's length has its highest bit set")
        mask = bytes(buffer[size - 4 : size]) if self._masked else b"\0\0\0\0"
        if opcode >= Opcode.CLOSE:
            payload = unmask(bytes(buffer[size : size + length]), mask, 0)
            del buffer[: size + length]
            events.append(self._control(opcode, payload))
            return True
        del buffer[:size]
        if opcode != Opcode.CONTINUATION:
            self._binary = opcode == Opcode.BINARY
            self._fresh = True
            self._utf8.reset()
        self._fragmented = not fin
        self._fin, self._mask, self._left, self._place, self._inside = fin, mask, length, 0, True
        return True

    def _check_head(self, first: int, second: int) -> None:
        opcode, fin = first & 15, first & 128
        if first & 0x70:
            raise _broken("a frame has reserved bits set")
        if bool(second & 128) is not self._masked:
            raise _broken("a frame is not masked" if self._masked else "a frame of a server is masked")
        if opcode >= Opcode.CLOSE:
            if opcode > Opcode.PONG:
                raise _broken(f"a frame has the unknown opcode {opcode}")
            if not fin or second & 127 > MOST_CONTROL:
                raise _broken("a control frame is fragmented or too long")
        elif opcode > Opcode.BINARY:
            raise _broken(f"a frame has the unknown opcode {opcode}")
        elif (opcode == Opcode.CONTINUATION) != self._fragmented:
            raise _broken("a message begins within another, or goes on where there is none")

    def _control(self, opcode: int, payload: bytes) -> Event:
        if opcode == Opcode.PING:
            return Ping(payload)
        if opcode == Opcode.PONG:
            return Pong(payload)
        self._closed = True
        return _closed(payload)


def _broken(why: str) -> Violation:
    return Violation(CloseCode.PROTOCOL_ERROR, why)


def _closed(payload: bytes) -> Closed:
    if not payload:
        return Closed(NO_STATUS, "")
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not _sendable(code):
        raise _broken("a close frame has no valid code")
    try:
        return Closed(code, payload[2:].decode())
    except UnicodeDecodeError:
        raise Violation(CloseCode.INVALID_DATA, "the reason of a close frame is not UTF-8") from None


def _sendable(code: int) -> bool:
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def unmask(data: bytes, mask: bytes, place: int) -> bytes:
    """Unmasks `data`, whose first byte is at index `place` of its payload. Masking is the same operation."""
    size = len(data)
    key = (mask[place % 4 :] + mask[: place % 4]) * (size // 4 + 1)
    # One operation on long integers: a loop over bytes would be the slowest part of an upload.
    return (int.from_bytes(data, "little") ^ int.from_bytes(key[:size], "little")).to_bytes(size, "little")


def frame(opcode: Opcode, payload: bytes, *, fin: bool = True, mask: bytes = b"") -> bytes:
    """Encodes one frame. A server never masks its frames; a client masks each with four new random bytes."""
    size, first, masked = len(payload), opcode | (128 if fin else 0), 128 if mask else 0
    if size < 126:
        head = bytes((first, masked | size))
    elif size < 1 << 16:
        head = bytes((first, masked | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, masked | 127)) + size.to_bytes(8, "big")
    return head + mask + unmask(payload, mask, 0) if mask else head + payload


def close_frame(code: int, reason: str = "", *, mask: bytes = b"") -> bytes:
    if code == NO_STATUS:
        return frame(Opcode.CLOSE, b"", mask=mask)
    words = reason.encode("utf-8", "replace")[: MOST_CONTROL - 2].decode("utf-8", "ignore").encode()
    return frame(Opcode.CLOSE, code.to_bytes(2, "big") + words, mask=mask)


def accept(headers: Mapping[str, str]) -> dict[str, str] | str:
    """Returns the response headers that accept an upgrade, or why the request is not a valid one. Request header names are in lower case."""
    if headers.get("upgrade", "").strip().lower() != "websocket":
        return "this address speaks WebSocket; send Upgrade: websocket"
    if headers.get("sec-websocket-version", "").strip() != "13":
        return "only version 13 of WebSocket is spoken here"
    key = headers.get("sec-websocket-key", "").strip()
    if not usable_key(key.encode()):
        return "Sec-WebSocket-Key must be 16 bytes in base64"
    return {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": accept_key(key.encode()).decode()}


def usable_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def accept_key(key: bytes) -> bytes:
    """The Sec-WebSocket-Accept value for a client's key. It proves that the server understood the upgrade."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
