"""A stop lets requests finish, closes tunnels and idle connections at once, and cuts what takes too long."""

from __future__ import annotations

import asyncio
import socket

import pytest

from sandpool.base.clock import SystemClock
from sandpool.router.options import RouterOptions
from sandpool.router.server import RouterServer
from sandpool.router.values import Peer
from support.clocks.manual_clock import ManualClock
from support.network.router_server import Client, OpenGate, client, upstream


async def test_a_request_may_finish() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        asked.set()
        await go.wait()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with upstream(slow) as port:
        gate = OpenGate(port)
        server = RouterServer(gate, RouterOptions(), ManualClock())
        _, at = await server.listen("127.0.0.1", 0)
        async with client(at) as caller, client(at) as idle:
            idle.ask("GET", "/refused")
            await idle.answer()
            caller.ask("GET", "/")
            await asked.wait()
            stopping = asyncio.create_task(server.stop())
            assert await idle.rest() == b""
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", at)
            go.set()
            status, headers, body = await caller.answer()
            assert (status, headers["connection"], body) == (200, "close", b"ok")
            await stopping
            assert [outcome.error for outcome in await gate.outcomes(2)] == ["", ""]


async def test_what_takes_too_long_is_cut() -> None:
    clock = ManualClock()

    async def endless(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await peer.reader.read()

    async with upstream(endless) as port:
        gate = OpenGate(port)
        server = RouterServer(gate, RouterOptions(grace=5), clock)
        _, at = await server.listen("127.0.0.1", 0)
        async with client(at) as caller:
            caller.ask("GET", "/")
            await caller.head()
            assert await caller.chunk() == b"abc"
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0)
            assert not gate.ended
            clock.advance(6)
            await stopping
            assert (await gate.outcomes(1))[0].error == "stopped"


async def test_tunnels_are_closed_at_once() -> None:
    async def tunnel(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
        await peer.reader.read()

    async with upstream(tunnel) as port:
        gate = OpenGate(port)
        server = RouterServer(gate, RouterOptions(), ManualClock())  # whose time does not move
        _, at = await server.listen("127.0.0.1", 0)
        async with client(at) as caller:
            caller.ask("GET", "/", "Connection: Upgrade", "Upgrade: websocket")
            await caller.head()
            assert await caller.reader.readexactly(2) == b"hi"
            await server.stop()
            assert (await gate.outcomes(1))[0].status == 101


async def test_nothing_is_taken_after_the_stop() -> None:
    server = RouterServer(OpenGate(1), RouterOptions(), SystemClock())
    await server.stop()
    ours, theirs = socket.socketpair()
    server.take(theirs, Peer("10.0.0.1"))
    with ours:
        assert ours.recv(100).startswith(b"HTTP/1.1 503 ")
