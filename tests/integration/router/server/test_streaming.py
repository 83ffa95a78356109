"""Bytes flow as they come, at the speed of the slower side, in both directions."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket

import pytest

from support.network.router_server import Client, OpenGate, client, router, upstream

BIG = 24 << 20
MOST = 96 << 20
"""More than the kernel keeps on the way of two connections, and a small part of what there is to send."""


async def test_events_arrive_one_by_one() -> None:
    heard = asyncio.Event()

    async def events(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(5):
            event = b"data: %d\n\n" % number
            peer.send(b"%x\r\n%s\r\n" % (len(event), event))
            await heard.wait()  # the next one is not said before the client has this one
            heard.clear()
        peer.send(b"0\r\n\r\n")

    async with upstream(events) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        caller.ask("GET", "/events")
        assert (await caller.head())[1]["content-type"] == "text/event-stream"
        for number in range(5):
            assert await caller.chunk() == b"data: %d\n\n" % number
            heard.set()
        assert await caller.chunk() == b""


async def test_a_head_does_not_wait_for_its_body() -> None:
    go = asyncio.Event()

    async def slow(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await go.wait()
        peer.send(b"ok")

    async with upstream(slow) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        caller.ask("GET", "/")
        assert (await caller.head())[0] == 200
        go.set()
        assert await caller.reader.readexactly(2) == b"ok"


async def test_both_ways_at_once() -> None:
    async def parrot(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        async for piece in peer.chunks():
            peer.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        peer.send(b"0\r\n\r\n")

    async with upstream(parrot) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        caller.ask("POST", "/", "Transfer-Encoding: chunked")
        assert (await caller.head())[0] == 200
        for word in (b"one", b"two", b"three"):
            caller.send(b"%x\r\n%s\r\n" % (len(word), word))
            assert await caller.chunk() == word
        caller.send(b"0\r\n\r\n")
        assert await caller.chunk() == b""


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_big_body_both_ways(chunked: bool) -> None:
    """With a length it goes through a pipe of the kernel, in chunks it does not; either way it is the same at the other end."""
    data = os.urandom(1 << 20) * (BIG >> 20)

    async def keeper(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        if chunked:
            kept = b"".join([piece async for piece in peer.chunks()])
            peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(kept))
            peer.send(kept)
            peer.send(b"\r\n0\r\n\r\n")
        else:
            kept = await peer.reader.readexactly(BIG)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
            peer.send(kept)
        await peer.writer.drain()

    async with upstream(keeper) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            if chunked:
                caller.ask("PUT", "/", "Transfer-Encoding: chunked")
                caller.send(b"%x\r\n" % BIG + data + b"\r\n0\r\n\r\n")
            else:
                caller.ask("PUT", "/", body=data)
            _, _, back = await caller.answer()
            assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()
            (outcome,) = await gate.outcomes(1)
            assert (outcome.received, outcome.sent) == (BIG, BIG)


async def fill(sock: socket.socket) -> int:
    """Sends until nobody takes any more."""
    loop, sent = asyncio.get_running_loop(), 0
    piece = bytes(256 * 1024)
    try:
        while True:
            async with asyncio.timeout(0.5):
                await loop.sock_sendall(sock, piece)
            sent += len(piece)
            assert sent < MOST, "a reader that does not read must stop the writer"
    except TimeoutError:
        return sent


def narrow() -> socket.socket:
    """A connection whose kernel buffers are small, so that little is on the way."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    sock.setblocking(False)
    return sock


@pytest.mark.parametrize("framing", ["Content-Length: 1000000000", "Transfer-Encoding: chunked"])
async def test_a_slow_sandbox_stops_the_client(framing: str) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        listener.setblocking(False)
        gate = OpenGate(listener.getsockname()[1])
        async with router(gate) as (_, at):
            with narrow() as sock:
                await loop.sock_connect(sock, ("127.0.0.1", at))
                head = f"POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n"
                await loop.sock_sendall(sock, head.encode() + (b"3b9aca00\r\n" if "chunked" in framing else b""))
                deaf, _ = await loop.sock_accept(listener)
                with deaf:
                    await fill(sock)
            await gate.outcomes(1)


async def test_what_is_sent_ahead_waits_in_the_kernel() -> None:
    loop = asyncio.get_running_loop()
    gate = OpenGate(1)
    async with router(gate) as (_, at):
        with narrow() as sock:
            await loop.sock_connect(sock, ("127.0.0.1", at))
            await loop.sock_sendall(sock, b"GET /forever HTTP/1.1\r\nHost: h\r\n\r\n")
            await gate.busy(1)
            await fill(sock)


async def test_a_slow_client_stops_the_sandbox() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        gate = OpenGate(listener.getsockname()[1])
        async with router(gate) as (_, at):
            with narrow() as sock:
                await loop.sock_connect(sock, ("127.0.0.1", at))
                await loop.sock_sendall(sock, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                eager, _ = await loop.sock_accept(listener)
                eager.setblocking(False)
                eager.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
                with eager:
                    await loop.sock_sendall(eager, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
                    await fill(eager)
            assert (await gate.outcomes(1))[0].error == "client"
