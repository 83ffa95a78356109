"""Streams of frames of one process: from the response to a request, or from a WebSocket.

They do not reconnect: when the connection is lost, they raise Unreachable; `None` means that the other side ended the stream normally.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from sandpool.kube.errors import Unreachable
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.http import Answer
from sandpool.sdk._async.websocket import WebSocket
from sandpool.sdk.answers import understood
from sandpool.sdk.deadline import after, left
from sandpool.sdk.errors import RouterError
from sandpool.wire.frames import CONTENT_TYPE, BadFrame, Frame, Frames, Kind, encode, message, read_message

HEAD = 60.0
"""Seconds until the answer must begin."""
WINDOW = 256 * 1024
"""Bytes of stdin in flight at most. The daemon buffers as much, so that sending never waits for the process itself, and one task can
alternate between sending and receiving."""


class FrameStream(Protocol):
    async def next(self, timeout: float | None = None) -> Frame | None: ...

    async def close(self) -> None: ...


class ResponseFrames:
    """The frames of an answer."""

    def __init__(self, context: AbstractAsyncContextManager[Answer], answer: Answer) -> None:
        self._context = context
        self._answer = answer
        self._frames = Frames()
        self._ready: deque[Frame] = deque()

    @classmethod
    async def open(cls, plane: DataPlane, method: str, path: str, body: bytes = b"") -> ResponseFrames:
        headers = [("Accept", CONTENT_TYPE)]
        if body:
            headers.append(("Content-Type", "application/json"))
        context = plane.stream(method, path, headers, body, timeout=HEAD)
        return cls(context, await context.__aenter__())

    async def next(self, timeout: float | None = None) -> Frame | None:
        deadline = after(timeout)
        while not self._ready:
            data = await self._answer.read(timeout=left(deadline))
            if not data:
                return None
            try:
                self._ready += self._frames.feed(data)
            except BadFrame as error:
                raise RouterError(f"the sandbox's daemon speaks another version: {error}") from None
        return _sound(self._ready.popleft())

    async def close(self) -> None:
        await self._context.__aexit__(None, None, None)


class WebSocketFrames:
    """The frames of a WebSocket, which can be answered."""

    def __init__(self, context: AbstractAsyncContextManager[WebSocket], socket: WebSocket) -> None:
        self._context = context
        self._socket = socket

    @classmethod
    async def open(cls, plane: DataPlane, path: str) -> WebSocketFrames:
        context = plane.websocket(path, timeout=HEAD)
        return cls(context, await context.__aenter__())

    async def next(self, timeout: float | None = None) -> Frame | None:
        data = await self._socket.receive(timeout)
        try:
            return None if data is None else _sound(read_message(data))
        except BadFrame as error:
            raise RouterError(f"the sandbox's daemon speaks another version: {error}") from None

    async def send(self, kind: Kind, data: bytes = b"") -> None:
        await self._socket.send(message(kind, data))

    async def close(self) -> None:
        await self._context.__aexit__(None, None, None)

    async def abort(self) -> None:
        """Closes the connection without the closing handshake, which would wait for the other side."""
        await self._context.__aexit__(ConnectionAbortedError, ConnectionAbortedError(), None)


class FedFrames:
    """A command that gets input while its output is read: alternately, and never more than a window ahead of what it has read."""

    def __init__(self, link: WebSocketFrames, pieces: AsyncIterator[bytes]) -> None:
        self._link = link
        self._pieces = pieces
        self._started = False  # until then nothing is sent: the daemon may refuse the command
        self._open = True  # there may be more to send
        self._ended = False
        self._sent = 0
        self._taken = 0

    @classmethod
    async def open(
        cls, plane: DataPlane, path: str, spec: dict[str, object], pieces: AsyncIterator[bytes]
    ) -> FedFrames:
        link = await WebSocketFrames.open(plane, path)
        try:
            await link.send(Kind.START, encode(spec))
        except BaseException:
            await link.close()
            raise
        return cls(link, pieces)

    async def next(self, timeout: float | None = None) -> Frame | None:
        deadline = after(timeout)
        while True:
            while self._started and self._open and self._sent - self._taken < WINDOW:
                await self._send_piece()
            frame = await self._link.next(left(deadline))
            if frame is None or frame.kind not in (Kind.TAKEN, Kind.ERROR):
                self._started = True
                self._ended = self._ended or frame is None or frame.kind is Kind.EXIT
                self._open = self._open and not self._ended
                return frame
            if frame.kind is Kind.TAKEN:
                with understood():
                    self._taken = min(int(frame.value.get("stdin", 0)), self._sent)  # else the window would have no end
            elif self._started:  # it reads no more input; its exit follows
                self._open = False
            else:
                return frame

    async def _send_piece(self) -> None:
        async for piece in self._pieces:
            await self._send(Kind.STDIN, piece)
            self._sent += len(piece)
            return
        self._open = False
        await self._send(Kind.STDIN_END)

    async def _send(self, kind: Kind, data: bytes = b"") -> None:
        """The daemon closes the connection once the command has ended. How it ended was said before and is still to be read; if
        it was not, reading fails as well."""
        try:
            await self._link.send(kind, data)
        except Unreachable:
            self._open = False

    async def close(self) -> None:
        if self._ended:
            await self._link.close()
        else:
            await self._link.abort()


def _sound(frame: Frame) -> Frame:
    """Whoever gets it finds the object in it that it must hold."""
    if frame.kind not in (Kind.STDOUT, Kind.STDERR):
        with understood():
            _ = frame.value
    return frame
