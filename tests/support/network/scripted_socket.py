"""A real server on a loopback socket that plays one act for each connection, and clients of both worlds to try it with.

An act gets the accepted socket and may do anything with it; it runs in the server's thread. Clients look the same whether they
block or wait on an event loop, so that one test is about both.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sandpool.sdk._async.http import Http as WaitingHttp
from sandpool.sdk._async.http import Response as WaitingResponse
from sandpool.sdk._sync.http import Http as BlockingHttp
from sandpool.sdk._sync.http import Response as BlockingResponse
from sandpool.sdk.origin import Origin, read_origin
from sandpool.wire.websocket import accept_key

Act = Callable[[socket.socket], None]
Answered = WaitingResponse | BlockingResponse


@dataclass
class Scripted:
    origin: Origin
    closed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))  # once for each connection
    errors: list[BaseException] = field(default_factory=list)


@contextmanager
def scripted(*acts: Act, tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """The first connection meets the first act, and so on; after the last one nobody accepts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        scheme = "https" if tls else "http"
        server = Scripted(read_origin(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", "the test"))
        thread = threading.Thread(target=_play, args=(server, listener, acts, tls))
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
        assert not thread.is_alive(), "an act goes on"
        assert not server.errors, server.errors


def _play(server: Scripted, listener: socket.socket, acts: tuple[Act, ...], tls: ssl.SSLContext | None) -> None:
    for act in acts:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        accepted.settimeout(10)
        try:
            line = tls.wrap_socket(accepted, server_side=True) if tls else accepted
        except OSError:
            accepted.close()
            continue
        with line:
            try:
                act(line)
            except BaseException as error:
                server.errors.append(error)
        server.closed.release()


def read_head(line: socket.socket) -> bytes:
    """Up to the empty line; empty if the client has closed. Bytes behind it stay where they are."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = line.recv(1)
        if not byte:
            return b""
        head += byte
    return head


def read_request(line: socket.socket) -> tuple[bytes, int]:
    """The head, and how many bytes of body came with a Content-Length."""
    head = read_head(line)
    size = next((int(row[15:]) for row in head.split(b"\r\n") if row.lower().startswith(b"content-length:")), 0)
    got = 0
    while got < size:
        data = line.recv(min(1 << 20, size - got))
        if not data:
            break
        got += len(data)
    return head, got


def upgrade(line: socket.socket) -> None:
    """Answers a request for a WebSocket."""
    head = read_head(line)
    key = next(row[19:] for row in head.split(b"\r\n") if row.lower().startswith(b"sec-websocket-key: "))
    rows = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
    line.sendall(b"\r\n".join([*rows, b"Sec-WebSocket-Accept: " + accept_key(key), b"", b""]))


def ok(body: bytes = b"", *more: bytes) -> bytes:
    rows = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *more, b"", body]
    return b"\r\n".join(rows)


class Blocking:
    """Threads and blocking sockets."""

    name = "blocking"

    def __init__(self, origin: Origin, **options: Any) -> None:
        self.http = BlockingHttp(origin, **options)

    def request(self, method: str, path: str, **options: Any) -> Answered:
        return self.http.request(method, path, **options)

    def stream(self, method: str, path: str, take: int | None = None, **options: Any) -> tuple[int, bytes]:
        """Status and body; with `take`, only so many bytes before it is left."""
        with self.http.stream(method, path, **options) as answer:
            return answer.status, answer.read(take) if take is not None else b"".join(answer)

    def converse(self, path: str, *messages: bytes) -> list[bytes | None]:
        """Sends each message on a WebSocket and receives one; then receives once more."""
        with self.http.websocket(path, timeout=10) as line:
            answers: list[bytes | None] = []
            for message in messages:
                line.send(message)
                answers.append(line.receive(10))
            return [*answers, line.receive(10)]

    def close(self) -> None:
        self.http.close()


class Waiting:
    """An event loop."""

    name = "waiting"

    def __init__(self, origin: Origin, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.http = WaitingHttp(origin, **options)

    def request(self, method: str, path: str, **options: Any) -> Answered:
        return self.runner.run(self.http.request(method, path, **options))

    def stream(self, method: str, path: str, take: int | None = None, **options: Any) -> tuple[int, bytes]:
        return self.runner.run(self._stream(method, path, take, **options))

    def converse(self, path: str, *messages: bytes) -> list[bytes | None]:
        return self.runner.run(self._converse(path, messages))

    def close(self) -> None:
        self.runner.run(self.http.close())
        self.runner.close()

    async def _stream(self, method: str, path: str, take: int | None, **options: Any) -> tuple[int, bytes]:
        if "chunks" in options:
            options["body"] = _aiter(options.pop("chunks"))
        async with self.http.stream(method, path, **options) as answer:
            if take is not None:
                return answer.status, await answer.read(take)
            return answer.status, b"".join([data async for data in answer])

    async def _converse(self, path: str, messages: tuple[bytes, ...]) -> list[bytes | None]:
        async with self.http.websocket(path, timeout=10) as line:
            answers: list[bytes | None] = []
            for message in messages:
                await line.send(message)
                answers.append(await line.receive(10))
            return [*answers, await line.receive(10)]


async def _aiter(chunks: Any) -> Any:
    for chunk in chunks:
        yield chunk


WORLDS = [Blocking, Waiting]
