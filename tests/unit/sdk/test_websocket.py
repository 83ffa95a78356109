"""WebSockets of the SDK against a server that is written out in frames."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from sandpool.kube.errors import Unreachable, Unreadable
from sandpool.sdk._async.http import RefusedUpgrade as WaitingRefused
from sandpool.sdk._sync.http import Http, RefusedUpgrade
from sandpool.sdk.errors import TimedOut
from sandpool.wire.websocket import Closed, Decoder, Opcode, Piece, Pong, close_frame, frame
from support.network.scripted_socket import WORLDS, Act, ok, read_head, read_request, scripted, upgrade


def echo(line: socket.socket) -> None:
    """Sends every message back, a ping and two pieces first; after `end` it closes."""
    upgrade(line)
    decoder, held = Decoder(), b""
    pongs = 0
    while data := line.recv(1 << 16):
        for event in decoder.feed(data):
            if isinstance(event, Pong):
                pongs += 1
            elif isinstance(event, Piece):
                held += event.data
                if event.final:
                    half = len(held) // 2
                    line.sendall(frame(Opcode.BINARY, held[:half], fin=False))
                    line.sendall(frame(Opcode.PING, b"?"))
                    line.sendall(frame(Opcode.CONTINUATION, held[half:]))
                    if held == b"end":
                        line.sendall(close_frame(1001, f"{pongs} pongs"))
                    held = b""
            elif isinstance(event, Closed):
                return


@pytest.mark.parametrize("kind", WORLDS)
def test_messages_both_ways(kind: Any) -> None:
    with scripted(echo) as server:
        client = kind(server.origin)
        long = bytes(range(256)) * 1000
        assert client.converse("/", b"", b"hello", long, b"end") == [b"", b"hello", long, b"end", None]
        client.close()


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda line: (read_request(line), line.sendall(ok(b"no"))), (RefusedUpgrade, WaitingRefused)),
        (lambda line: (upgrade(line), line.sendall(frame(Opcode.BINARY, b"x", mask=b"abcd"))), Unreadable),
        (lambda line: (upgrade(line), line.sendall(frame(Opcode.BINARY, b"x" * 500)[:100])), Unreachable),
        (lambda line: (upgrade(line), line.sendall(frame(Opcode.BINARY, b"x" * (17 << 20)))), Unreadable),
        (
            lambda line: (
                read_head(line),
                line.sendall(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Accept: wrong\r\n\r\n"
                ),
            ),
            Unreadable,
        ),
    ],
    ids=["refused", "masked", "cut", "too-long", "wrong-key"],
)
def test_a_server_that_does_not_play_along(kind: Any, act: Act, error: Any) -> None:
    def tolerant(line: socket.socket) -> None:
        try:
            act(line)
        except OSError:  # the client has had enough
            pass

    with scripted(tolerant) as server:
        client = kind(server.origin)
        with pytest.raises(error):
            client.converse("/")
        client.close()


def test_one_thread_reads_while_another_one_writes_more_than_buffers_hold() -> None:
    size, pieces = 1 << 20, 24
    received: list[int] = []

    def swamped(line: socket.socket) -> None:
        """Sends all of its own before it reads anything."""
        upgrade(line)
        for _ in range(pieces):
            line.sendall(frame(Opcode.BINARY, bytes(size)))
        decoder, got = Decoder(), 0
        while got < size * pieces:
            got += sum(len(event.data) for event in decoder.feed(line.recv(1 << 20)) if isinstance(event, Piece))
        line.sendall(close_frame(1000))
        while line.recv(1 << 16):
            pass

    with scripted(swamped) as server:
        http = Http(server.origin)
        with http.websocket("/") as line:

            def read() -> None:
                while (message := line.receive(20)) is not None:
                    received.append(len(message))

            reader = threading.Thread(target=read)
            reader.start()
            for _ in range(pieces):
                line.send(bytes(size), timeout=20)
            reader.join(20)
        http.close()
    assert received == [size] * pieces


class Talker:
    """A server that says next to nothing, again and again, until nobody listens or it has said very much."""

    MOST = 32 << 20

    def __init__(self, words: bytes) -> None:
        self._words = words * 1000
        self.said = 0
        self.over = threading.Event()

    def __call__(self, line: socket.socket) -> None:
        upgrade(line)
        try:
            while self.said < self.MOST:
                line.sendall(self._words)
                self.said += len(self._words)
        except OSError:
            pass
        finally:
            self.over.set()


@pytest.mark.parametrize("words", [frame(Opcode.PONG, b""), frame(Opcode.PING, b"")], ids=["pongs", "pings"])
def test_waiting_ends_in_time_while_frames_keep_coming(words: bytes) -> None:
    with scripted(Talker(words)) as server:
        http = Http(server.origin)
        with pytest.raises(TimedOut), http.websocket("/") as line:
            line.receive(timeout=0.3)
        http.close()


@pytest.mark.parametrize("words", [frame(Opcode.PONG, b""), frame(Opcode.BINARY, b"x")], ids=["pongs", "messages"])
def test_saying_goodbye_ends_in_time_while_frames_keep_coming(words: bytes) -> None:
    talker = Talker(words)
    with scripted(talker) as server:
        http = Http(server.origin)
        with http.websocket("/"):
            pass
        assert talker.over.wait(60)
        assert talker.said < talker.MOST
        http.close()
