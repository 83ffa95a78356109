"""What clients rely on when connections break or both sides talk at once: positions of input, acknowledgements, waiting."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.wire.frames import Kind
from sandpool.wire.websocket import Opcode, close_frame, frame
from support.network.boxd_daemon import Attachment, Daemon, boxd, told

P = "/box/v1/processes"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with boxd(tmp_path_factory.mktemp("root")) as daemon:
        yield daemon


def talk(box: Daemon) -> Attachment:
    return Attachment(box.open(_head(f"{P}/start")))


def _head(path: str) -> str:
    return (
        f"GET {path} HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    )


def test_input_that_is_sent_again_arrives_once(box: Daemon) -> None:
    process = box.start(argv=["cat"], stdin=True)
    assert box.tell(process["id"], "stdin?writer=w&at=0", b"hello ").status == 204
    assert box.tell(process["id"], "stdin?writer=w&at=0", b"hello ").status == 204
    assert box.tell(process["id"], "stdin?writer=w&at=3", b"lo world").status == 204
    assert box.tell(process["id"], "stdin?writer=other&at=0", b", I ").status == 204, "each counts its own"
    assert box.tell(process["id"], "stdin?writer=w&at=11", b"!").status == 204
    refused = box.tell(process["id"], "stdin?writer=w&at=100", b"gap")
    assert (refused.status, refused.value["code"]) == (409, "CONFLICT")
    assert box.state(process["id"])["stdin"] == {"open": True, "taken": 16}
    assert box.tell(process["id"], f"stdin?writer={'n' * 65}&at=0", b"x").status == 400
    assert box.tell(process["id"], "stdin?eof").status == 204
    assert told(box.output(process["id"])).stdout == b"hello world, I !"


def test_waiting_for_an_end(box: Daemon) -> None:
    process = box.start(argv=["cat"], stdin=True)
    assert box.ask("GET", f"{P}/{process['id']}?wait=20").value["running"] is True
    threading.Timer(0.05, lambda: box.tell(process["id"], "stdin?eof")).start()
    answer = box.ask("GET", f"{P}/{process['id']}?wait=60000").value
    assert answer["exit"] == {"code": 0, "signal": 0, "timedOut": False}
    assert box.ask("GET", f"{P}/{process['id']}?wait=soon").status == 400


def test_starting_and_talking_on_one_connection(box: Daemon) -> None:
    stream = talk(box)
    stream.send(
        Kind.START, json.dumps({"shell": "read a; echo $a; read b; echo $b >&2; exit 3", "stdin": True}).encode()
    )
    stream.send(Kind.STDIN, b"one\n")
    stream.send(Kind.STDIN, b"two\n")
    stream.send(Kind.STDIN_END)
    frames = stream.all()
    run = told(frames)
    assert (frames[0].kind, run.stdout, run.stderr, run.exit["code"]) == (Kind.STARTED, b"one\n", b"two\n", 3)
    taken = [frame.value["stdin"] for frame in frames if frame.kind is Kind.TAKEN]
    assert taken[:1] == [4], "input is acknowledged once the process has it"
    stream.close()


def test_who_still_sends_when_the_end_is_told_is_not_cut_off(box: Daemon) -> None:
    """A connection that is closed with something unread is reset, and the end might be lost on the way."""
    stream = talk(box)
    stream.send(Kind.START, b'{"shell": "head -c 1 >/dev/null; exit 4", "stdin": true}')
    for _ in range(6):
        stream.send(Kind.STDIN, b"x" * 30_000)
    assert told(stream.all()).exit["code"] == 4
    assert stream.connection.recv(1) == b""
    for _ in range(3):
        stream.send(Kind.STDIN, b"x" * 30_000)
    stream.close()


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [
        (Kind.START, {"argv": ["no-such-program"]}, "no-such-program"), (Kind.START, {}, "give either argv"),
        (Kind.STDIN, {}, "first message"), (Kind.START, [], "not an object"),
    ],
)  # fmt: skip
def test_what_cannot_be_started_is_told_and_closed(box: Daemon, kind: Kind, spec: object, words: str) -> None:
    stream = talk(box)
    stream.send(kind, json.dumps(spec).encode())
    (answer,) = stream.all()
    assert answer.kind is Kind.ERROR
    assert words in answer.value["message"]
    assert answer.value["status"] in (400, 404)
    stream.close()


def test_hanging_up_ends_what_was_started_so(box: Daemon) -> None:
    stream = talk(box)
    stream.send(Kind.START, b'{"shell": "echo $$; exec sleep 1000"}')
    pid = int(stream.until(b"\n"))
    stream.close()
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


def test_hanging_up_is_heard_while_nothing_moves(box: Daemon) -> None:
    """Neither output comes nor input is taken: nobody reads from the connection."""
    stream = talk(box)
    stream.send(Kind.START, b'{"shell": "echo $$; exec sleep 1000", "stdin": true}')
    pid = int(stream.until(b"\n"))
    for _ in range(6):
        stream.send(Kind.STDIN, b"x" * 30_000)
    stream.close()
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


def test_what_is_said_right_before_a_goodbye_counts(box: Daemon) -> None:
    process = box.start(shell="read line; exit 9", stdin=True)
    attached = box.attach(process["id"])
    assert attached.receive() is not None
    mask = os.urandom(4)
    typed = frame(Opcode.BINARY, bytes((Kind.STDIN,)) + b"bye\n", mask=mask)
    attached.connection.sendall(typed + close_frame(1000, mask=mask))
    assert box.ask("GET", f"{P}/{process['id']}?wait=30000").value["exit"]["code"] == 9
    attached.close()


def test_long_uploads_go_past_the_loop_and_the_connection_lives_on(box: Daemon) -> None:
    """Bytes that came with the head, bytes in many parts, and the next request right behind the last byte."""
    data = os.urandom(1 << 16) * 50
    connection = box.open(f"PUT /box/v1/files/long HTTP/1.1\r\nContent-Length: {len(data)}\r\nX: y")
    connection.sendall(data[:100_000])
    for at in range(100_000, len(data), 333_333):
        connection.sendall(data[at : at + 333_333])
    connection.sendall(
        b"GET /box/v1/files/long?stat HTTP/1.1\r\nConnection: close\r\nAuthorization: Bearer a-token-of-the-tests\r\n\r\n"
    )
    answer = b""
    while piece := connection.recv(65_536):
        answer += piece
    connection.close()
    assert answer.startswith(b"HTTP/1.1 204 ")
    assert f'"size":{len(data)}'.encode() in answer
    assert (box.root / "long").read_bytes() == data


def test_slow_uploads_hold_up_nobody(box: Daemon) -> None:
    """More of them than there are threads, each in the middle of its body."""
    slow = []
    for number in range(40):
        connection = box.open(f"PUT /box/v1/files/slow-{number} HTTP/1.1\r\nContent-Length: 5000000")
        connection.sendall(b"x" * 2_000_000)
        slow.append(connection)
    assert box.ask("PUT", "/box/v1/files/quick", b"q" * 2_000_000).status == 204
    assert box.ask("GET", "/box/v1/files/?list").status == 200
    for connection in slow:
        connection.close()
    while any(name.startswith(".boxd-") for name in os.listdir(box.root)):
        time.sleep(0.01)
    assert not [name for name in os.listdir(box.root) if name.startswith("slow")]


def test_a_file_that_shrinks_while_it_is_sent_breaks_the_connection(box: Daemon) -> None:
    """The length was promised: anything else would be taken for the whole file."""
    (box.root / "shrinks").write_bytes(b"x" * 50_000_000)
    connection = box.open("GET /box/v1/files/shrinks HTTP/1.1")
    received = len(connection.recv(1000))
    os.truncate(box.root / "shrinks", 1000)
    while piece := connection.recv(1 << 20):
        received += len(piece)
    connection.close()
    assert received < 50_000_000


def test_a_move_from_home_ends_at_home(tmp_path: Path) -> None:
    with boxd(tmp_path, "--home", str(tmp_path / "home")) as box:
        box.ask("PUT", "/box/v1/files/a?relative", b"x")
        assert box.ask("POST", "/box/v1/files/a?relative&move=b/c").status == 204
        assert (tmp_path / "home/b/c").read_bytes() == b"x"
        assert box.ask("POST", "/box/v1/files/b/c?relative&move=/top").status == 204
        assert (tmp_path / "top").read_bytes() == b"x"


def test_arguments_may_be_any_bytes(box: Daemon) -> None:
    body = b'{"argv": ["printf", "%s", "\xff\xfe"]}'
    answer = box.ask("POST", P, body, {"Accept": "application/x-sandpool-frames"})
    assert b"\x02\x00\x00\x00\x02\xff\xfe" in answer.body
