"""Whoever hangs up is noticed by the other side, and nobody takes a part for the whole."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sandpool.router.values import Admitted
from support.clocks.manual_clock import ManualClock
from support.network.router_server import TARGET, Client, OpenGate, client, router, upstream


class Witness:
    """A script that notes when its client has gone."""

    def __init__(self, say: bytes = b"", need: int = 0) -> None:
        self.say = say
        self.need = need
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self.body = b""

    async def __call__(self, peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        if self.need:
            self.body = await peer.reader.readexactly(self.need)
        peer.send(self.say)
        self.asked.set()
        try:
            self.body += await peer.reader.read()
        except ConnectionError:
            pass
        self.left.set()


async def within(event: asyncio.Event) -> None:
    async with asyncio.timeout(20):
        await event.wait()


@pytest.mark.parametrize(
    ("say", "status"),
    [
        (b"", 499),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 200),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", 200),
    ],
)  # fmt: skip
async def test_the_client_hangs_up(say: bytes, status: int) -> None:
    witness = Witness(say)
    async with upstream(witness) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at):
            async with client(at) as caller:
                caller.ask("GET", "/")
                await within(witness.asked)
                if say:
                    await caller.head()
            await within(witness.left)
            (outcome,) = await gate.outcomes(1)
            assert (outcome.status, outcome.error) == (status, "client")


@pytest.mark.parametrize("framing", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
async def test_the_client_hangs_up_in_the_middle_of_its_body(framing: str) -> None:
    witness = Witness(need=3)
    async with upstream(witness) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at):
            async with client(at) as caller:
                caller.ask("PUT", "/", framing)
                caller.send(b"3\r\nabc\r\n" if "chunked" in framing else b"abc")
                await within(witness.asked)
            await within(witness.left)
            assert not witness.body.endswith(b"0\r\n\r\n")
            assert (await gate.outcomes(1))[0].error == "client"


async def test_the_client_hangs_up_while_the_gate_thinks() -> None:
    gate = OpenGate(1)
    async with router(gate) as (_, at):
        async with client(at) as caller:
            caller.ask("GET", "/forever")
            await gate.busy(1)
        (outcome,) = await gate.outcomes(1)
        assert (outcome.status, outcome.error) == (499, "client")


@asynccontextmanager
async def reset_of(port: int) -> AsyncIterator[tuple[socket.socket, Callable[[], Awaitable[None]]]]:
    """A plain socket, because a stream of uvloop takes a reset for an end; and what reads it to its end."""
    loop = asyncio.get_running_loop()

    async def heard() -> None:
        async with asyncio.timeout(20):
            while await loop.sock_recv(sock, 65536):
                pass

    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        yield sock, heard


@pytest.mark.parametrize(
    "say",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzzz\r\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_the_sandbox_hangs_up_in_the_middle(say: bytes, version: str) -> None:
    async def dying(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(say)

    async with upstream(dying) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), reset_of(at) as (sock, heard):
            await asyncio.get_running_loop().sock_sendall(sock, f"GET / HTTP/{version}\r\nHost: h\r\n\r\n".encode())
            with pytest.raises(ConnectionResetError):
                await heard()
            (outcome,) = await gate.outcomes(1)
            assert (outcome.status, outcome.error) == (200, "reset")


@pytest.mark.parametrize(
    "say",
    [
        b"", b"HTTP/1.1 200 O", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"HTTP/1.1 103 Hint\r\n\r\n" * 40,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000, b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    ],
)  # fmt: skip
async def test_answers_that_are_none(say: bytes) -> None:
    async def odd(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(say)

    async with upstream(odd) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask("GET", "/")
            status, headers = await caller.head()
            while status == 103:
                status, headers = await caller.head()
            body = await caller.reader.readexactly(int(headers["content-length"]))
            assert (status, json.loads(body)["code"]) == (502, "UNAVAILABLE")
            assert (await gate.outcomes(1))[0].error == "reset"
            caller.ask("GET", "/refused")  # the connection has survived it
            assert (await caller.answer())[0] == 403


async def once(peer: Client) -> None:
    """Answers the first request of a connection, and hangs up on the second one without a word."""
    await peer.reader.readuntil(b"\r\n\r\n")
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    await peer.reader.readuntil(b"\r\n\r\n")


async def test_a_connection_that_was_closed_meanwhile_is_not_missed() -> None:
    async with upstream(once) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            for _ in range(4):
                caller.ask("GET", "/")
                assert (await caller.answer())[2] == b"ok"
            assert gate.connections == 4
            assert len(gate.ended) == 4


async def test_what_may_have_happened_is_not_repeated() -> None:
    async with upstream(once) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask("GET", "/")
            assert (await caller.answer())[2] == b"ok"
            caller.ask("POST", "/")
            assert (await caller.answer())[0] == 502
            assert gate.connections == 1


async def test_no_answer_in_time() -> None:
    witness = Witness()
    clock = ManualClock()
    async with upstream(witness) as port:
        gate = OpenGate(port)
        gate.decide = Admitted(TARGET, "me", b"", gate.connect, "pool", timeout=30)
        async with router(gate, clock=clock) as (_, at), client(at) as caller:
            caller.ask("GET", "/")
            await within(witness.asked)
            clock.advance(31)
            status, _, body = await caller.answer()
            assert (status, json.loads(body)["code"]) == (504, "DEADLINE_EXCEEDED")
            await within(witness.left)
            assert (await gate.outcomes(1))[0].error == "timeout"
            caller.ask("GET", "/refused")
            assert (await caller.answer())[0] == 403
            await caller.close()
            await asyncio.sleep(0)


async def test_the_time_is_for_the_beginning_only() -> None:
    go = asyncio.Event()

    async def slow(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await go.wait()
        peer.send(b"ok")

    clock = ManualClock()
    async with upstream(slow) as port:
        gate = OpenGate(port)
        gate.decide = Admitted(TARGET, "me", b"", gate.connect, "pool", timeout=30)
        async with router(gate, clock=clock) as (_, at), client(at) as caller:
            caller.ask("GET", "/")
            await caller.head()
            clock.advance(1000)
            go.set()
            assert await caller.reader.readexactly(2) == b"ok"
