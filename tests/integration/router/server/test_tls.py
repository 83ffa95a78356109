"""Over TLS everything is the same, but for what a plain socket alone can do."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from sandpool.router.options import RouterOptions
from support.clocks.manual_clock import ManualClock
from support.kube.certificates import Authority
from support.network.router_server import Client, OpenGate, client, router, upstream

BIG = 3 << 20


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of the server, and of its clients."""
    authority = Authority("router tests")
    authority.write_ca(tmp_path / "ca")
    authority.write_server(tmp_path / "server", names=["localhost"], addresses=["127.0.0.1"])
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    return server, ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))


async def echo(peer: Client) -> None:
    while True:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        if b"upgrade: sandpool-tcp" in head:
            peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sandpool-tcp\r\n\r\n")
            peer.send(await peer.reader.readexactly(5))
            return
        assert b"x-forwarded-proto: https" in head
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        body = await peer.reader.readexactly(size)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body)
        await peer.writer.drain()


async def test_requests_and_tunnels(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    data = os.urandom(BIG)
    async with upstream(echo) as port:
        gate = OpenGate(port)
        async with router(gate, tls=contexts[0]) as (_, at), client(at, contexts[1]) as caller:
            for body in (b"", b"small", data):
                caller.ask("POST", "/", body=body)
                assert (await caller.answer())[2] == body
            caller.ask("GET", "/", "Connection: Upgrade", "Upgrade: sandpool-tcp")
            assert (await caller.head())[0] == 101
            caller.send(b"hello")
            assert await caller.rest() == b"hello"
            await gate.outcomes(4)
            assert gate.ended[0][1].secure


async def test_a_hang_up_is_heard(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def waiting(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        asked.set()
        await peer.reader.read()
        left.set()

    async with upstream(waiting) as port:
        gate = OpenGate(port)
        async with router(gate, tls=contexts[0]) as (_, at):
            async with client(at, contexts[1]) as caller:
                caller.ask("GET", "/")
                await asked.wait()
            async with asyncio.timeout(20):
                await left.wait()
            assert (await gate.outcomes(1))[0].error == "client"


async def test_who_does_not_shake_hands(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    clock = ManualClock()
    gate = OpenGate(1)
    async with router(gate, RouterOptions(), clock, contexts[0]) as (_, at):
        async with client(at) as plain:
            plain.ask("GET", "/refused")
            with suppress(ConnectionResetError):
                assert b"HTTP" not in await plain.rest()
        async with client(at) as silent:
            reading = asyncio.ensure_future(silent.reader.read())
            async with asyncio.timeout(20):
                while not reading.done():
                    clock.advance(3)
                    await asyncio.sleep(0.01)
        assert not gate.admitted
