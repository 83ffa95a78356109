"""WebSocket messages (RFC 6455) from and to bytes, seen from the server. No I/O.

Text and binary messages are both given as bytes. Fragments are joined up to a limit; control frames may come in between.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

LONGEST = 16 << 20

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SHORT, _LONG = Struct("!H"), Struct("!Q")


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Message(NamedTuple):
    """TEXT, BINARY, CLOSE, PING or PONG, whole."""

    opcode: Opcode
    data: bytes


class Violation(ValueError):
    """The other end breaks the protocol; `code` is what a close frame says about it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def accept(headers: Mapping[str, str]) -> dict[str, str] | str:
    """The headers that accept an upgrade, or why it is none. Names are in lower case."""
    if headers.get("upgrade", "").strip().lower() != "websocket":
        return "this address speaks WebSocket; send Upgrade: websocket"
    if headers.get("sec-websocket-version", "").strip() != "13":
        return "only version 13 of WebSocket is spoken here"
    key = headers.get("sec-websocket-key", "").strip()
    try:
        if len(base64.b64decode(key, validate=True)) != 16:
            return "Sec-WebSocket-Key is not 16 bytes"
    except binascii.Error:
        return "Sec-WebSocket-Key is not base64"
    return {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": answer_to(key)}


def answer_to(key: str) -> str:
    return base64.b64encode(hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()).decode()


def frame(opcode: Opcode, data: bytes | memoryview = b"") -> bytes:
    """One message, unmasked, as servers send them."""
    length = len(data)
    first = 0x80 | opcode
    if length < 126:
        head = bytes((first, length))
    elif length < 1 << 16:
        head = bytes((first, 126)) + _SHORT.pack(length)
    else:
        head = bytes((first, 127)) + _LONG.pack(length)
    return head + data


def closing(code: int = 1000, reason: str = "") -> bytes:
    return frame(Opcode.CLOSE, _SHORT.pack(code) + reason.encode()[:120])


class Decoder:
    """Takes bytes as they come and gives whole messages."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._held = bytearray()
        self._parts: list[bytes] = []
        self._size = 0
        self._opcode: Opcode | None = None  # of the message whose fragments are coming

    def feed(self, data: bytes) -> list[Message]:
        self._held += data
        found: list[Message] = []
        while (taken := self._frame()) is not None:
            message = self._join(*taken)
            if message is not None:
                found.append(message)
        return found

    def _frame(self) -> tuple[bool, Opcode, bytes] | None:
        held = self._held
        if len(held) < 2:
            return None
        first, second = held[0], held[1]
        opcode = _opcode(first)
        if not second & 0x80:
            raise Violation(1002, "a frame from a client must be masked")
        length, at = second & 0x7F, 2
        if opcode >= Opcode.CLOSE and (length > 125 or not first & 0x80):
            raise Violation(1002, "a control frame is too long or in pieces")
        if length >= 126:
            size = _SHORT if length == 126 else _LONG
            if len(held) < at + size.size:
                return None
            (length,) = size.unpack_from(held, at)
            at += size.size
        if self._size + length > self._longest:
            raise Violation(1009, f"a message is longer than {self._longest} bytes")
        if len(held) < at + 4 + length:
            return None
        data = _unmasked(held[at : at + 4], held[at + 4 : at + 4 + length])
        del held[: at + 4 + length]
        return bool(first & 0x80), opcode, data

    def _join(self, final: bool, opcode: Opcode, data: bytes) -> Message | None:
        if opcode >= Opcode.CLOSE:
            return Message(opcode, data)
        if (opcode is Opcode.CONTINUATION) != (self._opcode is not None):
            raise Violation(1002, "fragments are out of order")
        if opcode is not Opcode.CONTINUATION:
            self._opcode = opcode
        self._parts.append(data)
        self._size += len(data)
        if not final:
            return None
        assert self._opcode is not None
        message = Message(self._opcode, b"".join(self._parts))
        self._parts, self._size, self._opcode = [], 0, None
        return message


def _opcode(first: int) -> Opcode:
    if first & 0x70:
        raise Violation(1002, "a frame uses an extension that was not agreed on")
    try:
        return Opcode(first & 0x0F)
    except ValueError:
        raise Violation(1002, f"{first & 0x0F} is no opcode") from None


def _unmasked(mask: bytes | bytearray, data: bytes | bytearray) -> bytes:
    """As one large number: a loop over bytes would take a hundred times as long."""
    length = len(data)
    if not length:
        return b""
    repeated = (bytes(mask) * (length // 4 + 1))[:length]
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(length, "little")
