"""What travels between a client and boxd about one process: a kind, and bytes.

On a plain HTTP body each frame is a head (kind, length) and its bytes; in a WebSocket each binary message is one frame, the kind
as its first byte. Both ends use the same kinds.
"""

from __future__ import annotations

import json
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

CONTENT_TYPE = "application/x-sandpool-frames"
LONGEST = 1 << 20
"""Bytes in one frame at most; longer data is several frames."""

_HEAD = Struct("!BI")


class Kind(IntEnum):
    # From boxd
    STARTED = 1  # JSON: the process as it is listed
    STDOUT = 2
    STDERR = 3
    LOST = 4  # JSON: output before this point that is not kept any more, in bytes
    EXIT = 5  # JSON: how it ended
    EVENT = 6  # JSON: a change of a file, and the like
    ERROR = 7  # JSON: what was refused
    TAKEN = 8  # JSON: how many bytes of stdin the process has in its pipe by now
    # From the client
    STDIN = 16
    STDIN_END = 17
    RESIZE = 18  # JSON: cols, rows
    SIGNAL = 19  # JSON: signal
    START = 20  # JSON: what is to be started


class Frame(NamedTuple):
    kind: Kind
    data: bytes

    @property
    def value(self) -> dict[str, Any]:
        """What a JSON frame says. ValueError if it says no object."""
        try:
            value = json.loads(self.data.decode("utf-8", "surrogateescape") or "{}")
        except RecursionError:
            raise ValueError(f"a frame of the kind {self.kind.name} is nested too deeply") from None
        if not isinstance(value, dict):
            raise ValueError(f"a frame of the kind {self.kind.name} holds {type(value).__name__}, not an object")
        return value


class BadFrame(ValueError):
    """Bytes that are no frame: the other end speaks something else."""


def pack(kind: Kind, data: bytes | memoryview = b"") -> bytes:
    return _HEAD.pack(kind, len(data)) + data


def pack_value(kind: Kind, value: dict[str, Any]) -> bytes:
    return pack(kind, encode(value))


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")


def message(kind: Kind, data: bytes | memoryview = b"") -> bytes:
    """As a WebSocket message."""
    return bytes((kind,)) + data


def read_message(data: bytes) -> Frame:
    if not data:
        raise BadFrame("an empty message")
    return Frame(_kind(data[0]), data[1:])


class Frames:
    """Takes bytes as they come and gives whole frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        held = self._held
        held += data
        found: list[Frame] = []
        at = 0
        while len(held) - at >= _HEAD.size:
            number, length = _HEAD.unpack_from(held, at)
            kind = _kind(number)
            if length > LONGEST:
                raise BadFrame(f"a frame of {length} bytes; {LONGEST} are allowed")
            end = at + _HEAD.size + length
            if len(held) < end:
                break
            found.append(Frame(kind, bytes(held[at + _HEAD.size : end])))
            at = end
        del held[:at]
        return found

    @property
    def whole(self) -> bool:
        """Whether nothing of a frame is still missing."""
        return not self._held


def _kind(number: int) -> Kind:
    try:
        return Kind(number)
    except ValueError:
        raise BadFrame(f"{number} is no kind of frame") from None
