"""The protobuf wire format: fields with numbers, and four ways to write a value. Pure."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Value = int | bytes


class WireError(ValueError):
    """Not a protobuf message."""


class Budget:
    """How many fields may still be read of one body, whatever is nested in it: each takes as long as hundreds of bytes of text."""

    __slots__ = ("_left",)

    def __init__(self, fields: int) -> None:
        self._left = fields

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise WireError("too many fields, send JSON")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("unexpected end of a number" if at >= len(data) else "a number is longer than 64 bits")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & (2**64 - 1), at
        shift += 7


def signed(number: int) -> int:
    """Two's complement of 64 bits, which is how protobuf writes negative int32 and int64 alike."""
    return number - 2**64 if number >= 2**63 else number


def fields(data: bytes, budget: Budget) -> Iterator[tuple[int, Value]]:
    """Every field of a message, in order: its number, and a number or bytes."""
    at = 0
    while at < len(data):
        budget.spend()
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            length, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"unknown wire type {kind}")
        if at + length > len(data):
            raise WireError("unexpected end of a field")
        yield number, data[at : at + length]
        at += length
