"""exec and attach: connects a command to a client, over WebSocket channels or SPDY streams.

Three tasks run meanwhile: one reads the client, one runs the command, one checks that the client is still connected. The first to end ends the
others: if the client disconnects, its command ends; if the command ends, its status is sent and the connection is closed. Since protocol
version 4 the status is JSON; before, it is text and is sent only after an error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.options import CommandOptions
from sandpool.controlplane.apiserver.streams.pipe import ByteStream, ClientGone, Pipe, ReceiveBuffer
from sandpool.controlplane.apiserver.streams.spdy.connection import Connection, Stream
from sandpool.controlplane.apiserver.streams.upgrade import Channels
from sandpool.controlplane.apiserver.streams.websocket_channels import (
    MOST,
    ChannelDecoder,
    Finished,
    Part,
    WebSocket,
    message,
)
from sandpool.kube.errors import InternalError
from sandpool.model.pod_streams import Streams
from sandpool.telemetry.log import logger
from sandpool.wire.websocket import Violation

log = logger(__name__)

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
MOST_SIZE: Final = 4096  # bytes of one terminal resize message
Run = Callable[[Streams], Awaitable[Mapping[str, Any]]]
"""Runs the command and returns how it ended, as a Status."""
_TYPES: Final = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
SUCCESS: Final[Mapping[str, Any]] = {"metadata": {}, "status": "Success"}


class CommandConnection(Protocol):
    """The client of a command, over either protocol. `stdin` and `resize` return empty bytes at their end."""

    async def pump(self) -> None:
        """Reads from the client until it disconnects."""
        ...

    async def ready(self) -> None:
        """Waits until the client has opened its streams. Raises NodeError if it does not in time."""
        ...

    async def stdin(self) -> bytes: ...

    async def resize(self) -> bytes: ...

    async def write(self, stream: int, data: bytes) -> None:
        """Raises ClientGone if the client no longer reads the stream."""
        ...

    async def finish(self, outcome: Mapping[str, Any]) -> None:
        """Sends the status and closes. Data that still arrives is dropped."""
        ...

    async def keep_alive(self) -> None: ...


class RemoteStreams:
    """The Streams of a command: those that the client requested are connected, output of the others is dropped."""

    def __init__(self, connection: CommandConnection, options: CommandOptions, *, lasting: bool) -> None:
        self._connection = connection
        self._options = options
        # Without stdin, a command reads end-of-file at once. A container or a terminal must not: there, reading never returns.
        self._endless = lasting or options.tty
        self._sizes = bytearray()

    async def read(self) -> bytes:
        if self._options.stdin:
            return await self._connection.stdin()
        if self._endless:
            await _for_ever()
        return b""

    async def write(self, stream: int, data: bytes) -> None:
        if stream == STDERR and self._options.tty:
            stream = STDOUT
        if self._options.stdout if stream == STDOUT else self._options.stderr:
            try:
                await self._connection.write(stream, data)
            except ClientGone:
                pass  # the task that reads from the client ends the command

    async def resized(self) -> tuple[int, int]:
        while self._options.tty and (data := await self._connection.resize()):
            self._sizes += data
            if size := newest_size(self._sizes):
                return size
        await _for_ever()
        raise AssertionError


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def newest_size(text: bytearray) -> tuple[int, int] | None:
    """Removes and returns the last complete `{"Width": 80, "Height": 24}` in the buffer. Everything else is skipped."""
    found = None
    while (end := text.find(b"}")) >= 0:
        try:
            size = json.loads(text[: end + 1])
            width, height = size["Width"], size["Height"]
        except (ValueError, KeyError, TypeError, RecursionError):
            width = height = None
        if type(width) is int and type(height) is int and 0 < width < 65536 and 0 < height < 65536:
            found = (width, height)
        del text[: end + 1]
    if len(text) > MOST_SIZE:
        text.clear()
    return found


async def serve_command(
    connection: CommandConnection, pipe: Pipe, limits: StreamLimits, streams: Streams, run: Run
) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(connection.pump())
            watch = tasks.create_task(watch_client(connection.keep_alive, pipe, limits))
            work = tasks.create_task(_work(connection, streams, run))
            await asyncio.wait({pump, watch, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not pump.done():
                await asyncio.wait({pump}, timeout=limits.linger)
            for task in (pump, watch, work):
                task.cancel()
    finally:
        pipe.hang_up()


async def _work(connection: CommandConnection, streams: Streams, run: Run) -> None:
    try:
        await connection.ready()
        outcome = await run(streams)
    except NodeError as error:
        outcome = failure_status(error.message)
    except ClientGone:
        return
    except Exception as error:
        log.error("a command's streams failed", exc=error)
        outcome = failure_status("the server's log says more")
    try:
        await connection.finish(outcome)
    except ClientGone:
        pass


async def watch_client(keep_alive: Callable[[], Awaitable[None]], pipe: Pipe, limits: StreamLimits) -> None:
    """Sends keep-alives. Returns when the client has disconnected, or no byte has passed for `limits.idle`."""
    loop = asyncio.get_running_loop()
    while (left := pipe.last_activity + limits.idle - loop.time()) > 0:
        try:
            async with asyncio.timeout(min(limits.quiet, left)):
                await pipe.gone()
            return
        except TimeoutError:
            if pipe.hung_up():
                return
        try:
            await keep_alive()
        except ClientGone:
            return


class WebSocketCommand:
    """A CommandConnection over the channels of a WebSocket."""

    def __init__(self, socket: WebSocket, protocol: Channels, options: CommandOptions, limits: StreamLimits) -> None:
        self._socket = socket
        self._protocol = protocol
        self._options = options
        self._decoder = ChannelDecoder(protocol)
        self._stdin = ReceiveBuffer(limits.held, socket.charge)
        self._resize = ReceiveBuffer(limits.held, socket.charge)

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
        """Sends an empty message, which older clients expect before the command begins."""
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
        if payload := encoded_status(outcome, self._protocol.version):
            await self._send(ERROR, payload)
        await self._socket.close()

    async def keep_alive(self) -> None:
        await self._socket.keep_alive()


def expected(options: CommandOptions, version: int) -> frozenset[int]:
    """The streams that a client of this version opens."""
    asked = {STDIN: options.stdin, STDOUT: options.stdout, STDERR: options.stderr, ERROR: True}
    asked[RESIZE] = options.tty and version >= 3
    return frozenset(stream for stream, needed in asked.items() if needed)


class SpdyCommand:
    """A CommandConnection over SPDY: one stream each for stdin, stdout, stderr, errors and the terminal's size."""

    def __init__(self, connection: ByteStream, version: int, options: CommandOptions, limits: StreamLimits) -> None:
        self._version = version
        self._limits = limits
        self._expected = expected(options, version)
        self._streams: dict[int, Stream] = {}
        self._complete = asyncio.Event()
        self._connection = Connection(connection, limits, self._opened)

    def _opened(self, stream: Stream) -> None:
        kind = _TYPES.get(stream.headers.get("streamtype", ""))
        self._connection.accept(stream)
        if kind is None or kind in self._streams:
            stream.buffer.discard()
            return
        self._streams[kind] = stream
        if self._expected <= self._streams.keys():
            self._complete.set()

    async def pump(self) -> None:
        await self._connection.pump()

    async def ready(self) -> None:
        try:
            async with asyncio.timeout(self._limits.opening):
                await self._complete.wait()
        except TimeoutError:
            raise NodeError("Timeout", "timed out waiting for client to create streams") from None

    async def stdin(self) -> bytes:
        return await self._streams[STDIN].read()

    async def resize(self) -> bytes:
        return await self._streams[RESIZE].read() if RESIZE in self._streams else b""

    async def write(self, stream: int, data: bytes) -> None:
        await self._streams[stream].write(data)

    async def finish(self, outcome: Mapping[str, Any]) -> None:
        if STDIN in self._streams:
            self._streams[STDIN].buffer.discard()
        if ERROR in self._streams:
            try:
                await self._streams[ERROR].write(encoded_status(outcome, self._version))
            except ClientGone:
                pass
        for stream in self._streams.values():
            await stream.finish()
        await self._connection.close()

    async def keep_alive(self) -> None:
        await self._connection.keep_alive()


def exit_status(code: int) -> Mapping[str, Any]:
    if code == 0:
        return SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failure_status(why: str) -> Mapping[str, Any]:
    return InternalError(f"Internal error occurred: {why}", details={"causes": [{"message": why}]}).body()


def encoded_status(status: Mapping[str, Any], version: int) -> bytes:
    if version >= 4:
        return msgspec.json.encode(status)
    return b"" if status["status"] == "Success" else str(status["message"]).encode()
