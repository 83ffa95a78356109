"""What a sandbox can do to whoever uses it, if its daemon says what it likes: nothing but an error of the SDK's own."""

from __future__ import annotations

import json
import socket
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from sandpool.base.errors import SandpoolError
from sandpool.sdk._sync import files, transport
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.files import Files
from sandpool.sdk._sync.http import Headers, Http
from sandpool.sdk._sync.processes import Commands
from sandpool.sdk._sync.transport import Transport
from sandpool.sdk.answers import read_object, refusal
from sandpool.sdk.command import shown
from sandpool.sdk.deadline import after
from sandpool.sdk.errors import CommandError, CommandFailed, FileError, FileTooLarge, SandboxError, TimedOut, TooLarge
from sandpool.sdk.outcome import Capture, checked
from sandpool.sdk.values import Captured, Result
from sandpool.wire.frames import Kind, pack
from sandpool.wire.websocket import Opcode, frame
from support.network.scripted_socket import Act, read_request, scripted, upgrade

DEEP = b"[" * 100_000
STARTED = pack(Kind.STARTED, b'{"id": "1"}')


class Direct:
    """A way to a sandbox that has nothing in between."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def router(self) -> Http:
        return self._http

    def bearer(self) -> Headers:
        return ()

    def renew(self, used: Headers) -> bool:
        return False


class Box(Commands):
    def __init__(self, http: Http) -> None:
        self._plane = DataPlane(Direct(http), "default", "box")
        self._env = {}
        self.files = Files(self._plane)


def says(body: bytes, status: int = 200) -> Act:
    def act(line: socket.socket) -> None:
        read_request(line)
        line.sendall(b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        line.recv(1)  # until the client is done with it

    return act


@pytest.mark.parametrize(
    "body",
    [
        STARTED + pack(Kind.EXIT, b"{}"),
        STARTED + pack(Kind.EXIT, b'{"code": "none"}'),
        STARTED + pack(Kind.EXIT, b'{"code": 1e999}'),
        STARTED + pack(Kind.EXIT, b'{"code": [0]}'),
        STARTED + pack(Kind.EXIT, b"{"),
        STARTED + pack(Kind.EXIT, DEEP),
        pack(Kind.STARTED, b"[]"),
    ],
    ids=lambda value: repr(value)[-40:],
)
def test_ends_that_are_none(body: bytes) -> None:
    with scripted(says(body)) as server:
        http = Http(server.origin)
        try:
            with pytest.raises(SandpoolError):
                Box(http).run("true", timeout=5)
        finally:
            http.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda box: box.processes(),
        lambda box: box.process("1"),
        lambda box: box.process("1").info(),
        lambda box: box.files.list("."),
        lambda box: box.files.stat("a"),
    ],
)
@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b'{"processes": 1, "entries": 1, "id": 1}',
        b'{"processes": [1], "entries": [1]}',
        b'{"processes": [{}], "entries": [{}], "id": "1", "pid": "x", "name": "a", "size": "x"}',
        b'{"id": "1", "pid": 1e999, "name": "a", "size": 1e999, "processes": {}, "entries": {}}',
        b'{"id": "1", "output": 7, "exit": 7, "name": "a", "mode": "9z", "processes": [[]], "entries": [[]]}',
        b'{"id": "\x1b[2J", "argv": 3, "name": "a", "modified": {}, "processes": null, "entries": null}',
        DEEP,
    ],
    ids=lambda value: repr(value)[:40],
)
def test_answers_that_are_none(ask: Callable[[Box], Any], answer: bytes) -> None:
    with scripted(says(answer), says(answer)) as server:
        http = Http(server.origin)
        try:
            with suppress(SandpoolError):  # some of it can be made sense of; nothing else may come of the rest
                ask(Box(http))
        finally:
            http.close()


def test_words_nested_too_deeply_are_no_words() -> None:
    with pytest.raises(SandpoolError):
        read_object(DEEP)
    assert "503" in str(refusal(503, DEEP, "sandbox default/box"))


def test_messages_move_no_cursor() -> None:
    said = Result(("a", "\x1b[2J"), 1, err=Captured(b"one\x1b]0;owned\x07\n\ttwo\x9b\xc2\x9b3J\r\n"))
    with pytest.raises(CommandFailed) as raised:
        checked(said, "sandbox default/box")
    assert all(letter.isprintable() or letter in "\n\t" for letter in str(raised.value))
    assert "one" in str(raised.value).splitlines()[1]
    assert raised.value.stderr_bytes == said.stderr_bytes
    assert shown(("a", "\x1b[2J", "b\x00c")).isprintable()
    words = json.dumps({"message": "no\x1b[2Jpe", "code": "X"}).encode()
    with scripted(says(STARTED + pack(Kind.ERROR, words))) as server:
        http = Http(server.origin)
        with pytest.raises(CommandError) as refused:
            Box(http).run("true", timeout=5)
        http.close()
    assert str(refused.value).isprintable()


def test_output_in_tiny_pieces_takes_no_more_room() -> None:
    capture = Capture(1 << 16)
    tracemalloc.start()
    try:
        for number in range(1 << 16):
            capture.add(number.to_bytes(3, "big"))
        assert tracemalloc.get_traced_memory()[0] < 4 << 16
    finally:
        tracemalloc.stop()
    assert len(capture.done().data) == 1 << 16


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", ".", "", "a/b", "a\0"])
def test_an_entry_of_a_folder_is_in_that_folder(name: str) -> None:
    with scripted(says(json.dumps({"entries": [{"name": name, "type": "file"}]}).encode())) as server:
        http = Http(server.origin)
        try:
            with pytest.raises(SandpoolError):
                Box(http).files.list("work")
        finally:
            http.close()


def test_a_part_of_a_file_is_not_longer_than_what_was_asked_for() -> None:
    with scripted(says(b"x" * (1 << 20))) as server:
        http = Http(server.origin)
        try:
            with pytest.raises(FileError, match="more than"):
                Box(http).files.read("a", length=10)
        finally:
            http.close()


def endless(head: bytes, piece: bytes, sent: list[int]) -> Act:
    """Goes on until the client has had enough."""

    def act(line: socket.socket) -> None:
        read_request(line)
        with suppress(OSError):
            line.sendall(head)
            for _ in range(10_000):
                line.sendall(piece)
                sent.append(len(piece))

    return act


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TINY = 1 << 16
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


@pytest.mark.parametrize("head", [CHUNKED, b"HTTP/1.1 200 OK\r\n\r\n"], ids=["chunked", "without a length"])
def test_a_file_without_an_end(head: bytes) -> None:
    sent: list[int] = []
    with scripted(endless(head, CHUNK, sent)) as server:
        http = Http(server.origin)
        try:
            with pytest.raises(FileTooLarge, match="max_bytes") as raised:
                Box(http).files.read("a", max_bytes=1 << 20)
        finally:
            http.close()
    assert (raised.value.limit, raised.value.path) == (1 << 20, "a")
    assert len(sent) < 1000


@pytest.mark.parametrize("ask", [lambda box: box.files.read("a", max_bytes=TINY), lambda box: box.files.list("a")])
def test_an_answer_in_tiny_pieces_takes_no_more_room(
    ask: Callable[[Box], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece alone would be an object of dozens of bytes, in a list."""
    monkeypatch.setattr(files, "LARGEST", TINY)
    with scripted(endless(CHUNKED, b"2\r\nxy\r\n" * 4096, [])) as server:
        http = Http(server.origin)
        tracemalloc.start()
        try:
            with pytest.raises(SandpoolError, match=r"max_bytes|larger than"):
                ask(Box(http))
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            http.close()
    assert most < 10 * TINY


