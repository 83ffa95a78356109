"""What a server does not put up with, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.response import Response
from sandpool.controlplane.apiserver.server import ServerOptions
from support.api.local_server import LocalServer, local_server

PODS = "/api/v1/namespaces/default/pods"


def limited(**limits: Any) -> ServerOptions:
    return ServerOptions(limits=Limits(**limits))


async def connect(server: LocalServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.server.port, ssl=server.tls())


async def answer_to(server: LocalServer, *pieces: bytes) -> bytes:
    """What comes back, until the server closes the connection."""
    reader, writer = await connect(server)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def test_a_head_beyond_the_limit(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        for endless in (b"GET /" + b"a" * 70_000, b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000):
            assert (await answer_to(server, endless)).startswith(b"HTTP/1.1 431 ")
        assert (await server.request("GET", "/readyz")).status == 200


async def test_not_http_at_all(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        assert (await answer_to(server, b"\x16\x03\x01 nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "said",
    [b"", b"GET /readyz HTTP/1.1\r\nHost: x\r\nX: y", b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"],
)
async def test_who_takes_too_long_to_ask_is_cut_off(tmp_path: Path, said: bytes) -> None:
    async with local_server(tmp_path, options=limited(arrival=0.2)) as server:
        reader, writer = await connect(server)
        writer.write(said)
        try:
            async with asyncio.timeout(10):
                while await reader.read(65536):  # a 401 may come before the body was whole
                    pass
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()


async def test_a_kept_connection_may_rest(tmp_path: Path) -> None:
    async with local_server(tmp_path, options=limited(arrival=0.2)) as server:
        reader, writer = await connect(server)
        for _ in range(2):
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")
            await asyncio.sleep(0.5)  # longer than a request may take to arrive, and than a sweep
        writer.transport.abort()


async def test_of_connections_that_say_nothing_the_oldest_gives_way(tmp_path: Path) -> None:
    async with local_server(tmp_path, options=limited(strangers=2)) as server:
        (silent, first), *held = [await connect(server) for _ in range(3)]
        async with asyncio.timeout(10):
            assert await silent.read() == b""
        first.transport.abort()
        for _, writer in held:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        for reader, writer in held:
            assert await reader.readuntil(b"ok")
            writer.transport.abort()


class Slow:
    """A runtime that answers on demand."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def serve(self, call: Call, pod: bytes) -> Response:
        self.asked.set()
        await self.go.wait()
        raise RuntimeError("a bug")


async def pod(server: LocalServer) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert (await server.request("POST", PODS, body)).status == 201


async def test_no_more_requests_at_once_than_the_limit(tmp_path: Path) -> None:
    slow = Slow()
    async with local_server(tmp_path, options=limited(requests=1), runtime=slow) as server:
        await pod(server)
        first = asyncio.create_task(server.request("GET", f"{PODS}/p/log"))
        await slow.asked.wait()
        refused = await server.request("GET", PODS)
        assert (refused.status, refused.headers["Retry-After"], refused.json["reason"]) == (429, "1", "TooManyRequests")
        slow.go.set()
        assert (await first).status == 500
        assert (await server.request("GET", PODS)).status == 200


async def test_a_bug_is_a_500_that_tells_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    slow.go.set()
    async with local_server(tmp_path, runtime=slow) as server:
        await pod(server)
        answer = await server.request("GET", f"{PODS}/p/log")
    assert (answer.status, answer.json["reason"], "bug" in answer.json["message"]) == (500, "InternalError", False)
    assert "RuntimeError: a bug" in caplog.text


async def test_stop_waits_for_requests_in_flight(tmp_path: Path) -> None:
    slow = Slow()
    async with local_server(tmp_path, runtime=slow) as server:
        await pod(server)
        first = asyncio.create_task(server.request("GET", f"{PODS}/p/log"))
        await slow.asked.wait()
        stopping = asyncio.create_task(server.server.stop())
        await asyncio.sleep(0)
        with pytest.raises(OSError):
            await connect(server)
        assert not stopping.done()
        slow.go.set()
        assert (await first).status == 500
        await stopping


async def test_but_not_for_ever(tmp_path: Path) -> None:
    slow = Slow()
    async with local_server(tmp_path, options=limited(graceful=0.1), runtime=slow) as server:
        await pod(server)
        first = asyncio.create_task(server.request("GET", f"{PODS}/p/log"))
        await slow.asked.wait()
        await server.server.stop()
        assert (await first).status == 500


async def test_stop_twice_and_stop_unstarted_are_fine(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        await server.server.stop()
        await server.server.stop()


async def test_a_taken_port_is_an_error_and_leaks_nothing(tmp_path: Path) -> None:
    async with local_server(tmp_path / "a") as first:
        with pytest.raises(OSError, match="in use"):
            async with local_server(tmp_path / "b", options=ServerOptions(port=first.server.port)):
                pass


async def test_of_clients_that_connect_and_fall_silent_the_oldest_gives_way(tmp_path: Path) -> None:
    """Before the handshake, where nothing is known of them yet."""
    async with local_server(tmp_path, options=limited(handshakes=5)) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.server.port) for _ in range(50)]
        assert (await server.request("GET", "/readyz")).status == 200
        async with asyncio.timeout(5):  # much less than a handshake may take
            for reader, _ in silent[:44]:
                assert await reader.read() == b""
        for _, writer in silent:
            writer.transport.abort()
