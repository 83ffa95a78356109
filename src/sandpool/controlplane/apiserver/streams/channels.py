"""Messages of a WebSocket that carry several streams: the first byte names the stream. Pure.

In base64 the first character is the stream's digit and the rest is base64 text. From version 5 on, stream 255 closes the one
that its message names.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from sandpool.controlplane.apiserver.streams.upgrade import Channels
from sandpool.wire.websocket import CloseCode, Piece, Violation

CLOSE: Final = 255
MOST: Final = 32 * 1024
"""Bytes of a message that we send."""


@dataclass(frozen=True, slots=True)
class Part:
    """More of a stream, in order."""

    channel: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """The client sends no more on this stream."""

    channel: int


class ChannelDecoder:
    def __init__(self, protocol: Channels) -> None:
        self._base64 = protocol.base64
        self._closes = protocol.version >= 5
        self._channel: int | None = None  # of the message that is arriving
        self._rest = b""  # of its base64 text: what does not make up three bytes yet

    def feed(self, piece: Piece) -> Part | Finished | None:
        if piece.first:
            self._channel, self._rest = None, b""
        data = piece.data
        if self._channel is None:
            if not data:
                return None
            self._channel = data[0] - 48 if self._base64 else data[0]
            data = data[1:]
        if self._base64:
            data = self._plain(data, piece.final)
        if not data:
            return None
        if self._closes and self._channel == CLOSE:
            return Finished(data[0])
        return Part(self._channel, data)

    def _plain(self, text: bytes, final: bool) -> bytes:
        text = self._rest + text
        cut = len(text) if final else len(text) - len(text) % 4
        text, self._rest = text[:cut], text[cut:]
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise Violation(CloseCode.INVALID_DATA, "a message is not base64") from None


def message(protocol: Channels, channel: int, data: bytes) -> bytes:
    if protocol.base64:
        return bytes((48 + channel,)) + base64.b64encode(data)
    return bytes((channel,)) + data
