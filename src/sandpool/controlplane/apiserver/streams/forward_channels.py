"""Port-forward over the channels of a WebSocket: two for each port that the request names, and one connection to each.

Channel 2n carries the data of the n-th port, channel 2n+1 what went wrong; both begin with the port's number. No channel can be
half-closed; the client ends all by leaving, and the server when every connection has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.streams.channels import MOST, ChannelDecoder, Part, message
from sandpool.controlplane.apiserver.streams.forward import Dial
from sandpool.controlplane.apiserver.streams.inbox import Inbox
from sandpool.controlplane.apiserver.streams.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.pipe import Gone, Pipe
from sandpool.controlplane.apiserver.streams.relay import relay
from sandpool.controlplane.apiserver.streams.remote import watch_over
from sandpool.controlplane.apiserver.streams.upgrade import Channels
from sandpool.controlplane.apiserver.streams.websocket.connection import WebSocket
from sandpool.wire.websocket import Violation


class _Port:
    """One port's channels. A Peer."""

    def __init__(self, forward: ChannelForward, channel: int, held: int, charge: Callable[[int], object]) -> None:
        self._forward = forward
        self._channel = channel
        self.inbox = Inbox(held, charge)

    async def read(self) -> bytes:
        return await self.inbox.read()

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), MOST):
            await self._forward.send(self._channel, data[start : start + MOST])

    async def finish(self) -> None:
        """Cannot be said on a channel: the connection is over for the client, too."""
        self.inbox.discard()

    async def fail(self, why: str) -> None:
        self.inbox.discard()
        try:
            await self._forward.send(self._channel + 1, why.encode())
        except Gone:
            pass  # whoever reads the client notices


class ChannelForward:
    def __init__(
        self, socket: WebSocket, protocol: Channels, ports: tuple[int, ...], dial: Dial, limits: StreamLimits
    ) -> None:
        self._socket = socket
        self._protocol = protocol
        self._numbers = ports
        self._dial = dial
        self._limits = limits
        self._decoder = ChannelDecoder(protocol)
        self._ports = [_Port(self, 2 * index, limits.held, socket.charge) for index in range(len(ports))]

    async def serve(self, pipe: Pipe) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                pump = tasks.create_task(self._pump())
                watch = tasks.create_task(watch_over(self._socket.sign_of_life, pipe, self._limits))
                work = tasks.create_task(self._work())
                await asyncio.wait({pump, watch, work}, return_when=asyncio.FIRST_COMPLETED)
                if work.done() and not pump.done():
                    await asyncio.wait({pump}, timeout=self._limits.linger)
                for task in (pump, watch, work):
                    task.cancel()
        finally:
            pipe.hang_up()

    async def _pump(self) -> None:
        while (pieces := await self._socket.receive()) is not None:
            try:
                parts = [self._decoder.feed(piece) for piece in pieces]
            except Violation as violation:
                await self._socket.close(violation.code, violation.why)
                return
            for part in parts:
                if isinstance(part, Part) and part.channel < 2 * len(self._ports) and not part.channel % 2:
                    self._ports[part.channel // 2].inbox.put(part.data)
            for port in self._ports:
                await port.inbox.room()

    async def _work(self) -> None:
        try:
            for index, number in enumerate(self._numbers):
                for channel in (2 * index, 2 * index + 1):
                    await self.send(channel, number.to_bytes(2, "little"))
        except Gone:
            return
        async with asyncio.TaskGroup() as tasks:
            for number, port in zip(self._numbers, self._ports, strict=True):
                tasks.create_task(self._forward(number, port))
        await self._socket.close()

    async def _forward(self, number: int, port: _Port) -> None:
        try:
            with await self._dial(number) as sock:
                await relay(sock, port)
        except NodeError as failure:
            await port.fail(failure.message)

    async def send(self, channel: int, data: bytes) -> None:
        await self._socket.send(message(self._protocol, channel, data), text=self._protocol.base64)
