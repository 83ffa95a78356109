"""The protobuf wire format: messages as numbered fields with one of four encodings. Pure.

The API server uses it for the bodies that kubectl sends, boxd for its gRPC service. Those callers know what the fields mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Value = int | bytes
_UINT64 = 2**64 - 1


class ProtobufError(ValueError):
    """These bytes are not a protobuf message, or not the expected one."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a 64-bit number; returns it and the position after it."""
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ProtobufError("unexpected end of a number" if at >= len(data) else "a number is longer than 64 bits")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _UINT64, at
        shift += 7


def signed(number: int) -> int:
    """Two's complement of 64 bits, which is how protobuf writes negative int32 and int64 alike."""
    return number - 2**64 if number >= 2**63 else number


def fields(data: bytes, before_each: Callable[[], object] | None = None) -> Iterator[tuple[int, int, Value]]:
    """Yields every field of a message in order: its number, its wire type and its value, which is a number for VARINT and else bytes.

    `before_each` is called before each field and may raise, to bound their number.
    """
    at = 0
    while at < len(data):
        if before_each is not None:
            before_each()
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            length, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ProtobufError(f"unknown wire type {kind}")
        if at + length > len(data):
            raise ProtobufError("unexpected end of a field")
        yield number, kind, data[at : at + length]
        at += length


def as_bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ProtobufError("a number where text or a message belongs")
    return value


def as_number(value: Value) -> int:
    """The value as an unsigned number; see `signed`."""
    if not isinstance(value, int):
        raise ProtobufError("text where a number belongs")
    return value


def encode(number: int, value: Value) -> bytes:
    """Encodes one field."""
    if isinstance(value, int):
        return _varint(number << 3 | VARINT) + _varint(value & _UINT64)
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
