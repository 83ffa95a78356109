"""Clients that cheat, stall or crowd: none of it reaches a sandbox, and none of it holds up the others."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress

import pytest

from sandpool.router.connection import Connection, HangupCheck
from sandpool.router.options import RouterOptions
from sandpool.router.values import Peer
from support.clocks.manual_clock import ManualClock
from support.network.router_server import Client, OpenGate, client, router, upstream


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: other\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX-Sandbox-ID: a\r\nX-Sandbox-ID: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: h\n\n\r\n\r\n", 400),
        (b"GET http://169.254.1.1/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\n" + b"".join(b"X-%d: y\r\n" % at for at in range(200)) + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 40000 + b"\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 40000, 431),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: gold\r\nContent-Length: 1\r\n\r\n", 417),
    ],
    ids=lambda value: repr(value)[:60],
)  # fmt: skip
async def test_what_is_not_understood_goes_nowhere(data: bytes, status: int) -> None:
    gate = OpenGate(1)
    async with router(gate) as (_, at), client(at) as caller:
        caller.send(data)
        got, headers, body = await caller.answer()
        assert (got, headers["connection"]) == (status, "close")
        assert json.loads(body)["detail"]
        assert await caller.rest() == b""  # and nothing behind it was taken for a request
        assert not gate.admitted


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"3\r\nabcd\r\n", b"-1\r\n", b"3\nabc\r\n"])
@pytest.mark.parametrize("late", [True, False])
async def test_bad_chunks(chunk: bytes, late: bool) -> None:
    heard = asyncio.Event()
    left = asyncio.Event()

    async def deaf(peer: Client) -> None:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        heard.set()
        rest = await peer.reader.read()
        assert not rest.endswith(b"0\r\n\r\n"), head
        left.set()

    async with upstream(deaf) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask("POST", "/", "Transfer-Encoding: chunked")
            if late:
                caller.send(b"2\r\nok\r\n")
                async with asyncio.timeout(20):
                    await heard.wait()
            caller.send(chunk)
            status, headers, _ = await caller.answer()
            assert (status, headers["connection"]) == (400, "close")
            await gate.outcomes(1)
            if late:
                async with asyncio.timeout(20):
                    await left.wait()


async def reached(gate: OpenGate, clock: ManualClock, caller: Client, seconds: float) -> bytes:
    """What the client hears once the time is over: it is moved on until it hears something."""
    async with asyncio.timeout(20):
        reading = asyncio.ensure_future(caller.reader.read())
        while not reading.done():
            clock.advance(seconds)
            await asyncio.sleep(0.01)
    return reading.result()


async def test_slow_heads() -> None:
    clock = ManualClock()
    gate = OpenGate(1)
    async with router(gate, clock=clock) as (_, at), client(at) as caller:
        caller.send(b"GET / HTTP/1.1\r\nHos")
        await caller.writer.drain()
        data = await reached(gate, clock, caller, 4)
        assert data.startswith(b"HTTP/1.1 408 ")
        assert not gate.admitted


async def test_slow_bodies_for_the_router_itself() -> None:
    clock = ManualClock()
    gate = OpenGate(1)
    async with router(gate, clock=clock) as (_, at), client(at) as caller:
        caller.ask("POST", "/body", "Content-Length: 5")
        caller.send(b"hel")
        await gate.busy(1)
        data = await reached(gate, clock, caller, 8)
        assert data.startswith(b"HTTP/1.1 408 ")
        (outcome,) = await gate.outcomes(1)
        assert (outcome.status, outcome.error) == (408, "client")


async def test_idle_connections() -> None:
    clock = ManualClock()
    gate = OpenGate(1)
    async with router(gate, clock=clock) as (_, at), client(at) as caller, client(at) as silent:
        caller.ask("GET", "/refused")
        await caller.answer()
        assert await reached(gate, clock, caller, 20) == b""
        assert await reached(gate, clock, silent, 20) == b""


async def test_too_many_connections() -> None:
    gate = OpenGate(1)
    async with router(gate, RouterOptions(connections=2, grace=0.1)) as (_, at):
        async with client(at) as one, client(at) as two:
            one.ask("GET", "/refused")
            assert (await one.answer())[0] == 403
            two.ask("GET", "/forever")
            await gate.busy(2)
            async with client(at) as three:  # takes the place of the one that does nothing
                three.ask("GET", "/forever")
                assert await one.rest() == b""
                await gate.busy(3)
                async with client(at) as four:
                    assert (await four.rest()).startswith(b"HTTP/1.1 503 ")
        await gate.outcomes(3)  # those that have gone leave room
        async with client(at) as five:
            five.ask("GET", "/refused")
            assert (await five.answer())[0] == 403


async def test_a_response_does_not_spill_into_the_next() -> None:
    """A sandbox that says more than it announced has lost that connection: nobody else hears the rest."""
    count = 0

    async def talkative(peer: Client) -> None:
        nonlocal count
        count += 1
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await peer.reader.read()

    async with upstream(talkative) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            for number in range(1, 4):
                caller.ask("GET", "/")
                assert (await caller.answer())[2] == b"ok"
                assert gate.connections == number


async def tcp_pair() -> tuple[socket.socket, socket.socket]:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        ours = socket.socket()
        ours.setblocking(False)
        await loop.sock_connect(ours, listener.getsockname())
        theirs, _ = await loop.sock_accept(listener)
    return ours, theirs


@pytest.mark.parametrize("half", [True, False])
async def test_a_client_that_is_gone_behind_its_own_bytes(half: bool) -> None:
    """Nobody reads what it sent, so nobody would come to its end: it is looked after."""
    clock = ManualClock()
    ours, theirs = await tcp_pair()
    line, gone = Connection(theirs), asyncio.Event()
    ours.send(b"unread")
    with HangupCheck(clock, 5, line, gone.set, half=half):
        clock.advance(11)
        assert not gone.is_set()
        if half:
            ours.shutdown(socket.SHUT_WR)
        else:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ours.close()
        clock.advance(5)
        assert gone.is_set()
    clock.advance(100)
    ours.close()
    line.close()
    assert line.lost(half=half)


async def test_an_end_is_not_a_hang_up_where_halves_count() -> None:
    clock = ManualClock()
    ours, theirs = await tcp_pair()
    line, gone = Connection(theirs), asyncio.Event()
    ours.shutdown(socket.SHUT_WR)
    with HangupCheck(clock, 5, line, gone.set, half=False):
        clock.advance(11)
    assert not gone.is_set()
    ours.close()
    line.close()


async def test_a_client_that_takes_no_answers_holds_no_place() -> None:
    """It needs no token for that: what it asks for is refused, again and again, until nothing more fits on the way back."""
    clock = ManualClock()
    gate = OpenGate(1)
    async with router(gate, RouterOptions(connections=1, grace=0.1), clock=clock) as (_, at):
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", at))
            deaf.setblocking(False)
            ended = -1
            while ended < len(gate.ended):  # as long as there still is an answer now and then
                ended = len(gate.ended)
                with suppress(BlockingIOError):
                    while True:
                        deaf.send(b"GET /refused HTTP/1.1\r\nHost: h\r\nX-Request-ID: " + b"x" * 128 + b"\r\n\r\n")
                await asyncio.sleep(0.1)
            async with client(at) as other:
                assert (await other.rest()).startswith(b"HTTP/1.1 503 ")
            async with asyncio.timeout(20):
                while gate.ended[-1][-1].error != "client":
                    clock.advance(5)
                    await asyncio.sleep(0.01)
            async with client(at) as other:
                other.ask("GET", "/refused")
                assert (await other.answer())[0] == 403


async def test_a_connection_that_gives_way_before_it_was_looked_at_is_closed() -> None:
    async with router(OpenGate(1), RouterOptions(connections=1, grace=0.1)) as (server, _):
        one, two = (socket.socketpair() for _ in range(2))
        try:
            for ours, theirs in (one, two):
                ours.settimeout(5)
                server.take(theirs, Peer("port-forward"))
            await asyncio.sleep(0.05)
            assert one[1].fileno() == -1
            assert one[0].recv(1) == b""
        finally:
            for ours, theirs in (one, two):
                ours.close()
                theirs.close()
