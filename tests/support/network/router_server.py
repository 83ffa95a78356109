"""A real RouterServer behind a gate that lets everybody through to one upstream, and a client that speaks by hand."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from sandpool.base.clock import Clock, SystemClock
from sandpool.model.metadata import Uid
from sandpool.router.options import RouterOptions
from sandpool.router.ports import NoAnswer, Target
from sandpool.router.server import RouterServer
from sandpool.router.values import Admitted, Answer, Outcome, Peer, Request

TARGET = Target("default", "box", Uid("u-1"), "box", "127.0.0.1")


@dataclass
class OpenGate:
    """Admits everything to one address. `/refused` is answered, `/echo-body` is read and answered here."""

    port: int
    decide: Admitted | None = None  # what to change about an Admitted is taken from here
    admitted: list[Request] = field(default_factory=list)
    ended: list[tuple[Request, Peer, Admitted | Answer, Outcome]] = field(default_factory=list)
    connections: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    def plan(self, request: Request) -> Admitted:
        base = Admitted(TARGET, "somebody", request.path, self.connect, "pool")
        if self.decide is None:
            return base
        return replace(self.decide, path=request.path, connect=self.connect)

    async def admit(self, request: Request, peer: Peer, body: Callable[[int], Awaitable[bytes]]) -> Admitted | Answer:
        self.admitted.append(request)
        if request.path == b"/refused":
            return Answer(403, {"detail": "not you"}, caller="somebody")
        if request.path == b"/body":
            return Answer(200, {"detail": (await body(1000)).decode()})
        if request.path == b"/bug":
            raise ValueError("a bug of the gate")
        if request.path == b"/forever":
            await asyncio.Event().wait()
        return self.plan(request)

    def finished(self, request: Request, peer: Peer, decided: Admitted | Answer, outcome: Outcome) -> None:
        self.ended.append((request, peer, decided, outcome))
        self.heard.set()

    async def connect(self) -> socket.socket:
        self.connections += 1
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        except OSError as error:
            sock.close()
            raise NoAnswer("nobody listens there") from error
        except asyncio.CancelledError:
            sock.close()
            raise
        return sock

    async def busy(self, count: int) -> None:
        """Waits until so many requests have come."""
        async with asyncio.timeout(20):
            while len(self.admitted) < count:
                await asyncio.sleep(0.005)

    async def outcomes(self, count: int) -> list[Outcome]:
        """Waits until so many requests have ended."""
        async with asyncio.timeout(20):
            while len(self.ended) < count:
                self.heard.clear()
                await self.heard.wait()
        return [outcome for *_, outcome in self.ended]


@asynccontextmanager
async def router(
    gate: OpenGate,
    options: RouterOptions = RouterOptions(grace=0.2),
    clock: Clock | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[RouterServer, int]]:
    server = RouterServer(gate, options, clock or SystemClock())
    _, port = await server.listen("127.0.0.1", 0, tls)
    try:
        yield server, port
    finally:
        await server.stop()


class Client:
    """One connection; everything that it says and hears is bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, method: str, path: str, *headers: str, body: bytes = b"") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: router.test", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers, names in lower case."""
        async with asyncio.timeout(20):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:-2])
        return int(lines[0].split()[1]), fields

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = await self.head()
        async with asyncio.timeout(20):
            if "content-length" in headers:
                return status, headers, await self.reader.readexactly(int(headers["content-length"]))
            if headers.get("transfer-encoding") == "chunked":
                return status, headers, b"".join([chunk async for chunk in self.chunks()])
            return status, headers, b"" if status in (204, 304) else await self.reader.read()

    async def chunk(self) -> bytes:
        """The next one; empty: it was the last."""
        async with asyncio.timeout(20):
            size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def chunks(self) -> AsyncIterator[bytes]:
        while piece := await self.chunk():
            yield piece

    async def rest(self) -> bytes:
        """Everything until the other side ends. Raises ConnectionResetError if it aborts."""
        async with asyncio.timeout(20):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


@asynccontextmanager
async def client(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    made = Client(
        *await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None)
    )
    try:
        yield made
    finally:
        await made.close()


Script = Callable[[Client], Awaitable[None]]


@asynccontextmanager
async def upstream(script: Script) -> AsyncIterator[int]:
    """A server that plays a script on each connection; a script that fails fails the test."""
    failures: list[Exception] = []
    playing: set[asyncio.Task[None]] = set()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Client(reader, writer)
        try:
            await script(peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception as error:
            failures.append(error)
        finally:
            await peer.close()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        playing.add(asyncio.create_task(play(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
        if playing:
            _, late = await asyncio.wait(playing, timeout=5)
            assert not late, "a script goes on although its connection has gone"
    assert not failures, failures
