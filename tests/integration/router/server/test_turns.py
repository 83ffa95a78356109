"""Bodies in chunks of one byte are taken apart a little at a time, however many of them there are."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from sandpool.router.values import Admitted, Request
from support.network.router_server import Client, OpenGate, client, router, upstream

CHUNKS = 20_000
FINE = b"1\r\nx\r\n" * CHUNKS + b"0\r\n\r\n"
MANY = 8


class KeepingGate(OpenGate):
    kept: list[Admitted]

    def plan(self, request: Request) -> Admitted:
        planned = super().plan(request)
        self.kept.append(planned)
        return planned

    @property
    def carried(self) -> int:
        return sum(admitted.flow.count() for admitted in self.kept)


async def _most_in_a_turn(gate: KeepingGate, last: int) -> int:
    """Bytes of content that pass in one turn of the loop, until all have."""
    most = seen = 0
    async with asyncio.timeout(60):
        while seen < last:
            await asyncio.sleep(0)
            now = gate.carried
            most, seen = max(most, now - seen), now
    return most


async def test_answers_of_sandboxes() -> None:
    async def sandbox(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + FINE)
        await peer.writer.drain()

    async with upstream(sandbox) as port, AsyncExitStack() as stack:
        gate = KeepingGate(port)
        gate.kept = []
        _, entry = await stack.enter_async_context(router(gate))
        callers = [await stack.enter_async_context(client(entry)) for _ in range(MANY)]
        for caller in callers:
            caller.ask("GET", "/")
        readers = [asyncio.create_task(caller.answer()) for caller in callers]
        assert await _most_in_a_turn(gate, MANY * CHUNKS) < 3000
        assert {len(body) for _, _, body in await asyncio.gather(*readers)} == {CHUNKS}


async def test_bodies_of_clients() -> None:
    async def sandbox(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.reader.readuntil(b"\r\n0\r\n\r\n")
        peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with upstream(sandbox) as port, AsyncExitStack() as stack:
        gate = KeepingGate(port)
        gate.kept = []
        _, entry = await stack.enter_async_context(router(gate))
        callers = [await stack.enter_async_context(client(entry)) for _ in range(MANY)]
        for caller in callers:
            caller.ask("POST", "/", "Transfer-Encoding: chunked")
            caller.send(FINE)
        assert await _most_in_a_turn(gate, MANY * CHUNKS) < 5000
        for caller in callers:
            assert (await caller.head())[0] == 204
