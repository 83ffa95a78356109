"""After an upgrade the line carries bytes, both ways and by halves."""

from __future__ import annotations

import asyncio

import pytest

from support.clocks.manual_clock import ManualClock
from support.network.router_server import Client, OpenGate, client, router, upstream

WEBSOCKET = ("Connection: Upgrade", "Upgrade: WebSocket", "Sec-WebSocket-Key: x", "Origin: http://router.test")
TCP = ("Connection: Upgrade", "Upgrade: sandpool-tcp")


async def switched(peer: Client) -> bytes:
    """Accepts the upgrade that was asked for."""
    head = await peer.reader.readuntil(b"\r\n\r\n")
    wanted = next(line for line in head.split(b"\r\n") if line.startswith(b"upgrade: "))
    peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" + wanted + b"\r\nX-Extra: 1\r\n\r\n")
    return head


async def echo(peer: Client) -> None:
    await switched(peer)
    while data := await peer.reader.read(65536):
        peer.send(data)
        await peer.writer.drain()
    peer.send(b"bye")


@pytest.mark.parametrize("wanted", [WEBSOCKET, TCP])
async def test_bytes_both_ways_and_an_end_by_halves(wanted: tuple[str, ...]) -> None:
    async with upstream(echo) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask("GET", "/", *wanted)
            status, headers = await caller.head()
            assert (status, headers["connection"], headers["x-extra"]) == (101, "upgrade", "1")
            assert headers["upgrade"] == wanted[1].partition(": ")[2].lower()
            for word in (b"one", b"\x00\xff" * 100_000):
                caller.send(word)
                async with asyncio.timeout(20):
                    assert await caller.reader.readexactly(len(word)) == word
            caller.writer.write_eof()
            assert await caller.rest() == b"bye"
            (outcome,) = await gate.outcomes(1)
            assert (outcome.status, outcome.received, outcome.sent, outcome.error) == (101, 200_003, 200_006, "")


async def test_what_was_said_too_early_is_not_lost() -> None:
    async def eager(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sandpool-tcp\r\n\r\nhello")
        assert await peer.reader.readexactly(5) == b"early"

    async with upstream(eager) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        caller.ask("GET", "/", *TCP)
        caller.send(b"early")
        await caller.head()
        assert await caller.rest() == b"hello"


async def test_the_client_hangs_up() -> None:
    left = asyncio.Event()

    async def silent(peer: Client) -> None:
        await switched(peer)
        await peer.reader.read()
        left.set()

    async with upstream(silent) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at):
            async with client(at) as caller:
                caller.ask("GET", "/", *WEBSOCKET)
                await caller.head()
            async with asyncio.timeout(20):
                await left.wait()
            assert (await gate.outcomes(1))[0].status == 101


async def test_a_websocket_has_no_half() -> None:
    """A sandbox that does not care for the end of its client is cut off after a moment; one with a byte stream is not."""
    clock = ManualClock()
    release = asyncio.Event()

    async def deaf(peer: Client) -> None:
        await switched(peer)
        await peer.reader.read()
        peer.send(b"still here")
        await release.wait()

    async with upstream(deaf) as port:
        gate = OpenGate(port)
        async with router(gate, clock=clock) as (_, at), client(at) as stream, client(at) as socket:
            for one, wanted in ((stream, TCP), (socket, WEBSOCKET)):
                one.ask("GET", "/", *wanted)
                await one.head()
                one.writer.write_eof()
                async with asyncio.timeout(20):
                    assert await one.reader.readexactly(10) == b"still here"
            clock.advance(60)
            assert await socket.rest() == b""
            assert len(await gate.outcomes(1)) == 1
            release.set()
            assert await stream.rest() == b""
            assert len(await gate.outcomes(2)) == 2


async def test_an_upgrade_may_be_refused() -> None:
    async def no(peer: Client) -> None:
        while True:
            await peer.reader.readuntil(b"\r\n\r\n")
            peer.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")

    async with upstream(no) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        for _ in range(2):
            caller.ask("GET", "/", *WEBSOCKET)
            status, _, body = await caller.answer()
            assert (status, body) == (403, b"no")


async def test_other_protocols_are_not_passed_on() -> None:
    async def plain(peer: Client) -> None:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        assert b"upgrade" not in head
        assert b"http2-settings" not in head
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with upstream(plain) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        caller.ask("GET", "/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
        assert (await caller.answer())[2] == b"ok"


async def test_another_protocol_than_asked_for() -> None:
    async def other(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sandpool-tcp\r\n\r\n")

    async with upstream(other) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        caller.ask("GET", "/", *WEBSOCKET)
        assert (await caller.answer())[0] == 502
