"""A remote command over the channels of a WebSocket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandpool.controlplane.apiserver.streams.channels import MOST, ChannelDecoder, Finished, Part, message
from sandpool.controlplane.apiserver.streams.inbox import Inbox
from sandpool.controlplane.apiserver.streams.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.options import CommandOptions
from sandpool.controlplane.apiserver.streams.remote import ERROR, RESIZE, STDERR, STDIN, STDOUT
from sandpool.controlplane.apiserver.streams.status import encoded
from sandpool.controlplane.apiserver.streams.upgrade import Channels
from sandpool.controlplane.apiserver.streams.websocket.connection import WebSocket
from sandpool.wire.websocket import Violation


class ChannelLine:
    def __init__(self, socket: WebSocket, protocol: Channels, options: CommandOptions, limits: StreamLimits) -> None:
        self._socket = socket
        self._protocol = protocol
        self._options = options
        self._decoder = ChannelDecoder(protocol)
        self._stdin = Inbox(limits.held, socket.charge)
        self._resize = Inbox(limits.held, socket.charge)

    async def pump(self) -> None:
        while (pieces := await self._socket.receive()) is not None:
            try:
                parts = [self._decoder.feed(piece) for piece in pieces]
            except Violation as violation:
                await self._socket.close(violation.code, violation.why)
                return
            for part in parts:
                self._take_in(part)
            await self._stdin.room()

    def _take_in(self, part: Part | Finished | None) -> None:
        if isinstance(part, Finished):
            if part.channel == STDIN:
                self._stdin.end()
        elif part is not None:
            if part.channel == STDIN and self._options.stdin:
                self._stdin.put(part.data)
            elif part.channel == RESIZE and not self._resize.full:
                self._resize.put(part.data)

    async def ready(self) -> None:
        """Clients of the older versions are told by an empty message that the command is about to begin."""
        if self._protocol.version < 5:
            first = STDOUT if self._options.stdout else STDERR if self._options.stderr else ERROR
            await self._send(first, b"")

    async def stdin(self) -> bytes:
        return await self._stdin.read()

    async def resize(self) -> bytes:
        return await self._resize.read()

    async def write(self, stream: int, data: bytes) -> None:
        for start in range(0, len(data), MOST):
            await self._send(stream, data[start : start + MOST])

    async def _send(self, channel: int, data: bytes) -> None:
        await self._socket.send(message(self._protocol, channel, data), text=self._protocol.base64)

    async def finish(self, outcome: Mapping[str, Any]) -> None:
        self._stdin.discard()
        if words := encoded(outcome, self._protocol.version):
            await self._send(ERROR, words)
        await self._socket.close()

    async def sign_of_life(self) -> None:
        await self._socket.sign_of_life()
