"""Clients and sandboxes that stop at any point, many at once: the gate hears of every request once, and nothing fails inside."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter

import pytest

from support.network.router_server import Client, OpenGate, client, router, upstream

BODY = bytes(range(256)) * 1200  # more than is read at once, and enough for a pipe
REQUESTS = [
    b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /refused HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    b"PUT /c HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    b"PUT /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    b"PUT /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    b"GET /f HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nsome bytes",
    b"POST /g HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloxx",
    b"nonsense\r\n\r\n",
]
RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nbytes",
    b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
    b"not HTTP at all\r\n\r\n",
    b"",
]


async def pieces(peer: Client, data: bytes, chance: random.Random) -> None:
    """Says it in pieces, perhaps not to its end."""
    data = data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data
    while data:
        cut = chance.choice([1, 7, 100, len(data)])
        if peer.writer.is_closing():
            raise ConnectionResetError
        peer.send(data[:cut])
        data = data[cut:]
        await asyncio.wait_for(peer.writer.drain(), 1)
        if chance.random() < 0.5:
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 40))])
async def test_storm(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)

    async def sandbox(peer: Client) -> None:
        try:
            await play(peer)
        except (asyncio.LimitOverrunError, TimeoutError):
            pass  # it gives up on what it cannot read, or cannot say

    async def play(peer: Client) -> None:
        for _ in range(chance.randrange(1, 4)):
            if chance.random() < 0.8:
                await peer.reader.readuntil(b"\r\n\r\n")
            if chance.random() < 0.3:
                await peer.reader.read(chance.choice([1, 1000, 100_000]))
            await pieces(peer, chance.choice(RESPONSES), chance)
        if chance.random() < 0.3:
            peer.writer.transport.abort()

    async def caller(port: int) -> None:
        async with client(port) as one:
            try:
                for _ in range(chance.randrange(1, 4)):
                    await pieces(one, chance.choice(REQUESTS), chance)
                async with asyncio.timeout(chance.choice([0, 0.01, 0.2])):
                    await one.reader.read()
            except (TimeoutError, ConnectionError):
                pass
            if chance.random() < 0.3:
                one.writer.transport.abort()

    with caplog.at_level(logging.ERROR):
        async with upstream(sandbox) as port:
            gate = OpenGate(port)
            async with router(gate) as (_, at):
                for _ in range(6):
                    await asyncio.gather(*(caller(at) for _ in range(15)))
    assert not [record for record in caplog.records if record.name.startswith(("sandpool", "asyncio"))]
    told = Counter(id(request) for request, *_ in gate.ended)
    assert set(told.values()) == {1}
    assert told.keys() >= set(map(id, gate.admitted))
    unasked = [outcome.status for request, *_, outcome in gate.ended if request not in gate.admitted]
    assert set(unasked) <= {400, 499}  # a body that was seen to be none before anything was asked
    assert len(gate.admitted) > 50
    assert len({outcome.error for *_, outcome in gate.ended}) >= 3
