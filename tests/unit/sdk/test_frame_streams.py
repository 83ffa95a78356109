"""A command that is fed while its output comes."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from typing import cast

import pytest

from sandpool.sdk._async.frame_streams import WINDOW, FedFrames, WebSocketFrames
from sandpool.sdk.values import Result
from sandpool.wire.frames import Frame, Kind, message
from sandpool.wire.websocket import Decoder, Opcode, Piece, close_frame, frame
from support.network.scripted_socket import scripted, upgrade
from support.network.sdk_box import AsyncBox, SyncBox


async def fed(port: int, pieces: Iterator[bytes]) -> Result:
    box = AsyncBox(port)
    try:
        return await box.run("true", stdin=pieces)
    finally:
        await box.way.http.close()


@pytest.mark.parametrize("world", ["sync", "async"])
def test_an_end_is_heard_also_if_the_connection_breaks_under_more_input(world: str) -> None:
    """The command has ended, its daemon has said so and is gone, and we are about to send the next piece."""
    reset = threading.Event()

    def act(line: socket.socket) -> None:
        line.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # what was said must be on its way when the connection is reset
        upgrade(line)
        for said in (
            message(Kind.STARTED, b'{"id": "1"}'),
            message(Kind.STDOUT, b"well"),
            message(Kind.EXIT, b'{"code": 4}'),
        ):
            line.sendall(frame(Opcode.BINARY, said))
        line.sendall(close_frame(1000))
        decoder, heard = Decoder(), b""
        while b"first" not in heard:
            heard += b"".join(event.data for event in decoder.feed(line.recv(1 << 16)) if isinstance(event, Piece))
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.close()
        reset.set()

    def pieces() -> Iterator[bytes]:
        yield b"first"
        assert reset.wait(30)
        yield b"second"
        yield b"third"

    with scripted(act) as server:
        if world == "sync":
            box = SyncBox(server.origin.port)
            result = box.run("true", stdin=pieces())
            box.way.http.close()
        else:
            result = asyncio.run(fed(server.origin.port, pieces()))
    assert (result.exit_code, result.stdout) == (4, "well")


class Boasting:
    """A daemon that claims to have taken more input than it was sent."""

    def __init__(self) -> None:
        self.says = [
            Frame(Kind.STARTED, b"{}"),
            Frame(Kind.TAKEN, b'{"stdin": 1000000000000000000}'),
            Frame(Kind.STDOUT, b"out"),
            Frame(Kind.EXIT, b'{"code": 0}'),
        ]
        self.sent = 0

    async def next(self, timeout: float | None = None) -> Frame | None:
        return self.says.pop(0)

    async def send(self, kind: Kind, data: bytes = b"") -> None:
        self.sent += len(data)


async def test_a_daemon_that_takes_more_than_it_was_sent_widens_no_window() -> None:
    """Else all input would be sent before any output is read, however much of either there is."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield bytes(WINDOW // 4)

    link = Boasting()
    stream = FedFrames(cast("WebSocketFrames", link), pieces())
    assert [(await stream.next()).kind for _ in range(3)] == [Kind.STARTED, Kind.STDOUT, Kind.EXIT]  # type: ignore[union-attr]
    assert link.sent <= 2 * WINDOW
