"""Port-forward over SPDY (by itself or tunnelled through a WebSocket) and over the channels of a WebSocket.

Over SPDY the client opens two streams with the same request id for each connection: one for data, one for errors. Over channels, channel 2n
carries the data of the n-th port and channel 2n+1 its errors; both begin with the port number. A channel cannot be half-closed: the client ends
all of them by disconnecting, the server when every connection has ended. Neither side is read faster than the other accepts data.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.pipe import ByteStream, ClientGone, Pipe, ReceiveBuffer
from sandpool.controlplane.apiserver.streams.remote_command import watch_client
from sandpool.controlplane.apiserver.streams.spdy.connection import Connection, Stream
from sandpool.controlplane.apiserver.streams.upgrade import Channels
from sandpool.controlplane.apiserver.streams.websocket_channels import MOST, ChannelDecoder, Part, WebSocket, message
from sandpool.wire.websocket import Violation

Dial = Callable[[int], Awaitable[socket.socket]]
"""Connects to a port of the pod. Raises NodeError with a message for the client."""
CHUNK: Final = 64 * 1024


@dataclass(slots=True)
class Pair:
    """The two streams of one forwarded connection."""

    port: int
    data: Stream | None = None
    error: Stream | None = None
    complete: asyncio.Event = field(default_factory=asyncio.Event)


class SpdyPortForward:
    """A port-forward over SPDY. Each pair of streams is served by a task; all end when the client disconnects."""

    def __init__(self, connection: ByteStream, dial: Dial, limits: StreamLimits) -> None:
        self._dial = dial
        self._limits = limits
        self._pairs: dict[str, Pair] = {}
        self._connection = Connection(connection, limits, self._opened)
        self._connection.blocked = self._patience
        self._tasks: asyncio.TaskGroup | None = None

    async def serve(self, pipe: Pipe) -> None:
        """Serves until the client disconnects."""
        try:
            async with asyncio.TaskGroup() as tasks:
                pump = tasks.create_task(self._connection.pump())
                watch = tasks.create_task(watch_client(self._connection.keep_alive, pipe, self._limits))
                pairs = tasks.create_task(self._serve_pairs())
                await asyncio.wait({pump, watch, pairs}, return_when=asyncio.FIRST_COMPLETED)
                for task in (pump, watch, pairs):
                    task.cancel()
        finally:
            pipe.hang_up()

    async def _serve_pairs(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.get_running_loop().create_future()

    def _patience(self, stream: Stream) -> float | None:
        """Seconds that an unread stream may block the connection; None (no limit) while it is the only one."""
        return self._limits.stuck if len(self._pairs) > 1 else None

    def _opened(self, stream: Stream) -> None:
        kind, port = stream.headers.get("streamtype", ""), stream.headers.get("port", "")
        # Clients that send no request id open the error stream first, and the data stream right after it.
        request = stream.headers.get("requestid") or str(stream.number - (2 if kind == "data" else 0))
        usable = port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536
        pair = self._pairs.get(request)
        fits = pair is None or (pair.port == int(port or 0) and getattr(pair, kind, stream) is None)
        if kind not in ("data", "error") or not usable or not fits or self._tasks is None:
            self._connection.refuse(stream)
            return
        if pair is None:
            pair = self._pairs[request] = Pair(int(port))
            self._tasks.create_task(self._serve(request, pair))
        setattr(pair, kind, stream)
        if kind == "error":
            stream.buffer.discard()  # only the server writes to it
        self._connection.accept(stream)
        if pair.data is not None and pair.error is not None:
            pair.complete.set()

    async def _serve(self, request: str, pair: Pair) -> None:
        try:
            async with asyncio.timeout(self._limits.opening):
                await pair.complete.wait()
            assert pair.data is not None
            assert pair.error is not None
            await self._forward(pair.data, pair.error, pair.port)
        except (TimeoutError, ClientGone):
            pass
        finally:
            del self._pairs[request]
        for stream in (pair.data, pair.error):
            if stream is not None:
                try:
                    await stream.reset()
                except ClientGone:
                    return

    async def _forward(self, data: Stream, error: Stream, port: int) -> None:
        try:
            sock = await self._dial(port)
        except NodeError as failure:
            await error.write(failure.message.encode())
        else:
            with sock:
                await _until_dropped(relay(sock, data), data.dropped)
        await data.finish()
        await error.finish()


async def _until_dropped(work: Awaitable[None], dropped: asyncio.Event) -> None:
    """Runs `work` until it ends, or until the client resets the stream."""
    async with asyncio.TaskGroup() as tasks:
        doing = tasks.create_task(_awaited(work))
        leaving = tasks.create_task(dropped.wait())
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        doing.cancel()
        leaving.cancel()


async def _awaited(work: Awaitable[None]) -> None:
    await work


class _Port:
    """The channels of one port; a Peer."""

    def __init__(self, forward: WebSocketPortForward, channel: int, held: int, charge: Callable[[int], object]) -> None:
        self._forward = forward
        self._channel = channel
        self.buffer = ReceiveBuffer(held, charge)

    async def read(self) -> bytes:
        return await self.buffer.read()

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), MOST):
            await self._forward.send(self._channel, data[start : start + MOST])

    async def finish(self) -> None:
        """A channel cannot be half-closed, so this ends the connection for the client."""
        self.buffer.discard()

    async def fail(self, why: str) -> None:
        self.buffer.discard()
        try:
            await self._forward.send(self._channel + 1, why.encode())
        except ClientGone:
            pass  # the task that reads the client notices


class WebSocketPortForward:
    """A port-forward over WebSocket channels: two channels, and one connection, for each port that the request names."""

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
                watch = tasks.create_task(watch_client(self._socket.keep_alive, pipe, self._limits))
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
                    self._ports[part.channel // 2].buffer.put(part.data)
            for port in self._ports:
                await port.buffer.room()

    async def _work(self) -> None:
        try:
            for index, number in enumerate(self._numbers):
                for channel in (2 * index, 2 * index + 1):
                    await self.send(channel, number.to_bytes(2, "little"))
        except ClientGone:
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


class Peer(Protocol):
    """The client's end of a forwarded connection."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Raises ClientGone if the client has disconnected."""
        ...

    async def finish(self) -> None:
        """Ends this direction: nothing more is written."""
        ...


async def relay(sock: socket.socket, peer: Peer) -> None:
    """Copies bytes until both directions have ended. The caller closes the socket."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_up(sock, peer))
        tasks.create_task(_down(sock, peer))


async def _up(sock: socket.socket, peer: Peer) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await peer.read():
            await loop.sock_sendall(sock, data)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        while await peer.read():
            pass  # the sandbox no longer reads; the client still gets what has arrived


async def _down(sock: socket.socket, peer: Peer) -> None:
    loop = asyncio.get_running_loop()
    try:
        try:
            while data := await loop.sock_recv(sock, CHUNK):
                await peer.write(data)
        except OSError:
            pass  # the sandbox reset the connection: the client sees its end
        await peer.finish()
    except ClientGone:
        pass
