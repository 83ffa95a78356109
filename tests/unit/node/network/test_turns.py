"""What pods send in pieces of one byte takes turns by their number: others are served in between."""

from __future__ import annotations

import asyncio
import socket

from sandpool.base.turns import BYTES
from sandpool.node.network.egress.http1 import Reader
from sandpool.node.network.egress.messages import parse_request
from sandpool.node.network.egress.proxy import Forward
from sandpool.node.network.relay import InTurn, freely, pump

CHUNKS = 10_000
FINE = b"1\r\nx\r\n" * CHUNKS + b"0\r\n\r\n"


class Line:
    """Two connected sockets that do not block."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)

    async def rest(self) -> bytes:
        """Everything until its end."""
        found, loop = bytearray(), asyncio.get_running_loop()
        while data := await loop.sock_recv(self.far, 1 << 20):
            found += data
        return bytes(found)

    def close(self) -> None:
        self.near.close()
        self.far.close()


async def test_a_body_in_chunks_of_one_byte_is_taken_apart_a_little_at_a_time() -> None:
    """A sandbox with a hundred of them kept everybody waiting for seconds."""
    client, origin, turns = Line(), Line(), list[int]()

    async def turn(size: int) -> None:
        turns.append(size)

    try:
        head = b"POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked"
        forward = Forward(parse_request(head), client.near, origin.near, lambda: None, freely, turn)
        taken = asyncio.create_task(origin.rest())
        sending = asyncio.create_task(forward.send(Reader(client.near)))
        await asyncio.get_running_loop().sock_sendall(client.far, FINE + b"behind")
        client.far.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(30):
            await sending
            assert await taken == FINE
    finally:
        client.close()
        origin.close()
    assert forward.sent
    assert len(turns) >= len(FINE) // 4096
    assert min(turns[1:-1]) >= BYTES  # of each portion, whose bytes are few and whose chunks are many


async def test_small_pieces_that_are_only_carried() -> None:
    source, target, turns = Line(), Line(), list[int]()

    async def turn(size: int) -> None:
        turns.append(size)

    try:
        carrying = asyncio.create_task(pump(source.near, target.near, lambda: None, InTurn(turn, freely)))
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            for _ in range(100):
                await loop.sock_sendall(source.far, b"x")
                assert await loop.sock_recv(target.far, 10) == b"x"
            source.far.shutdown(socket.SHUT_WR)
            await carrying
    finally:
        source.close()
        target.close()
    assert turns == [BYTES] * 7  # the second piece, and each sixteenth after it
