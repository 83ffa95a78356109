"""The frames that a client and boxd exchange about one process: a kind, and bytes.

In a plain HTTP body, each frame is a header (kind, length) and its bytes. In a WebSocket, each binary message is one frame whose first
byte is the kind. Both ends use the same kinds.
"""

from __future__ import annotations

import json
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

CONTENT_TYPE = "application/x-sandpool-frames"
LONGEST = 1 << 20
"""Maximum bytes in one frame; longer data is split into several frames."""

_HEAD = Struct("!BI")


class Kind(IntEnum):
    # From boxd
    STARTED = 1  # JSON: the process, as in the list of processes
    STDOUT = 2
    STDERR = 3
    LOST = 4  # JSON: how many bytes of earlier output are no longer kept
    EXIT = 5  # JSON: how the process ended
    EVENT = 6  # JSON: an event, such as a changed file
    ERROR = 7  # JSON: why a request was refused
    TAKEN = 8  # JSON: how many bytes of stdin were written to the process's pipe so far
    # From the client
    STDIN = 16
    STDIN_END = 17
    RESIZE = 18  # JSON: cols, rows
    SIGNAL = 19  # JSON: signal
    START = 20  # JSON: the command to start


class Frame(NamedTuple):
    kind: Kind
    data: bytes

    @property
    def value(self) -> dict[str, Any]:
        """The frame's data as a JSON object. ValueError if it is not one."""
        try:
            value = json.loads(self.data.decode("utf-8", "surrogateescape") or "{}")
        except RecursionError:
            raise ValueError(f"a frame of the kind {self.kind.name} is nested too deeply") from None
        if not isinstance(value, dict):
            raise ValueError(f"a frame of the kind {self.kind.name} holds {type(value).__name__}, not an object")
        return value


class BadFrame(ValueError):
    """Bytes that are not a frame: the other end uses another protocol."""


def pack(kind: Kind, data: bytes | memoryview = b"") -> bytes:
    return _HEAD.pack(kind, len(data)) + data


def pack_value(kind: Kind, value: dict[str, Any]) -> bytes:
    return pack(kind, encode(value))


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")


def message(kind: Kind, data: bytes | memoryview = b"") -> bytes:
    """A frame as a WebSocket message."""
    return bytes((kind,)) + data


def read_message(data: bytes) -> Frame:
    if not data:
        raise BadFrame("an empty message")
    return Frame(_kind(data[0]), data[1:])


class Frames:
    """Parses a stream of bytes into frames."""

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
        """Whether the stream may end here: no frame is incomplete."""
        return not self._held


def _kind(number: int) -> Kind:
    try:
        return Kind(number)
    except ValueError:
        raise BadFrame(f"{number} is no kind of frame") from None
