"""As much of the protobuf wire format as the messages of one small service need. Pure."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, BYTES = 0, 2
_WIDTHS = {1: 8, 5: 4}
Value = int | bytes


class Malformed(ValueError):
    """These bytes are no message."""


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of each field, in order; those of other types than we use are left out."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value
        elif kind == BYTES:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise Malformed("a field is cut off")
            yield number, data[at : at + size]
            at += size
        elif kind in _WIDTHS and at + _WIDTHS[kind] <= len(data):
            at += _WIDTHS[kind]
        else:
            raise Malformed(f"a field of the unknown type {kind}")


def packed(number: int, value: Value) -> bytes:
    if isinstance(value, int):
        return _packed(number << 3 | VARINT) + _packed(value & 0xFFFFFFFFFFFFFFFF)
    return _packed(number << 3 | BYTES) + _packed(len(value)) + value


def text(value: Value) -> str:
    if not isinstance(value, bytes):
        raise Malformed("a text is a number")
    return value.decode("utf-8", "surrogateescape")


def number(value: Value) -> int:
    if not isinstance(value, int):
        raise Malformed("a number is a text")
    return value


def content(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise Malformed("a message is a number")
    return value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Malformed("a number is cut off")


def _packed(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