def test_a_whole_file_in_tiny_pieces() -> None:
    said = [CHUNKED, *(b"2\r\nxy\r\n" for _ in range(1000)), b"0\r\n\r\n"]
    with scripted(says_only(b"".join(said))) as server:
        http = Http(server.origin)
        try:
            assert Box(http).files.read("a", max_bytes=2000) == b"xy" * 1000
        finally:
            http.close()


def test_a_size_that_is_said_is_enough() -> None:
    """Nothing of the body comes, and nothing is waited for."""
    with scripted(says_only(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")) as server:
        http = Http(server.origin)
        try:
            with pytest.raises(FileTooLarge, match="read_into"):
                Box(http).files.read_text("a")
        finally:
            http.close()


def says_only(head: bytes) -> Act:
    def act(line: socket.socket) -> None:
        read_request(line)
        line.sendall(head)
        line.recv(1)

    return act


@pytest.mark.parametrize(
    "ask",
    [
        lambda box: box.files.read("a"),
        lambda box: box.run("true"),
        lambda box: box.files.write("a", iter([b"x"])),
        lambda box: box.files.download("a", "/nonexistent/never-made"),
        lambda box: box.files.stat("a"),
        lambda box: box.processes(),
    ],
)
def test_a_refusal_without_an_end(ask: Callable[[Box], Any]) -> None:
    """Its beginning is all that is read, or a limit is named: it is never gathered."""
    sent: list[int] = []
    with scripted(endless(CHUNKED.replace(b"200 OK", b"404 No"), CHUNK, sent)) as server:
        http = Http(server.origin)
        try:
            with pytest.raises(SandboxError) as raised:
                ask(Box(http))
        finally:
            http.close()
    assert len(str(raised.value)) < 4000
    assert len(sent) < 5000


def test_small_words_for_many_values() -> None:
    body = b'{"entries": [' + b"[]," * 3_000_000 + b"[]]}"
    with scripted(says(body)) as server:
        http = Http(server.origin)
        tracemalloc.start()
        try:
            with pytest.raises(TooLarge, match="values"):
                Box(http).files.list(".")
            assert tracemalloc.get_traced_memory()[1] < 4 * len(body)
        finally:
            tracemalloc.stop()
            http.close()


def test_nothing_said_often_takes_no_room() -> None:
    capture = Capture(2)
    tracemalloc.start()
    try:
        for _ in range(100_000):
            capture.add(b"")
        assert tracemalloc.get_traced_memory()[0] < 10_000
    finally:
        tracemalloc.stop()


def test_empty_fragments_take_no_room() -> None:
    def act(line: socket.socket) -> None:
        upgrade(line)
        line.sendall(frame(Opcode.BINARY, b"a", fin=False) + frame(Opcode.CONTINUATION, b"", fin=False) * 200_000)
        line.sendall(frame(Opcode.CONTINUATION, b"b"))
        line.recv(1)

    with scripted(act) as server:
        http = Http(server.origin)
        with http.websocket("/") as stream:
            assert stream.receive(60.0) == b"ab"
        http.close()


class Hearing(Transport):
    heard = 0

    def _hear(self) -> None:
        self.heard += 1
        super()._hear()


def test_who_waits_to_send_does_not_spin_when_no_more_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "STASH", 10)
    monkeypatch.setattr(transport, "CHUNK", 10)
    ours, theirs = socket.socketpair()
    with theirs:
        line = Hearing(ours, "the test")
        theirs.sendall(b"x" * 100)
        with pytest.raises(TimedOut):
            line.write(bytes(8 << 20), after(0.4))
        line.close()
        assert line.heard < 20
