# generated from sdk/_async/frame_streams.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""Streams of frames of one process: from the response to a request, or from a WebSocket.

They do not reconnect: when the connection is lost, they raise Unreachable; `None` means that the other side ended the stream normally.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from sandpool.kube.errors import Unreachable
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.http import Answer
from sandpool.sdk._sync.websocket import WebSocket
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
    def next(self, timeout: float | None = None) -> Frame | None: ...

    def close(self) -> None: ...


class ResponseFrames:
    """The frames of an answer."""

    def __init__(self, context: AbstractContextManager[Answer], answer: Answer) -> None:
        self._context = context
        self._answer = answer
        self._frames = Frames()
        self._ready: deque[Frame] = deque()

    @classmethod
    def open(cls, plane: DataPlane, method: str, path: str, body: bytes = b"") -> ResponseFrames:
        headers = [("Accept", CONTENT_TYPE)]
        if body:
            headers.append(("Content-Type", "application/json"))
        context = plane.stream(method, path, headers, body, timeout=HEAD)
        return cls(context, context.__enter__())

    def next(self, timeout: float | None = None) -> Frame | None:
        deadline = after(timeout)
        while not self._ready:
            data = self._answer.read(timeout=left(deadline))
            if not data:
                return None
            try:
                self._ready += self._frames.feed(data)
            except BadFrame as error:
                raise RouterError(f"the sandbox's daemon speaks another version: {error}") from None
        return _sound(self._ready.popleft())

    def close(self) -> None:
        self._context.__exit__(None, None, None)


class WebSocketFrames:
    """The frames of a WebSocket, which can be answered."""

    def __init__(self, context: AbstractContextManager[WebSocket], socket: WebSocket) -> None:
        self._context = context
        self._socket = socket

    @classmethod
    def open(cls, plane: DataPlane, path: str) -> WebSocketFrames:
        context = plane.websocket(path, timeout=HEAD)
        return cls(context, context.__enter__())

    def next(self, timeout: float | None = None) -> Frame | None:
        data = self._socket.receive(timeout)
        try:
            return None if data is None else _sound(read_message(data))
        except BadFrame as error:
            raise RouterError(f"the sandbox's daemon speaks another version: {error}") from None

    def send(self, kind: Kind, data: bytes = b"") -> None:
        self._socket.send(message(kind, data))

    def close(self) -> None:
        self._context.__exit__(None, None, None)

    def abort(self) -> None:
        """Closes the connection without the closing handshake, which would wait for the other side."""
        self._context.__exit__(ConnectionAbortedError, ConnectionAbortedError(), None)


class FedFrames:
    """A command that gets input while its output is read: alternately, and never more than a window ahead of what it has read."""

    def __init__(self, link: WebSocketFrames, pieces: Iterator[bytes]) -> None:
        self._link = link
        self._pieces = pieces
        self._started = False  # until then nothing is sent: the daemon may refuse the command
        self._open = True  # there may be more to send
        self._ended = False
        self._sent = 0
        self._taken = 0

    @classmethod
    def open(cls, plane: DataPlane, path: str, spec: dict[str, object], pieces: Iterator[bytes]) -> FedFrames:
        link = WebSocketFrames.open(plane, path)
        try:
            link.send(Kind.START, encode(spec))
        except BaseException:
            link.close()
            raise
        return cls(link, pieces)

    def next(self, timeout: float | None = None) -> Frame | None:
        deadline = after(timeout)
        while True:
            while self._started and self._open and self._sent - self._taken < WINDOW:
                self._send_piece()
            frame = self._link.next(left(deadline))
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

    def _send_piece(self) -> None:
        for piece in self._pieces:
            self._send(Kind.STDIN, piece)
            self._sent += len(piece)
            return
        self._open = False
        self._send(Kind.STDIN_END)

    def _send(self, kind: Kind, data: bytes = b"") -> None:
        """The daemon closes the connection once the command has ended. How it ended was said before and is still to be read; if
        it was not, reading fails as well."""
        try:
            self._link.send(kind, data)
        except Unreachable:
            self._open = False

    def close(self) -> None:
        if self._ended:
            self._link.close()
        else:
            self._link.abort()


def _sound(frame: Frame) -> Frame:
    """Whoever gets it finds the object in it that it must hold."""
    if frame.kind not in (Kind.STDOUT, Kind.STDERR):
        with understood():
            _ = frame.value
    return frame
