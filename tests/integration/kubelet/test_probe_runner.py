"""Probes over real sockets, answered by servers that behave badly."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandpool.base.clock import SystemClock
from sandpool.controlplane.apiserver.access.directory import open_access
from sandpool.model.metadata import Uid
from sandpool.node.backend import BackendError, Command, Exit, Streams
from sandpool.node.kubelet.pods import Handler, NodeContainer
from sandpool.node.kubelet.probe_runner import MOST_OUTPUT, PAUSE, ProbeOutcome, ProbeRunner, ProbeTarget, shown
from sandpool.node.kubelet.probe_state import Result
from sandpool.node.runtimes.fake import FakeBackend

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Dialling(FakeBackend):
    """Dials a listener of the test whatever port is asked for."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(SystemClock())
        self._address = address

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        connection = socket.socket()
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, self._address)
        except OSError as error:
            connection.close()
            raise BackendError("ConnectionRefused", f"nobody listens on port {port}") from error
        return connection


@asynccontextmanager
async def server(serve: Serve, secure: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, int]]:
    tasks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.transport.abort()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=secure)
    try:
        yield listener.sockets[0].getsockname()
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()


async def get(address: tuple[str, int], timeout: float = 5.0, **action: Any) -> ProbeOutcome:
    asking = ProbeRunner(Dialling(address), SystemClock())
    handler = msgspec.convert({"httpGet": {"port": 80, **action}}, Handler)
    return await asking.run(ProbeTarget(Uid("u"), NodeContainer(name="main")), handler, timeout)


def answering(data: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()

    return serve


@pytest.mark.parametrize(
    ("data", "result", "text"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", Result.SUCCESS, ""),
        (b"HTTP/1.0 204\r\n\r\n", Result.SUCCESS, ""),
        (b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n", Result.SUCCESS, ""),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", Result.FAILURE, "HTTP probe failed with statuscode: 404"),
        (b"HTTP/1.1 503 \x1b[2J\r\n\r\n", Result.FAILURE, "HTTP probe failed with statuscode: 503"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", Result.FAILURE, "the response is not HTTP/1"),
        (b"HTTP/1.1 -20 OK\r\n\r\n", Result.FAILURE, "the response is not HTTP/1"),
        (b"SSH-2.0-x\r\n", Result.FAILURE, "the response is not HTTP/1"),
        (b"\n", Result.FAILURE, "the response is not HTTP/1"),
    ],
)
async def test_answers(data: bytes, result: Result, text: str) -> None:
    async with server(answering(data)) as address:
        assert await get(address) == ProbeOutcome(result, text)


async def test_a_line_without_an_end_is_not_read_for_ever() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"A" * 65536)
            await writer.drain()

    async with server(serve) as address:
        found = await get(address)
        assert found.result is Result.FAILURE
        assert "timed out" not in found.text


async def test_silence_and_drops_of_bytes_end_at_the_timeout() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 200 OK" * 1000:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)

    for serve in (silent, dripping):
        async with server(serve) as address:
            found = await get(address, timeout=0.2)
            assert found == ProbeOutcome(Result.FAILURE, 'Get "http://localhost:80/" timed out after 0.2s')


async def test_a_peer_that_hangs_up() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with server(rude) as address:
        assert (await get(address)).result is Result.FAILURE
    found = await get(address)
    assert found == ProbeOutcome(Result.FAILURE, 'Get "http://localhost:80/": nobody listens on port 80')


async def test_what_is_sent() -> None:
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await writer.drain()

    async with server(serve) as address:
        headers = [{"name": "X-A", "value": "1"}, {"name": "host", "value": "my.host"}]
        assert (await get(address, path="/a b?q=ü", httpHeaders=headers)).result is Result.SUCCESS
        probes = got[0].decode().split("\r\n")
        assert probes[0] == "GET /a%20b?q=%C3%BC HTTP/1.1"
        assert "X-A: 1" in probes
        assert [progress for progress in probes if progress.lower().startswith("host:")] == ["host: my.host"]
        await get(address, path="/x HTTP/1.1\r\nX-Smuggled: 1")
        assert len(got[1].split(b"\r\n")) == 7, "nothing was smuggled in by the path"
        wrong = await get(address, httpHeaders=[{"name": "X", "value": "1\r\nX-Smuggled: 1"}])
        assert (wrong.result, len(got)) == (Result.FAILURE, 2)


async def test_https_asks_whether_not_who(tmp_path: Path) -> None:
    access = open_access(tmp_path / "access", (), datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_certificate(access, tmp_path))
    async with server(answering(b"HTTP/1.1 200 OK\r\n\r\n"), context) as address:
        assert (await get(address, scheme="HTTPS")).result is Result.SUCCESS
    async with server(answering(b"HTTP/1.1 200 OK\r\n\r\n")) as address:
        assert (await get(address, scheme="HTTPS", timeout=2.0)).result is Result.FAILURE


def _certificate(access: Any, folder: Path) -> tuple[Path, Path]:
    found = sorted(folder.rglob("*.crt")) + sorted(folder.rglob("*.pem"))
    keys = sorted(folder.rglob("*.key"))
    assert found, sorted(folder.rglob("*"))
    return next(path for path in found if "server" in path.name), next(key for key in keys if "server" in key.name)


def test_what_a_sandbox_says_is_cleaned_before_it_is_shown() -> None:
    assert shown("a\x1b[31m\r\nb\0\tc") == "a [31m b c"
    assert len(shown("x" * 10**6)) < 1000
    assert shown("\ud800 \u202e") == ""


class Talking(FakeBackend):
    """Runs commands that say very much, one piece after the other, as fast as they are taken."""

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        for _ in range(1000):
            await streams.write(1, bytes(4096))
        now = datetime.now(UTC)
        return Exit(1, now, now)


class Counting(SystemClock):
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_a_command_that_says_more_than_is_kept_waits_between_its_pieces() -> None:
    clock = Counting()
    handler = msgspec.convert({"exec": {"command": ["cat", "/dev/zero"]}}, Handler)
    answer = await ProbeRunner(Talking(clock), clock).run(
        ProbeTarget(Uid("u"), NodeContainer(name="main")), handler, 30.0
    )
    assert answer.result is Result.FAILURE
    assert clock.slept == [PAUSE] * (1000 - -(-MOST_OUTPUT // 4096))


@pytest.mark.parametrize(
    "probe",
    [
        {"httpGet": {"port": 80, "path": "/\u00e9" + "x" * 1_000_000}},
        {"httpGet": {"port": 80, "httpHeaders": [{"name": "a", "value": "b" * 30_000}] * 3}},
        {"exec": {"command": ["sh", "x" * 100_000]}},
    ],
    ids=["path", "headers", "command"],
)
async def test_a_probe_of_a_megabyte_is_not_run_every_second(probe: dict[str, Any]) -> None:
    """Quoting such a path takes a tenth of a second, in which nobody else is served."""

    class Nowhere(FakeBackend):
        async def dial(self, uid: Uid, port: int) -> socket.socket:
            raise AssertionError("it was dialled")

        async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
            raise AssertionError("it was run")

    clock = SystemClock()
    found = await ProbeRunner(Nowhere(clock), clock).run(
        ProbeTarget(Uid("u"), NodeContainer(name="main")), msgspec.convert(probe, Handler), 1.0
    )
    assert found.result is Result.FAILURE
    assert "at most" in found.text
